"""What a Dockerfile says of the place where a container starts."""

import posixpath
import re

_INSTRUCTION = re.compile(r"^[ \t]*(FROM|WORKDIR)[ \t]+(.+?)[ \t]*$", re.IGNORECASE | re.MULTILINE)


def last_workdir(text: str) -> str | None:
    """Return the working directory of the last stage; None where only a build could tell."""
    here: str | None = None
    for word, value in _INSTRUCTION.findall(text):
        path = value.strip("\"'")
        if word.upper() == "FROM":
            here = None  # that of the image below
        elif "$" in path or (here is None and not path.startswith("/")):
            return None
        else:
            here = posixpath.normpath(posixpath.join(here or "/", path))
    return here
