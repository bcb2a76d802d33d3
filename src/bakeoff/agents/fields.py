"""Named fields in the words of a command; what a field holds is never read again."""

import re
from collections.abc import Mapping

FIELDS = ("instruction", "instruction_file", "gateway", "token", "model", "home")

_FIELD = re.compile(r"\{(" + "|".join(FIELDS) + r")\}")


def fill(text: str, values: Mapping[str, str]) -> str:
    """Return *text* with each `{field}` replaced; any other brace is left as it is."""
    return _FIELD.sub(lambda found: values[found[1]], text)


def fill_all(texts: tuple[str, ...], values: Mapping[str, str]) -> tuple[str, ...]:
    """Return every text filled."""
    return tuple(fill(text, values) for text in texts)
