"""The settings of a model adapter, checked."""

import re
from typing import TypeVar

import msgspec

from bakeoff._lib.suggest import did_you_mean
from bakeoff.core.candidate import ModelSpec
from bakeoff.core.errors import UsageError

S = TypeVar("S", bound=msgspec.Struct)


def settings_of(spec: ModelSpec, kind: type[S]) -> S:
    """Return the settings of *spec* as a *kind*; a mistake names the key and the right ones."""
    try:
        return msgspec.convert(dict(spec.settings), kind)
    except msgspec.ValidationError as error:
        message = str(error)
        if unknown := re.search(r"unknown field `(.*?)`", message):
            hint = did_you_mean(unknown[1], kind.__struct_fields__)
            message = f"unknown setting {unknown[1]!r}; {hint}"
        raise UsageError(f"model {spec.full_name!r}: {message}") from error
