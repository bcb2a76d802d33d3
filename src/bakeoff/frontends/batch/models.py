"""Which models a batch is run with: all that are there, or those that were named."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from bakeoff import registry
from bakeoff._lib.phrasing import did_you_mean
from bakeoff.app.model_names import is_bare, resolve
from bakeoff.core.candidate import ModelSpec
from bakeoff.core.errors import UsageError
from bakeoff.formats.models_file import ModelsConfig
from bakeoff.models.client.settings import address
from bakeoff.models.discovery import FoundModel, configured_models
from bakeoff.models.providers import PROVIDERS

ALL = "all"
_OLLAMA = "ollama"
_ANY_SERVER = "openai-compatible"
_LATEST = ":latest"


@dataclass(frozen=True, kw_only=True)
class ModelOffer:
    """A model that can be run; `digest` is its server's, where it tells one."""

    spec: ModelSpec
    digest: str | None = None

    @property
    def key(self) -> tuple[str, str | None]:
        """What tells it from the others: a model may be configured twice, with other settings."""
        return self.spec.full_name, self.spec.label

    @property
    def name(self) -> str:
        """How a person names it: a configured one as in the file, Ollama's as `ollama/name:tag`."""
        return report_name(self.spec)

    def exact(self) -> set[str]:
        """Return every way to name just this one."""
        names = {self.name, self.spec.name, self.spec.full_name, self.spec.label or ""}
        names |= {name.removesuffix(_LATEST) for name in names}
        return {name.casefold() for name in names if name}

    def untagged(self) -> set[str]:
        """Return its names without the tag after the colon."""
        names = (self.spec.name, self.spec.full_name)
        return {name.partition(":")[0].casefold() for name in names}


@dataclass(frozen=True, kw_only=True)
class ModelChoice:
    """The models that were chosen, and what a person should know about that."""

    offers: tuple[ModelOffer, ...]
    notices: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ModelCatalog:
    """Which models can be run, why others cannot, and the categories of both."""

    offers: tuple[ModelOffer, ...] = ()
    missing: Mapping[str, str] = field(default_factory=dict)
    disabled: Mapping[str, str] = field(default_factory=dict)
    disabled_as: Mapping[str, str] = field(default_factory=dict)
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def report_name(spec: ModelSpec) -> str:
    """Return the name of a model in reports and file names."""
    return spec.full_name if spec.provider == _OLLAMA else spec.name or spec.full_name


def model_catalog(
    ollama_models: Iterable[FoundModel], config: ModelsConfig | None, environ: Mapping[str, str]
) -> ModelCatalog:
    """Merge the models of an Ollama and of the models file; what both name is one model."""
    on_ollama = {model.name: model for model in ollama_models}
    offers = {name: [_of_ollama(model)] for name, model in on_ollama.items()}
    if config is None:
        return ModelCatalog(offers=tuple(_flat(offers)))
    configured: dict[str, list[ModelOffer]] = {}
    missing: dict[str, str] = {}
    for given in config.models:
        spec = _resolved(given, config)
        served = _served(spec, on_ollama)
        if why := _why_not(spec, served, environ, own_server=given.base_url is not None):
            missing[report_name(spec)] = why
            continue
        if served is not None and given.base_url is None:
            spec = replace(spec, name=served.name.removeprefix("ollama/"))
        offer = ModelOffer(spec=spec, digest=served.digest if served else None)
        _refuse_twins(offer, configured.setdefault(spec.full_name, []), config)
        configured[spec.full_name].append(offer)
    off = f"it is switched off in {config.shown}; set `enabled: true` there"
    return ModelCatalog(
        offers=tuple(_flat({**offers, **configured})),
        missing=missing,
        disabled=dict.fromkeys(config.disabled, off),
        disabled_as=dict.fromkeys(config.disabled_as, off),
        categories=config.categories,
    )


def _flat(offers: Mapping[str, Sequence[ModelOffer]]) -> Iterator[ModelOffer]:
    for same in offers.values():
        yield from same


def _resolved(given: ModelSpec, config: ModelsConfig) -> ModelSpec:
    """Return a configured model with its provider; an error names its file."""
    known = {*PROVIDERS, *registry.names("models")}
    where = f"{given.origin.where if given.origin else config.shown}: model {given.name!r}"
    if given.provider and given.provider not in known:
        hint = did_you_mean(given.provider, known)
        raise UsageError(f"{where}: no provider is called {given.provider!r}: {hint}")
    spec = resolve(given)
    if spec.provider == _ANY_SERVER and not spec.base_url:
        raise UsageError(f"{where}: say where it is, with `base_url: http://host:port/v1`")
    return spec


def _refuse_twins(offer: ModelOffer, same: Sequence[ModelOffer], config: ModelsConfig) -> None:
    if any(other.key == offer.key for other in same):
        raise UsageError(
            f"{config.shown}: two models are called {offer.name!r}; give each a "
            "`display_name` of its own"
        )


