"""Secrets, taken out by value wherever text leaves the process.

A value is recognized as it is, escaped by JSON, URL-encoded, in hex and in base64 (both alphabets,
wherever in the encoded text it begins), whole or cut off after its first characters. Anything else
that can be computed from it (reversed, split, encrypted, compressed) is not.
"""

import base64
import binascii
import json
import re
from base64 import b64encode
from binascii import hexlify
from collections.abc import Iterable, Iterator, Mapping, Sequence
from urllib.parse import quote, quote_plus, unquote, unquote_plus

MASK = "[redacted]"
_SHORTEST = 6  # a shorter value would blank out ordinary words
_HEAD = 12  # so much of a longer one is enough: a message may have been cut in the middle of it
_URL_SAFE = str.maketrans("+/", "-_")


class Redactor:
    """Knows the secret values of this process and replaces them, whole or cut, in text."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets: frozenset[str] = frozenset()
        self._forms: tuple[str, ...] = ()
        self._heads: tuple[str, ...] = ()
        self._data_heads: tuple[bytes, ...] = ()
        self.add(secrets)

    def add(self, secrets: Iterable[str]) -> None:
        """Learn more values; the longest are replaced first."""
        new = {s for s in secrets if len(s) >= _SHORTEST and s not in MASK} - self._secrets
        if not new:
            return
        self._secrets |= new
        forms = {form for secret in self._secrets for form in _forms(secret)}
        self._forms = tuple(sorted(forms, key=len, reverse=True))
        # most records hold no secret: what all forms begin with is all that is searched in those
        self._heads = tuple({form[:_HEAD] for form in forms})
        self._data_heads = tuple(head.encode("utf-8", "surrogatepass") for head in self._heads)

    def text(self, text: str) -> str:
        """Return *text* without any known secret."""
        for head in self._heads:
            if head in text:
                return self._redacted(text)
        return text

    def data(self, data: bytes) -> bytes:
        """Return *data*, which is JSON, without any known secret, and still JSON."""
        for head in self._data_heads:  # a loop, not any(): every record goes through here
            if head in data:
                clean = self._clean(json.loads(data))
                return json.dumps(clean, ensure_ascii=False, separators=(",", ":")).encode()
        return data

    def _redacted(self, text: str) -> str:
        for form in self._forms:
            text = text.replace(form, MASK)
        for form in self._forms:
            if form[:_HEAD] in text:
                text = _masked(text, form)
        return text

    def _clean(self, value: object) -> object:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(key): self._clean(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self._clean(inner) for inner in value]
        return value


def _forms(secret: str) -> set[str]:
    """Return *secret* as it may stand in a text: encoded or not, and escaped by JSON up to twice."""
    forms = {secret, *_url_encoded(secret), *_encoded(secret.encode("utf-8", "surrogatepass"))}
    for _ in range(2):
        forms |= {
            json.dumps(f, ensure_ascii=ascii_)[1:-1] for f in forms for ascii_ in (True, False)
        }
    return forms | {form.replace("/", "\\/") for form in forms}  # as some JSON writers do


def _url_encoded(secret: str) -> Iterator[str]:
    for encoded in (
        quote(secret, safe="", errors="surrogatepass"),
        quote(secret, safe="/", errors="surrogatepass"),
        quote_plus(secret, errors="surrogatepass"),
    ):
        yield encoded
        yield _lower_escapes(encoded)


def _lower_escapes(text: str) -> str:
    first, *rest = text.split("%")
    return "%".join([first, *(part[:2].lower() + part[2:] for part in rest)])


def _encoded(secret: bytes) -> Iterator[str]:
    """Yield *secret* in hex and base64, without the characters that it shares with its neighbours."""
    digits = hexlify(secret).decode()
    yield digits
    yield digits.upper()
    for before in range(3):
        encoded = b64encode(b"\0" * before + secret).decode()
        shared = -(-before * 8 // 6)
        own = encoded[shared : (before + len(secret)) * 8 // 6]
        yield own
        yield own.translate(_URL_SAFE)


def _masked(text: str, secret: str) -> str:
    """Return *text* with every beginning of *secret* masked, as far as it goes."""
    parts, at = [], 0
    while (start := text.find(secret[:_HEAD], at)) >= 0:
        end = start + min(_HEAD, len(secret))
        while end < len(text) and end - start < len(secret) and text[end] == secret[end - start]:
            end += 1
        parts += [text[at:start], MASK]
        at = end
    return "".join([*parts, text[at:]])


Value = str | int | float | bool | Sequence["Value"] | Mapping[str, "Value"] | None

_SECRET_SETTING = re.compile(
    r"(api|access|auth|private|secret|signing|subscription)[-_]?key|secret|passw(or)?d|passphrase"
    r"|credential|authorization|(access|api|auth|bearer|refresh|session|deploy)[-_]?token",
    re.IGNORECASE,
)
_SECRET_NAME = re.compile(
    rf"{_SECRET_SETTING.pattern}|(^|[-_])(auth|code|cookie|dsn|key|pat|pwd|sig|signature|token)$",
    re.IGNORECASE,
)
_SECRET_HEADER = re.compile(
    rf"{_SECRET_NAME.pattern}|auth|key|token|cookie|signature", re.IGNORECASE
)
_KNOWN_START = re.compile(
    r"(sk|rk|gsk|hf|gh[opsu]|github_pat|glpat|xox[a-z]|nvapi)[-_][\w-]{12,}|(AKIA|AIza)\w{12,}"
)
_RUN = re.compile(r"[A-Za-z0-9]{12,}")  # so many in a row are no word if digits are among them
_URL = re.compile(
    r"(?P<start>\s*(?:[a-z][a-z0-9+.-]*:)?//|)(?:(?P<user_info>[^/?#]*)@)?"
    r"(?P<address>[^?#]*)(?P<rest>.*)",
    re.IGNORECASE | re.DOTALL,
)
_VARIABLES = re.compile(r"(\$\{[^}]*\}|:)+")  # named, not written out
_PARAMETER = re.compile(r"(?P<name>[^?&#;=]+)=(?P<value>[^&#;]*)")


def is_secret(name: str, value: str) -> bool:
    """Whether the variable, or the parameter of a URL, called *name* holds a secret."""
    return value == MASK or _SECRET_NAME.search(name) is not None or looks_secret(value)


def is_secret_header(name: str) -> bool:
    """Whether the value of the header called *name* is a secret."""
    return _SECRET_HEADER.search(name) is not None


def looks_secret(value: str) -> bool:
    """Whether *value* has the form of a key: a known beginning, or a long run with digits in it."""
    if _KNOWN_START.match(value):
        return True
    if value.startswith(("/", "./", "../", "~")):
        return False  # a path
    runs = _RUN.findall(value)
    return any(not run.isalpha() and not run.isdigit() for run in runs)


def public_url(url: str) -> str:
    """Return *url* without user name, password and the secrets of its query."""
    parts = _URL.fullmatch(url)
    if parts is None:
        return url
    info = parts["user_info"]
    user = "" if info is None else f"{info if _VARIABLES.fullmatch(info) else MASK}@"
    rest = _PARAMETER.sub(_public_parameter, parts["rest"])
    return f"{parts['start']}{user}{parts['address']}{rest}"


def _public_parameter(parameter: re.Match[str]) -> str:
    name, value = parameter["name"], parameter["value"]
    if _VARIABLES.fullmatch(value) or not is_secret(name, value):
        return parameter[0]
    return f"{name}={MASK}"


def url_secrets(url: str) -> Iterator[str]:
    """Yield the secrets that are written out in *url*, as they stand there and decoded."""
    parts = _URL.fullmatch(url)
    if parts is None:
        return
    if info := parts["user_info"]:
        yield from (info, unquote(info))
        user, _, password = info.partition(":")
        words = (password or user, *((user,) if looks_secret(user) else ()))
        yield from (*words, *map(unquote, words))
    for parameter in _PARAMETER.finditer(parts["rest"]):
        if is_secret(parameter["name"], parameter["value"]):
            yield from (
                parameter["value"],
                unquote(parameter["value"]),
                unquote_plus(parameter["value"]),
            )


def header_secrets(value: str) -> Iterator[str]:
    """Yield the secrets in the *value* of a header that is one: its words, and what they stand for."""
    words = [word.strip(";,") for word in value.split()]
    for word in words:
        if word.lower() in {"basic", "bearer", "token"}:
            continue
        yield word
        name, equals, rest = word.partition("=")
        if equals and rest.strip("=") and name:
            yield rest
    if words and words[0].lower() == "basic" and len(words) > 1:
        yield from _basic(words[1])


def _basic(encoded: str) -> Iterator[str]:
    try:
        pair = base64.b64decode(encoded, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return
    yield pair
    yield pair.partition(":")[2]


def setting_secrets(settings: Mapping[str, Value]) -> Iterator[str]:
    """Yield the secrets in *settings*: by their names, those of tables within them too."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from (
                environment_secrets(value) if name == "environment" else setting_secrets(value)
            )
        elif isinstance(value, str) and _SECRET_SETTING.search(name):
            yield value


