"""What models charge: the table in this package, and a person's own, which wins.

A price is looked up, never guessed: a model that no table knows has an unknown price.
"""

import tomllib
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from typing import Annotated

import msgspec
from msgspec import Meta

from bakeoff.core.budget import Price, Tariff
from bakeoff.core.candidate import ModelSpec

_PACKAGED = "prices.toml"
_Dollars = Annotated[float, Meta(ge=0, le=1e6)]
_Pattern = Annotated[str, Meta(min_length=1)]


class PriceEntry(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """US dollars per million tokens for the models that match."""

    models: tuple[_Pattern, ...]
    input: _Dollars
    output: _Dollars
    cached: _Dollars | None = None
    max_output: Annotated[int, Meta(ge=1)] | None = None

    @property
    def price(self) -> Price:
        """The price itself."""
        return Price(
            input=self.input, output=self.output, cached=self.cached, max_output=self.max_output
        )


class PriceTable(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """A file of prices; `local` names providers for which nobody sends a bill."""

    date: str | None = None
    local: tuple[str, ...] = ()
    price: tuple[PriceEntry, ...] = ()

    def find(self, model: str) -> Price | None:
        """Return the price of *model* (`provider/name`) by the longest pattern that matches."""
        matches = [
            (len(pattern), entry)
            for entry in self.price
            for pattern in entry.models
            if fnmatchcase(model, pattern)
        ]
        return max(matches, key=lambda pair: pair[0])[1].price if matches else None


class Prices:
    """The tables in force: the first that knows a model decides."""

    def __init__(self, own: PriceTable | None = None) -> None:
        self._tables = (packaged(),) if own is None else (own, packaged())

    def tariff(self, spec: ModelSpec) -> Tariff:
        """Return what *spec* charges; one with a price is billed, wherever it runs."""
        matches = (table.find(spec.full_name) for table in self._tables)
        price = next((price for price in matches if price is not None), None)
        local = any(spec.provider in table.local for table in self._tables)
        return Tariff(
            price=price, billed=price is not None or not local, parameters=spec.parameters
        )


@cache
def packaged() -> PriceTable:
    """Return the table that comes with this package."""
    text = files("bakeoff.models").joinpath(_PACKAGED).read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text), PriceTable)
