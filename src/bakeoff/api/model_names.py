"""What a model's name means, and what its secrets are."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from bakeoff import registry
from bakeoff._lib.redact import MASK, Redactor
from bakeoff._lib.suggest import did_you_mean
from bakeoff.core.candidate import ModelSpec
from bakeoff.core.errors import UsageError

OWN = "python"  # the provider of models that are somebody's own Python

_DEFAULT_NAMES = {"embedded": "smollm2-135m", "scripted": "echo"}
_ENDPOINTS = {"openai": ("https://api.openai.com/v1", "${OPENAI_API_KEY}")}
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_SECRET_HEADERS = re.compile(r"auth|key|token|cookie|secret", re.IGNORECASE)


def resolve(
    spec: ModelSpec, *, base_url: str | None = None, folders: Iterable[Path] = ()
) -> ModelSpec:
    """Return *spec* with its provider; with a base URL, a name is sent as it stands."""
    url = base_url or spec.base_url
    if spec.provider:
        return replace(spec, base_url=url, label=spec.label or _label(spec))
    text = spec.name
    if url:
        name = text.removeprefix("openai-compatible/")
        spec = replace(spec, provider="openai-compatible", name=name, base_url=url)
        return replace(spec, label=spec.label or name)
    known = registry.names("models")
    provider, slash, name = text.partition("/")
    if provider in known and (slash or provider in _DEFAULT_NAMES):
        return _with_defaults(replace(spec, provider=provider, name=name))
    if registry.is_own(text, folders=folders):
        return replace(spec, provider=OWN)
    raise UsageError(
        f"model {text!r}: write it as provider/name, or say where it is with --base-url; "
        f"providers: {did_you_mean(provider, known)}"
    )


def _label(spec: ModelSpec) -> str | None:
    return spec.name if spec.provider == "openai-compatible" and spec.name else None


def _with_defaults(spec: ModelSpec) -> ModelSpec:
    url, key = _ENDPOINTS.get(spec.provider, (None, None))
    return replace(
        spec,
        name=spec.name or _DEFAULT_NAMES.get(spec.provider, ""),
        base_url=spec.base_url or url,
        api_key=spec.api_key or key,
    )


def with_secrets(spec: ModelSpec, environ: Mapping[str, str], redactor: Redactor) -> ModelSpec:
    """Return *spec* with every `${NAME}` read; the redactor learns each value first."""

    def read(text: str) -> str:
        def value(found: re.Match[str]) -> str:
            if found[1] not in environ:
                raise UsageError(
                    f"model {spec.full_name!r}: the environment variable {found[1]} is not set"
                )
            redactor.add([environ[found[1]]])
            return environ[found[1]]

        return _VARIABLE.sub(value, text)

    if spec.api_key and MASK in spec.api_key:
        raise UsageError(
            f"model {spec.full_name!r}: its key was written out in the config and so was not kept; "
            "give the config again, or name an environment variable in it"
        )
    learn_literals(spec, redactor)
    return replace(
        spec,
        base_url=read(spec.base_url) if spec.base_url else None,
        api_key=read(spec.api_key) if spec.api_key else None,
        headers={name: read(value) for name, value in spec.headers.items()},
    )


def learn_literals(spec: ModelSpec, redactor: Redactor) -> None:
    """Let the redactor know secrets that were written out instead of named."""
    values = [spec.api_key or ""]
    values += [v for name, v in spec.headers.items() if _SECRET_HEADERS.search(name)]
    words = [word for value in values for word in value.split()]
    words.append(urlsplit(spec.base_url or "").password or "")
    redactor.add(word for word in words if not _VARIABLE.search(word) and word != "Bearer")
