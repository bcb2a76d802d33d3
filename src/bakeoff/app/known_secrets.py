"""The secrets of a plan: the redactor learns them first, and takes them out of events and errors."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from bakeoff._lib.redact import (
    MASK,
    Redactor,
    environment_secrets,
    header_secrets,
    is_secret,
    is_secret_header,
    setting_secrets,
    url_secrets,
)
from bakeoff.core.candidate import AgentSpec, ModelSpec
from bakeoff.core.errors import UsageError
from bakeoff.core.events import Event, Listener, Notice, TrialEnded, TrialOutput
from bakeoff.core.plan import Plan
from bakeoff.core.record import Attempt

VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")

_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
_PLAIN_PARAMETER = re.compile(r"version|model|deployment|region|location|^alt$", re.IGNORECASE)
_PARAMETER_BEFORE = re.compile(r"[?&]([^?&#=]+)=[^?&#]*$")


def variables_of(spec: ModelSpec) -> list[str]:
    """Return the names of the variables that *spec* refers to, each once."""
    texts = (spec.base_url or "", spec.api_key or "", *spec.headers.values())
    return list(dict.fromkeys(m[1] for text in texts for m in VARIABLE.finditer(text)))


def learn_plan(plan: Plan, environ: Mapping[str, str], redactor: Redactor) -> None:
    """Let *redactor* know the secrets of all models and agents of *plan* that can be read here."""
    for spec in (*(c.model for c in plan.candidates), *plan.conditions.roles.values()):
        learn_model(spec, environ, redactor)
    for candidate in plan.candidates:
        learn_agent(candidate.agent, redactor)
    for variable in _PROXIES:
        redactor.add(url_secrets(environ.get(variable) or environ.get(variable.lower()) or ""))


def learn_model(spec: ModelSpec, environ: Mapping[str, str], redactor: Redactor) -> None:
    """Let *redactor* know the secrets of *spec*, as far as they are there to be read."""
    learn_literals(spec, redactor)
    for text in (spec.api_key or "", *spec.headers.values()):
        redactor.add(environ[m[1]] for m in VARIABLE.finditer(text) if m[1] in environ)
    redactor.add(_named_in_url(spec.base_url or "", environ))


def learn_literals(spec: ModelSpec, redactor: Redactor) -> None:
    """Let *redactor* know the secrets of *spec* that are written out instead of named."""
    values = [*header_secrets(spec.api_key or "")]
    for name, value in spec.headers.items():
        if is_secret_header(name):
            values += header_secrets(value)
    values += [*url_secrets(spec.base_url or ""), *setting_secrets(spec.settings)]
    values += setting_secrets(spec.parameters)
    redactor.add(value for value in values if not VARIABLE.search(value))


def learn_agent(spec: AgentSpec, redactor: Redactor) -> None:
    """Let *redactor* know the secrets in the environment and the settings of an agent."""
    redactor.add(environment_secrets(spec.environment))
    redactor.add(setting_secrets(spec.settings))


def _named_in_url(template: str, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the secrets that variables bring into a URL: by where they stand, or what they are."""
    yield from url_secrets(VARIABLE.sub(lambda m: environ.get(m[1]) or m[2] or m[0], template))
    for variable in VARIABLE.finditer(template):
        value = environ.get(variable[1], "")
        if "://" in value:
            continue  # an address; the secrets in it were found above
        before = template[: variable.start()]
        if "?" in before:
            parameter = _PARAMETER_BEFORE.search(before)
            if not (parameter and _PLAIN_PARAMETER.search(parameter[1])):
                yield value
        elif is_secret(variable[1], value):
            yield value


def refuse_redacted_model(spec: ModelSpec) -> None:
    """Raise where a secret of *spec* was written out in a config and so is not in the ledger."""
    places = {"key": spec.api_key or "", "base URL": spec.base_url or ""}
    places |= {f"header {name!r}": value for name, value in spec.headers.items()}
    for place, value in places.items():
        if MASK in value:
            raise _not_kept(f"model {spec.full_name!r}: the secret in its {place}")


def refuse_redacted_agent(spec: AgentSpec) -> None:
    """Raise where a secret of *spec* was written out in a config and so is not in the ledger."""
    settings_of = spec.settings.get("environment")
    variables = {**(settings_of if isinstance(settings_of, Mapping) else {}), **spec.environment}
    for name, value in variables.items():
        if isinstance(value, str) and MASK in value:
            raise _not_kept(f"agent {spec.label or spec.name!r}: the secret in its variable {name}")


def _not_kept(what: str) -> UsageError:
    return UsageError(
        f"{what} was written out in the config and so was not kept; "
        "give the config again, or name an environment variable in it"
    )


_WITH_TEXT = (Notice, TrialOutput)  # a union would be made anew for each event


def redacting(listener: Listener, redactor: Redactor) -> Listener:
    """Return *listener* for events from which the secrets were taken out."""

    def listen(event: Event) -> None:
        if isinstance(event, TrialEnded):
            attempt = _redacted_attempt(event.attempt, redactor)
            event = event if attempt is event.attempt else replace(event, attempt=attempt)
        elif isinstance(event, _WITH_TEXT):
            event = replace(event, text=redactor.text(event.text))
        listener(event)

    return listen


def _redacted_attempt(attempt: Attempt, redactor: Redactor) -> Attempt:
    """Return *attempt* without the secrets in its fault and its verdicts."""
    if attempt.fault is not None:
        fault, trace = attempt.fault, attempt.fault.traceback
        trace = None if trace is None else redactor.text(trace)
        fault = replace(fault, message=redactor.text(fault.message), traceback=trace)
        attempt = replace(attempt, fault=fault)
    explanations = [score.explanation for score in attempt.scores]
    clean = [redactor.text(text) if text else text for text in explanations]
    if explanations == clean:
        return attempt
    pairs = zip(attempt.scores, clean, strict=True)
    return replace(attempt, scores=tuple(replace(s, explanation=text) for s, text in pairs))


@contextmanager
def redacted_errors(redactor: Redactor) -> Iterator[None]:
    """Take the secrets, such as those of a URL, out of a `UsageError` that the block raises."""
    try:
        yield
    except UsageError as error:
        clean = error.rewritten(redactor.text)
        if str(clean) == str(error):
            raise
        raise clean from None  # the cause still has what was taken out
