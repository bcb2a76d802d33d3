"""Titles as parts of a URL."""


def slugify(title: str, *, longest: int = 60) -> str:
    """Return *title* as a slug: lower case, words joined by single hyphens.

    Accents are dropped ("Café" is "cafe"); whatever else is not a letter or a digit of ASCII
    separates words. A slug is at most *longest* characters long, is cut between words where it can
    be, and never begins or ends with a hyphen. Without any word it is "untitled".
    """
    raise NotImplementedError
