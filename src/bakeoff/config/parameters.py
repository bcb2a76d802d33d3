"""Parameters of a request: sent as they stand, but a number in quotes is refused before it is sent."""

from collections.abc import Mapping

from bakeoff._lib.decoder_words import in_words
from bakeoff.config.convert import dotted
from bakeoff.config.lines import shown
from bakeoff.config.problems import Problems
from bakeoff.core.errors import UsageError
from bakeoff.core.place import Place
from bakeoff.core.values import Json

_COUNTS = ("max_tokens", "max_completion_tokens", "max_output_tokens", "n", "seed", "top_k")
_NUMBERS = (
    "temperature",
    "top_p",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
)
_KINDS: Mapping[str, str] = {
    **dict.fromkeys(_COUNTS, "int"),
    **dict.fromkeys(_NUMBERS, "float"),
    "stream": "bool",
}
_FITS: Mapping[str, tuple[str, ...]] = {
    "int": ("int", "null"),
    "float": ("int", "float", "null"),
    "bool": ("bool", "null"),
}


def check_parameters(parameters: Mapping[str, Json], *, at: Place, of: str = "") -> None:
    """Raise where a parameter that every server knows has a value of the wrong kind.

    They stand *at* a place; *of* is what they belong to, for the message.
    """
    problems = Problems()
    for name, wanted in _KINDS.items() if parameters else ():
        found = _kind(parameters.get(name))
        if found not in _FITS[wanted]:
            here = at.inside(name)
            words = in_words(f"Expected `{wanted}`, got `{found}`", value=parameters[name])
            problems.add(UsageError(f"{shown(here)}: key {dotted(here.key)!r}: {words}{of}"))
    problems.raise_any()


def _kind(value: Json) -> str:
    """Return what the decoder calls the kind of *value*."""
    if value is None:
        return "null"
    if isinstance(value, bool | int | float | str):
        return type(value).__name__
    return "object" if isinstance(value, Mapping) else "array"