def _of_ollama(model: FoundModel) -> ModelOffer:
    name = model.name.removeprefix("ollama/")
    return ModelOffer(spec=resolve(ModelSpec(provider=_OLLAMA, name=name)), digest=model.digest)


def _served(spec: ModelSpec, on_ollama: Mapping[str, FoundModel]) -> FoundModel | None:
    """Return the model of the Ollama that *spec* names, if there is one."""
    if spec.provider != _OLLAMA:
        return None
    model = on_ollama.get(spec.full_name) or on_ollama.get(f"{spec.full_name}{_LATEST}")
    literal = spec.base_url if spec.base_url and "${" not in spec.base_url else None
    if model is not None and literal and address(literal) != model.base_url:
        return None  # the same name on another server
    return model


def _why_not(
    spec: ModelSpec, served: FoundModel | None, environ: Mapping[str, str], *, own_server: bool
) -> str | None:
    """Return why a configured model cannot be run; None where it can."""
    if troubles := configured_models([spec], environ).troubles:
        return f"{troubles[0].why}; {troubles[0].what_to_do}"
    if spec.provider == _OLLAMA and served is None and not own_server:
        return f"Ollama does not have it; get it with: ollama pull {spec.name}"
    return None


def choose(catalog: ModelCatalog, models: str) -> ModelChoice:
    """Return the models that *models* means: `all`, or names and categories between commas."""
    entries = [entry.strip() for entry in models.split(",") if entry.strip()]
    if not entries:
        raise UsageError(f"--models {models!r} matches no model: write names, a category, or `all`")
    chosen: dict[object, ModelOffer] = {}
    notices: list[str] = []
    for entry in entries:
        for offer in _meant(entry, catalog, notices):
            chosen.setdefault(offer.key, offer)
    return ModelChoice(offers=tuple(chosen.values()), notices=tuple(dict.fromkeys(notices)))


def _meant(entry: str, catalog: ModelCatalog, notices: list[str]) -> Iterator[ModelOffer]:
    """Yield the models that one entry means."""
    if entry.casefold() == ALL:
        notices += [f"{name} is left out: {why}" for name, why in catalog.missing.items()]
        yield from catalog.offers
        return
    if offer := exact(entry, catalog.offers):
        yield offer
        return
    category = next((c for c in catalog.categories if c.casefold() == entry.casefold()), None)
    if category is not None:
        yield from _members(category, catalog, notices)
        return
    yield _untagged(entry, catalog)


def exact(entry: str, offers: Sequence[ModelOffer]) -> ModelOffer | None:
    """Return the one of *offers* that *entry* names in full, if there is one."""
    name = entry.casefold()
    matching = [offer for offer in offers if name in offer.exact()]
    # a full name wins over another model that is merely displayed under it
    plain = [offer for offer in matching if name in {offer.name.casefold(), offer.spec.full_name.casefold()}]  # fmt: skip
    if len(plain or matching) > 1:
        names = _listed(offer.spec.label or offer.spec.full_name for offer in matching)
        raise UsageError(f"{entry!r} is the name of several models: {names}")
    return next(iter(plain or matching), None)


def helper(role: str, name: str, catalog: ModelCatalog) -> ModelSpec:
    """Return who plays *role*: a model of the file or of the Ollama, else any with a provider."""
    if offer := exact(name, catalog.offers):
        return offer.spec
    off = {known.casefold() for known in (*catalog.disabled_as, *catalog.missing)}
    spec = ModelSpec(provider="", name=name)
    if name.casefold() not in off and not is_bare(spec):
        return spec
    return _untagged(name, catalog, option=f"--{role}").spec


def _untagged(entry: str, catalog: ModelCatalog, *, option: str = "--models") -> ModelOffer:
    matching = [offer for offer in catalog.offers if entry.casefold() in offer.untagged()]
    if len(matching) == 1:
        return matching[0]
    if matching:
        raise UsageError(f"{option} {entry!r} may be any of: {_listed(o.name for o in matching)}")
    for name, why in {**catalog.disabled_as, **catalog.missing}.items():
        if name.casefold() == entry.casefold():
            raise UsageError(f"{option} {entry!r} cannot be run: {why}")
    known = _listed(offer.name for offer in catalog.offers)
    if option != "--models":
        known += "; any other is written provider/name"
        raise UsageError(f"{option}: no model {entry!r} is there; there are: {known}")
    more = f"; categories: {_listed(catalog.categories)}" if catalog.categories else ""
    raise UsageError(f"no model {entry!r} is there; there are: {known}{more}")


def _members(category: str, catalog: ModelCatalog, notices: list[str]) -> Iterator[ModelOffer]:
    """Yield the available models of a category; it may name others."""
    count = 0
    for name in catalog.categories[category]:
        try:
            offer = exact(name, catalog.offers) or _untagged(name, catalog)
        except UsageError as error:
            notices.append(f"category {category!r}: {error}")
            continue
        count += 1
        yield offer
    if not count:
        names = _listed(catalog.categories[category])
        known = _listed(offer.name for offer in catalog.offers)
        raise UsageError(
            f"no model of the category {category!r} ({names}) is there; there are: {known}"
        )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
