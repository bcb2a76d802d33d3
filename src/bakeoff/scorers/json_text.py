"""JSON taken out of what a model wrote, in time proportional to its length."""

import json
import re
from itertools import chain, islice

from bakeoff.core.values import Json

_FENCED = re.compile(r"^[ \t]*```[\w-]*[ \t\r]*\n(.*?)^[ \t]*```", re.DOTALL | re.MULTILINE)


_OBJECT = re.compile(r"""\{\s*["}]""")
_OBJECT_OR_ARRAY = re.compile(r"""\{\s*["}]|\[\s*["{\[\]\dtfn-]""")
_TRIES = 200  # an error counts the lines before it, so many of them would be quadratic


class NoJsonError(ValueError):
    """The text holds no JSON; the message says why."""


def read_json(text: str) -> Json:
    """Return the JSON value that *text* is, as RFC 8259 has it: NaN and infinity are refused."""
    try:
        value: Json = _DECODER.decode(text.strip())
    except RecursionError as error:
        raise NoJsonError("it is nested too deep") from error
    except ValueError as error:
        raise NoJsonError(str(error)) from error
    return value


def find_json(text: str, *, only_object: bool = False) -> Json:
    """Return the JSON in *text*: all of it, a fenced block, or the first object or array."""
    fenced = (match[1] for match in islice(_FENCED.finditer(text), _TRIES))
    for candidate in chain([text], fenced):
        try:
            return read_json(candidate)
        except NoJsonError:
            continue
    return _first_in_prose(text, _OBJECT if only_object else _OBJECT_OR_ARRAY)


def _first_in_prose(text: str, starts: re.Pattern[str]) -> Json:
    """Decode at each plausible bracket until it works.

    What one try has read is not tried again, so no part of a broken value is taken for the whole.
    """
    why, end = "there is none", 0
    for _ in range(_TRIES):
        start = starts.search(text, end)
        if start is None:
            break
        try:
            value: Json = _DECODER.raw_decode(text, start.start())[0]
        except json.JSONDecodeError as error:
            why, end = str(error), max(error.pos, start.end())
        except RecursionError as error:
            raise NoJsonError("it is nested too deep") from error
        except ValueError as error:
            raise NoJsonError(str(error)) from error
        else:
            return value
    raise NoJsonError(why)


def _constant(name: str) -> Json:
    raise ValueError(f"{name} is not JSON")


def _float(digits: str) -> float:
    number = float(digits)
    if number in {float("inf"), float("-inf")}:
        raise ValueError("a number in it is too large")
    # 1.0 is 1 in JSON, so that equality and uniqueness need no cases
    return int(number) if number.is_integer() else number


_DECODER = json.JSONDecoder(parse_constant=_constant, parse_float=_float)
