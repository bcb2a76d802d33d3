"""Variables that say where a provider is: below a config, above the public host, and said."""

import json
from pathlib import Path
from typing import Any

import pytest

import bakeoff
from bakeoff.app import inspection
from bakeoff.app.model_names import resolve
from bakeoff.cli import call
from bakeoff.core.candidate import ModelSpec
from bakeoff.core.events import Event, Notice
from support.loopback import Loopback, chat

VARIABLES = [
    ("openai", "OPENAI_BASE_URL"),
    ("openai", "OPENAI_API_BASE"),
    ("openai-responses", "OPENAI_BASE_URL"),
    ("openai-responses", "OPENAI_API_BASE"),
    ("anthropic", "ANTHROPIC_BASE_URL"),
    ("google", "GEMINI_BASE_URL"),
    ("google", "GOOGLE_GEMINI_BASE_URL"),
]
TASK = bakeoff.Task(id="t", messages=(bakeoff.Message(role="user", content="?"),))


def _named(name: str, **rest: Any) -> ModelSpec:
    return ModelSpec(provider="", name=name, **rest)


@pytest.mark.parametrize(("provider", "variable"), VARIABLES)
def test_a_variable_goes_before_the_public_host_and_behind_a_config(
    provider: str, variable: str
) -> None:
    environ = {variable: "http://proxy:1/v1"}
    plain = resolve(_named(f"{provider}/m"), environ={})
    assert (plain.base_url_from, plain.base_url and plain.base_url[:8]) == ("default", "https://")
    found = resolve(_named(f"{provider}/m"), environ=environ)
    assert (found.base_url, found.base_url_from) == ("http://proxy:1/v1", variable)
    assert found.provider == provider
    own = resolve(ModelSpec(provider=provider, name="m", base_url="http://own"), environ=environ)
    assert (own.base_url, own.base_url_from) == ("http://own", "config")
    said = resolve(_named("m"), base_url="http://said", environ=environ)
    assert (said.base_url, said.base_url_from) == ("http://said", "--base-url")


def test_the_first_variable_wins_and_an_empty_one_says_nothing() -> None:
    environ = {"OPENAI_BASE_URL": " ", "OPENAI_API_BASE": "http://b"}
    assert resolve(_named("openai/m"), environ=environ).base_url == "http://b"
    environ["OPENAI_BASE_URL"] = "http://a"
    assert resolve(_named("gpt-5"), environ=environ).base_url == "http://a"


def test_no_variable_changes_what_the_public_host_is_known_by() -> None:
    spec = resolve(_named("openai/m"), environ={})
    assert spec.identity()["base_url"] == "https://api.openai.com/v1"
    assert "base_url_from" not in spec.identity()


@pytest.mark.parametrize(
    ("endpoint", "more", "url"),
    [
        ("https://x.openai.azure.com/", {}, "https://x.openai.azure.com/openai/v1"),
        (
            "https://x.openai.azure.com",
            {"OPENAI_API_VERSION": "2024-10-21"},
            "https://x.openai.azure.com/openai/deployments/d?api-version=2024-10-21",
        ),
        (
            "https://x.openai.azure.com/openai/deployments/d?api-version=1",
            {},
            "https://x.openai.azure.com/openai/deployments/d?api-version=1",
        ),
    ],
)
def test_an_azure_endpoint_becomes_the_url_of_the_deployment(
    endpoint: str, more: dict[str, str], url: str
) -> None:
    found = resolve(_named("azure/d"), environ={"AZURE_OPENAI_ENDPOINT": endpoint, **more})
    assert (found.base_url, found.base_url_from) == (url, "AZURE_OPENAI_ENDPOINT")
    assert found.headers == {"api-key": "${AZURE_OPENAI_API_KEY}"}


def test_a_url_with_a_password_is_named_and_not_kept() -> None:
    environ = {"OPENAI_BASE_URL": "http://me:secret-word@proxy/v1"}
    assert resolve(_named("openai/m"), environ=environ).base_url == "${OPENAI_BASE_URL}"


def test_the_key_goes_to_the_server_of_the_variable_and_the_run_says_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Event] = []
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-proxy")
    monkeypatch.chdir(tmp_path)
    with Loopback(lambda _: chat("ok")) as server:
        (tmp_path / ".env").write_text(f"OPENAI_BASE_URL={server.url}\n")
        run = bakeoff.run(
            [TASK], models=["openai/m"], output=tmp_path / "runs", listener=told.append
        )
        headers = server.requests[0].headers
    assert headers["Authorization"] == "Bearer sk-of-the-proxy"
    manifest = json.loads((run.folder / "manifest.json").read_text())
    model = manifest["candidates"][0]["model"]
    assert (model["base_url"], model["base_url_from"]) == (server.url, "OPENAI_BASE_URL")
    line = f"model 'openai/m' is asked at {server.url} (OPENAI_BASE_URL)"
    assert [e.text for e in told if isinstance(e, Notice) and e.text == line]


def test_list_models_says_where_a_variable_sends_a_provider() -> None:
    environ = {"OPENAI_API_KEY": "sk-1", "OPENAI_BASE_URL": "http://proxy:1/v1"}
    environ["OLLAMA_HOST"] = "127.0.0.1:9"
    notes = {line.name: line.note for line in inspection.models(environ=environ).models}
    assert notes["openai/NAME"].endswith(
        "its key is set; asked at http://proxy:1/v1 (OPENAI_BASE_URL)"
    )


def test_a_variable_that_is_no_url_is_refused_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "proxy:1")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-1")
    (tmp_path / "s.json").write_text('{"tests": [{"id": "a", "prompt": "hi"}]}')
    assert call(["run", "s.json", "-m", "anthropic/m"]) == 1
    assert (
        "'proxy:1' (of the variable ANTHROPIC_BASE_URL) is no base URL" in capsys.readouterr().err
    )
