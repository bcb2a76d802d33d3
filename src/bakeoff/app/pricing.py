"""Prices and the budget of a run: read, checked before it starts, and an estimate of its cost.

A price is looked up, never guessed: a model that neither a person's own table nor the packaged one
knows has an unknown price.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache, partial
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from bakeoff import models
from bakeoff.core.budget import Cap, Price, Tariff
from bakeoff.core.candidate import ModelSpec
from bakeoff.core.errors import UsageError
from bakeoff.core.lazy_tasks import at_hand
from bakeoff.core.plan import Plan
from bakeoff.core.run_spec import RunSpec
from bakeoff.core.values import Json
from bakeoff.formats.prompts import asked_by
from bakeoff.formats.text.convert import convert
from bakeoff.formats.text.toml import line_of, read_toml
from bakeoff.planning.forecast import Forecast, forecast

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
    """A file of prices; `local` names providers that charge nothing."""

    date: str | None = None
    local: tuple[str, ...] = ()
    price: tuple[PriceEntry, ...] = ()

    def find(self, model: str) -> Price | None:
        """Return the price of *model* (`provider/name`) by the longest pattern that matches."""
        matches = [
            (len(pattern), entry)
            for entry in self.price
            for pattern in entry.models
            if model.startswith(_literal_start(pattern)) and fnmatchcase(model, pattern)
        ]
        return max(matches, key=lambda pair: pair[0])[1].price if matches else None


def _literal_start(pattern: str) -> str:
    """Return what everything begins with that matches *pattern*: matching itself compiles it."""
    return re.split(r"[*?\[]", pattern, maxsplit=1)[0]


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
    text = Path(models.__file__).with_name(_PACKAGED).read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text), PriceTable)


def read_prices(path: Path) -> PriceTable:
    """Return the price table in the file *path*."""
    data, text = read_toml(path)
    return convert(data, PriceTable, source=str(path), line_of=partial(line_of, text))


def prices_of(run_spec: RunSpec) -> Prices:
    """Return the prices in force: those of the person's file, then those of the package."""
    return prices_in(run_spec.prices)


def prices_in(file: str | None) -> Prices:
    """Return the prices in *file*, then those of the package."""
    return Prices(read_prices(Path(file))) if file else Prices()


def prices_file(named: str | None, before: str | None) -> str | None:
    """Return the file of prices that is *named*, else the one *before*, if it still exists."""
    if named is None and before is not None and Path(before).is_file():
        return before
    return named


def forecast_of(plan: Plan, run_spec: RunSpec) -> Forecast:
    """Return what *plan* may come to; raise where its cap could not be kept."""
    prices = prices_of(run_spec)
    check_cap(plan, prices, run_spec.cap)
    return forecast(plan, prices.tariff, asked_by)


def check_budget(plan: Plan, run_spec: RunSpec) -> str | None:
    """Return a warning where the cap may end the run; raise where the cap could not be kept."""
    cap = run_spec.cap
    if not cap:
        check_cap(plan, prices_of(run_spec), cap)
        return None
    estimate = forecast_of(plan, run_spec)
    cost = estimate.cost_usd
    if cap.cost_usd is not None and cost is not None and cost > cap.cost_usd:
        return f"it may cost ${cost:.4f}, more than the ${cap.cost_usd:.4f} of --max-cost"
    output = estimate.output_tokens
    tokens = None if output is None else estimate.input_tokens + output
    if cap.tokens is not None and tokens is not None and tokens > cap.tokens:
        return f"it may take {tokens:,} tokens, more than the {cap.tokens:,} of --max-tokens"
    return None


def check_cap(plan: Plan, prices: Prices, cap: Cap) -> None:
    """Raise where the most that a request may cost, or the cost of a trial, cannot be known."""
    limited = plan.conditions.limits.cost_usd is not None
    if not (cap or limited):
        return
    for what, is_role, spec, asked_with in _askers(plan):
        tariff = prices.tariff(spec)
        if (cap.cost_usd is not None or limited) and tariff.price is None and tariff.billed:
            option = "limits.cost_usd" if cap.cost_usd is None else "--max-cost"
            raise UsageError(_no_price(spec, option))
        for parameters in asked_with:
            if cap and not _bounded(tariff, cap, tariff.most_output(parameters)):
                raise UsageError(_no_limit(what, spec, cap, is_role=is_role))


def _bounded(tariff: Tariff, cap: Cap, longest: int | None) -> bool:
    """Whether an answer cannot cost more than is known before it is asked for."""
    costs = tariff.billed and tariff.price is not None and tariff.price.output > 0
    return longest is not None or not (
        cap.tokens is not None or (cap.cost_usd is not None and costs)
    )


def _askers(plan: Plan) -> Iterator[tuple[str, bool, ModelSpec, Sequence[Mapping[str, Json]]]]:
    """Yield every model that is asked: what it is, whether a role, what it is asked with."""
    for block in plan.blocks:
        asked_with = [task.parameters for task in at_hand(block.tasks)]
        for candidate in block.candidates:
            yield f"candidate {candidate.id!r}", False, candidate.model, asked_with
    for name, spec in plan.conditions.roles.items():
        yield f"role {name!r}", True, spec, [{}]


def _no_price(spec: ModelSpec, option: str) -> str:
    return (
        f"{option} needs a price for {spec.full_name!r}, and none is known; write one into a file "
        f'([[price]], models = ["{spec.full_name}"], input and output in USD per million tokens) '
        "and name it with --prices"
    )


def _no_limit(what: str, spec: ModelSpec, cap: Cap, *, is_role: bool) -> str:
    option = "--max-cost" if cap.cost_usd is not None else "--max-tokens"
    how = (
        "set max_tokens in `parameters` of its table in the run file"
        if is_role
        else "for example --set parameters.max_tokens=1000"
    )
    return (
        f"{option} needs a limit on the answers of {what} ({spec.full_name}): without one, what a "
        f"request may cost is unknown; {how}"
    )
