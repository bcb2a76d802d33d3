"""What a model's name means, and what its secrets are."""

from pathlib import Path
from typing import Any

import pytest

from bakeoff._lib.redact import MASK, Redactor
from bakeoff.app.known_secrets import learn_literals
from bakeoff.app.model_names import how_understood, resolve, with_secrets
from bakeoff.core.candidate import ModelSpec, Origin
from bakeoff.core.errors import UsageError


def _named(name: str, **rest: Any) -> ModelSpec:
    return ModelSpec(provider="", name=name, **rest)


@pytest.mark.parametrize(
    ("name", "provider", "model"),
    [
        ("embedded", "embedded", "smollm2-135m"),
        ("embedded/other", "embedded", "other"),
        ("scripted", "scripted", "echo"),
        ("openai/gpt-x", "openai", "gpt-x"),
        ("json:loads", "python", "json:loads"),
    ],
)
def test_a_name_says_who_provides_it(name: str, provider: str, model: str) -> None:
    found = resolve(_named(name))
    assert (found.provider, found.name) == (provider, model)


def test_a_reference_is_one_where_its_module_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "mine.py").write_text("raise RuntimeError('imported')\n")
    monkeypatch.chdir(tmp_path)
    assert resolve(_named("pkg/mine.py:answer")).provider == "python"
    assert resolve(_named("llama3:latest")).full_name == "ollama/llama3:latest"


def test_with_a_base_url_a_name_is_sent_as_it_stands() -> None:
    for name in ("org/model:8b", "embedded", "llama3:8b", "scripted/echo"):
        found = resolve(_named(name), base_url="http://x/v1")
        assert (found.provider, found.name, found.label) == ("openai-compatible", name, name)
    assert resolve(_named("openai-compatible/m", base_url="http://x")).name == "m"


def test_a_label_of_ones_own_stays() -> None:
    assert resolve(_named("m", label="mine"), base_url="http://x").label == "mine"


def test_openai_has_its_place_and_its_key_by_name() -> None:
    found = resolve(_named("openai/m"))
    assert (found.base_url, found.api_key) == ("https://api.openai.com/v1", "${OPENAI_API_KEY}")


@pytest.mark.parametrize(
    ("name", "full_name"),
    [
        ("gpt-4", "openai/gpt-4"),
        ("o3", "openai/o3"),
        ("claude-3-sonnet", "anthropic/claude-3-sonnet"),
        ("gemini-pro", "google/gemini-pro"),
        ("llama3:8b", "ollama/llama3:8b"),
        ("mistral-nemo", "ollama/mistral-nemo"),
    ],
)
def test_a_bare_name_is_understood_and_it_is_said_how(name: str, full_name: str) -> None:
    found = resolve(_named(name))
    assert found.full_name == full_name
    assert full_name in (how_understood(_named(name), found) or "")


def test_a_name_with_its_provider_needs_no_word_about_it() -> None:
    for name in ("openai/gpt-4", "embedded", "scripted/echo"):
        assert how_understood(_named(name), resolve(_named(name))) is None


def test_another_dialect_keeps_its_provider_behind_another_url() -> None:
    found = resolve(_named("anthropic/claude-x"), base_url="http://proxy:1")
    assert (found.provider, found.name, found.base_url) == (
        "anthropic",
        "claude-x",
        "http://proxy:1",
    )


def test_azure_takes_its_key_in_a_header_of_its_own() -> None:
    spec = ModelSpec(provider="azure", name="d", base_url="https://x.example/openai/v1")
    found = with_secrets(resolve(spec), {"AZURE_OPENAI_API_KEY": "k-123456"}, Redactor())
    assert (found.api_key, found.headers) == (None, {"api-key": "k-123456"})


def test_where_ollama_is_may_be_said_in_the_environment() -> None:
    spec = resolve(_named("ollama/m"))
    assert with_secrets(spec, {}, Redactor()).base_url == "http://127.0.0.1:11434"
    assert with_secrets(spec, {"OLLAMA_HOST": "box:1"}, Redactor()).base_url == "box:1"


