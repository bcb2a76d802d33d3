"""Plain data, as it stands in JSON and TOML."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
else:
    Json = Any  # decoders read this at run time, and a recursive alias says nothing to them
JsonObject: TypeAlias = Mapping[str, Json]
