"""The source location of something in a file, for error messages."""

from bakeoff._lib.value_object import value_object

KeyPath = tuple[str | int, ...]


@value_object
class SourceLocation:
    """A file as it was given, and the key in it; plain data, so that it may travel with what it is of.

    The line is not here: it is looked up when a mistake is told, which is seldom.
    """

    file: str
    key: KeyPath = ()

    def inside(self, *steps: str | int) -> "SourceLocation":
        """Return the place of what stands there under *steps*."""
        return SourceLocation(file=self.file, key=(*self.key, *steps))
