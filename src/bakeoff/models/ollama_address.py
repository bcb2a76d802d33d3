"""Where an Ollama is, in any of the ways people write it."""

import re
from urllib.parse import urlsplit

from bakeoff._lib.redact import public_url
from bakeoff.core.errors import UsageError

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
