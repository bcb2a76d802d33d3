"""The settings of a model adapter, its URL and its headers, checked before the run."""

import re
from collections.abc import Mapping
from typing import TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import inspect

from bakeoff._lib.decode_errors import explain_decode_error
from bakeoff._lib.phrasing import did_you_mean
from bakeoff._lib.redact import public_url
from bakeoff.core.candidate import ModelSpec
from bakeoff.core.errors import UsageError
from bakeoff.models.providers import PROVIDERS, Provider

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


_CONTROL = re.compile("[\x00-\x1f\x7f]")
_VERSION = re.compile(r"/v\d+\w*(?=/|$)")


def base_url_of(spec: ModelSpec, *, example: str = "http://host:port/v1") -> str:
    """Return the base URL of *spec*, which must look like one."""
    if not spec.base_url:
        raise UsageError(
            f"model {spec.full_name!r}: say where it is: --base-url {example}, "
            f"or `base_url` in the run file{_or_variable(spec)}"
        )
    if not re.match(r"\s*https?://[^/?#]", spec.base_url, re.IGNORECASE):
        raise UsageError(
            f"model {spec.full_name!r}: {public_url(spec.base_url)!r}{_named_by(spec)} is no base URL: "
            f"write it as {example} or https://..."
        )
    return spec.base_url.strip()


def _or_variable(spec: ModelSpec) -> str:
    variables = PROVIDERS.get(spec.provider, Provider()).url_variables
    return f", or the variable {variables[0]}" if variables else ""


def _named_by(spec: ModelSpec) -> str:
    variable = spec.base_url_from or ""
    return f" (of the variable {variable})" if variable.isupper() else ""


def split_query(url: str) -> tuple[str, str]:
    """Return *url* without a slash at its end, and the query that stood behind it."""
    path, mark, query = url.partition("?")
    return path.rstrip("/"), mark + query


def versioned(root: str, version: str) -> str:
    """Return *root* with the API's version at its end, unless its path names one already."""
    host, slash, path = root.partition("://")[2].partition("/")
    return root if host and _VERSION.search(slash + path) else f"{root}/{version}"


def endpoint(url: str, *, version: str, path: str) -> str:
    """Return the full URL of *path* for a base URL with or without *version*, or a full URL."""
    root, query = split_query(url)
    if root.endswith(path):
        return root + query
    return versioned(root, version) + path + query


def headers_of(
    spec: ModelSpec,
    *,
    key: str = "Authorization",
    scheme: str = "Bearer ",
    also: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the headers of *spec*: its own go before the key and before what the API wants."""
    own = {name.lower() for name in spec.headers}
    wanted = {"Content-Type": "application/json", **(also or {})}
    if spec.api_key and not own & {key.lower(), "authorization"}:
        # a key read from a file often brings its line end along
        wanted[key] = f"{scheme}{spec.api_key.strip()}"
    headers = {name: value for name, value in wanted.items() if name.lower() not in own}
    headers.update(spec.headers)
    for name, value in headers.items():
        if _CONTROL.search(name + value):
            raise UsageError(
                f"model {spec.full_name!r}: the header {name!r} holds a line end or another "
                "control character, which HTTP does not allow"
            )
    return headers


DEFAULT_URL = "http://127.0.0.1:11434"

_PORT = 11434
_PATH = re.compile(r"(/v1|/api)?(/chat(/completions)?|/generate|/tags)?/*$")


def address(text: str) -> str:
    """Return *text* as `http://host:port`: the port, the scheme and a path may be missing or too many."""
    given = text.strip()
    url = given if "://" in given else f"http://{given}"
    parts = urlsplit(url)
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if parts.scheme not in {"http", "https"} or not host:
        raise UsageError(
            f"{public_url(text)!r} is no address of an Ollama: write it as {DEFAULT_URL}"
        )
    if host in {"0.0.0.0", "::"}:  # noqa: S104 -- where a server listens is not where it is asked
        host = "127.0.0.1"
    if port is None and "://" not in given:
        port = _PORT
    user = f"{parts.netloc.rpartition('@')[0]}@" if "@" in parts.netloc else ""
    host = f"[{host}]" if ":" in host else host
    place = f"{user}{host}:{port}" if port is not None else f"{user}{host}"
    return f"{parts.scheme}://{place}{_PATH.sub('', parts.path)}"
