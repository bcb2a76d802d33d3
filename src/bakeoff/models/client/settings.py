"""The settings of a model adapter, checked."""

from typing import TypeVar

import msgspec
from msgspec import inspect

from bakeoff._lib.decode_errors import explain_decode_error
from bakeoff._lib.phrasing import did_you_mean
from bakeoff.core.candidate import ModelSpec
from bakeoff.core.errors import UsageError

S = TypeVar("S", bound=msgspec.Struct)


def settings_of(spec: ModelSpec, kind: type[S]) -> S:
    """Return the settings of *spec* as a *kind*; a mistake names the key and the right ones."""
    what, known = f"model {spec.full_name!r}", kind.__struct_fields__
    for key in spec.settings:
        if key not in known:
            raise UsageError(f"{what}: unknown setting {key!r}; {did_you_mean(key, known)}")
    try:
        return msgspec.convert(dict(spec.settings), kind)
    except msgspec.ValidationError as error:
        message, _, where = str(error).partition(" - at `$.")
        key = where.rstrip("`")
        problem = explain_decode_error(
            message,
            value=spec.settings.get(key),
            known=known,
            choices=lambda: _choices(kind, key),
        )
        raise UsageError(f"{what}: setting {key!r}: {problem}") from error


def _choices(kind: type[msgspec.Struct], key: str) -> list[str]:
    """Return the words that may be said for *key*, where there are only a few."""
    fields = inspect.type_info(kind).fields  # type: ignore[attr-defined]  # a struct has fields
    types = [f.type for f in fields if f.name == key]
    parts = [part for t in types for part in getattr(t, "types", (t,))]
    return [str(v) for t in parts if isinstance(t, inspect.LiteralType) for v in t.values]