_TOO_LITTLE = [
    ("openay/x", "no provider is called 'openay' (did you mean 'openai'?)"),
    ("zzz/x", "no provider is called 'zzz' (there are: anthropic, "),
    ("openai", "which model of 'openai', such as openai/NAME?"),
    ("mistrall", "is the provider 'mistral' meant? then which model of 'mistral'"),
    ("parts/gone.py:answer", "there is no file 'parts/gone.py', neither beside the file"),
    ("json/gone.py:answer", "there is no file 'json/gone.py', neither beside the file"),
    ("gone.py:answer", "there is no file 'gone.py', neither beside the file"),
    ("", "it has no name"),
]


@pytest.mark.parametrize(("name", "why"), _TOO_LITTLE)
def test_a_name_that_says_too_little_is_refused_with_what_to_do(name: str, why: str) -> None:
    with pytest.raises(UsageError) as caught:
        resolve(_named(name))
    assert str(caught.value).startswith(f"model {name!r}: {why}")
    assert str(caught.value).endswith("or say where it is with --base-url")


def test_a_slip_in_the_name_of_a_model_of_our_own_is_answered_with_that_name_alone() -> None:
    with pytest.raises(UsageError) as caught:
        resolve(_named("embeded"))
    assert str(caught.value) == "model 'embeded': no model is called that; did you mean 'embedded'?"


def test_a_name_from_a_file_is_refused_with_its_place_and_the_key_that_file_has() -> None:
    origin = Origin.at(Path("agents/x.toml"), 2, address="api_base")
    with pytest.raises(UsageError, match=r"^agents/x\.toml:2: model 'a/b': .* with `api_base`$"):
        resolve(_named("a/b", origin=origin))


def test_secrets_are_read_late_and_the_redactor_learns_them() -> None:
    redactor = Redactor()
    spec = ModelSpec(
        provider="openai-compatible",
        name="m",
        base_url="https://${HOST}/v1",
        api_key="${KEY}",
        headers={"X-Token": "t ${KEY}", "Accept": "json"},
    )
    read = with_secrets(spec, {"HOST": "example.org", "KEY": "sk-secret-1"}, redactor)
    assert read.base_url == "https://example.org/v1"
    assert read.api_key == "sk-secret-1"
    assert read.headers == {"X-Token": "t sk-secret-1", "Accept": "json"}
    assert spec.api_key == "${KEY}"
    assert redactor.text("x sk-secret-1") == f"x {MASK}"


@pytest.mark.parametrize("empty", ["", " ", "\n"])
def test_a_variable_that_is_empty_is_named(empty: str) -> None:
    expected = r"the environment variable KEY is set, but empty; give it a value, or unset it"
    for spec in (
        _named("m", api_key="${KEY}"),
        _named("m", headers={"Authorization": "Bearer ${KEY}"}),
    ):
        with pytest.raises(UsageError, match=expected):
            with_secrets(spec, {"KEY": empty}, Redactor())


def test_an_empty_variable_with_a_default_is_the_default() -> None:
    spec = _named("m", api_key="${KEY:-anything}")
    assert with_secrets(spec, {"KEY": ""}, Redactor()).api_key == "anything"


def test_a_variable_that_is_not_set_is_named() -> None:
    spec = _named("m", api_key="${NOT_SET_ANYWHERE}")
    with pytest.raises(UsageError, match=r"NOT_SET_ANYWHERE is not set; .*\.env .*--env-file"):
        with_secrets(spec, {}, Redactor())


def test_a_key_that_was_written_out_is_redacted_too() -> None:
    redactor = Redactor()
    spec = _named(
        "m", api_key="sk-literal-1", headers={"Authorization": "Bearer abc-literal-2", "X": "plain-1"}
    )  # fmt: skip
    learn_literals(spec, redactor)
    assert redactor.text("sk-literal-1 abc-literal-2 plain-1 Bearer") == (
        f"{MASK} {MASK} plain-1 Bearer"
    )


def test_a_masked_key_is_not_sent_as_if_it_were_one() -> None:
    with pytest.raises(UsageError, match="was not kept"):
        with_secrets(_named("m", api_key=MASK), {}, Redactor())
