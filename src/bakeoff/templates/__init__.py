"""Files that `bakeoff init` writes, and where the examples and the docs are."""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]


def shipped(name: str) -> Path | None:
    """Return the folder `examples` or `docs`: of the clone that this runs from, else of the wheel."""
    clone = _PACKAGE.parents[1]
    places = (
        (clone / name, _PACKAGE / name)
        if (clone / "pyproject.toml").is_file()
        else (_PACKAGE / name,)
    )
    return next((place for place in places if (place / "README.md").is_file()), None)