def environment_secrets(variables: Mapping[str, Value]) -> Iterator[str]:
    """Yield the secrets among *variables*, those in their URLs too."""
    for name, value in variables.items():
        if isinstance(value, str):
            if "://" in value:
                yield from url_secrets(value)
            elif is_secret(name, value):
                yield value


def public_settings(settings: Mapping[str, Value]) -> dict[str, Value]:
    """Return *settings* with `MASK` for each secret in them."""
    public: dict[str, Value] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            inner = public_environment if name == "environment" else public_settings
            public[name] = inner(value)
        elif isinstance(value, str) and _SECRET_SETTING.search(name):
            public[name] = MASK
        else:
            public[name] = value
    return public


def public_environment(variables: Mapping[str, Value]) -> dict[str, Value]:
    """Return *variables* with `MASK` for each secret in them."""
    return {name: _public(name, value) for name, value in variables.items()}


def public_word(word: str) -> str:
    """Return a word of a command line without the secrets of a URL, or of a `key=value`, in it."""
    name, equals, value = word.partition("=")
    key = name.rpartition(".")[2]
    if equals and "://" not in name:
        return f"{name}={public_url(value) if '://' in value else _public(key, value)}"
    return public_url(word) if "://" in word else word


def _public(name: str, value: Value) -> Value:
    if not isinstance(value, str):
        return value
    if "://" in value:
        return public_url(value)
    return MASK if is_secret(name, value) else value
