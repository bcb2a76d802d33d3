"""models_config.yaml, and how a mistake in it is told."""

from pathlib import Path

import pytest

from bakeoff.core.candidate import EndpointLimits
from bakeoff.core.errors import UsageError
from bakeoff.formats.models_file import ModelsConfig, read_models_file

WHOLE = """\
models:
  - name: "gpt-4"
    provider: "openai"
    display_name: "GPT-4"
    enabled: true
    api_key: "${OPENAI_API_KEY}"
    settings:
      temperature: 0.7
      max_tokens: 2048
      timeout: 60
      max_retries: 2
  - name: llama3:8b
    provider: ollama
    base_url: http://127.0.0.1:11434
  - name: claude-3-opus
    provider: anthropic
    enabled: no

batch_settings:
  default_timeout: 900
  save_intermediate: true
  max_parallel: 2
  retry_on_failure: true
  max_retries: 3
  show_progress: true
  verbose: false

categories:
  fast: [mistral, "llama3:8b"]
  powerful:
    - gpt-4
  coding_specialized:

endpoints:
  http://127.0.0.1:11434: {max_concurrency: 2}
  openai: {rpm: 500, tpm: 200000}
"""


def read(tmp_path: Path, text: str | bytes) -> ModelsConfig:
    path = tmp_path / "models_config.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_models_file(path)


def mistake(tmp_path: Path, text: str | bytes) -> str:
    with pytest.raises(UsageError) as caught:
        read(tmp_path, text)
    return str(caught.value).removeprefix(str(tmp_path / "models_config.yaml"))


def test_enabled_models_become_specs_and_their_settings_parameters(tmp_path: Path) -> None:
    gpt, llama = read(tmp_path, WHOLE).models
    assert gpt.full_name == "openai/gpt-4"
    assert gpt.label == "GPT-4"
    assert gpt.api_key == "${OPENAI_API_KEY}"
    assert gpt.parameters == {"temperature": 0.7, "max_tokens": 2048}
    assert llama.full_name == "ollama/llama3:8b"
    assert llama.base_url == "http://127.0.0.1:11434"


def test_settings_of_the_transport_are_not_sent_to_the_model(tmp_path: Path) -> None:
    gpt, _ = read(tmp_path, WHOLE).models
    assert gpt.settings == {"timeout_s": 60, "max_retries": 2}


def test_disabled_models_are_known_by_name_only(tmp_path: Path) -> None:
    assert read(tmp_path, WHOLE).disabled == ("claude-3-opus",)


def test_batch_settings_and_categories_are_read(tmp_path: Path) -> None:
    config = read(tmp_path, WHOLE)
    assert (config.batch.default_timeout, config.batch.max_parallel) == (900, 2)
    assert config.batch.attempts == 4
    assert config.categories == {
        "fast": ("mistral", "llama3:8b"),
        "powerful": ("gpt-4",),
        "coding_specialized": (),
    }


def test_limits_of_whole_endpoints_are_read(tmp_path: Path) -> None:
    assert read(tmp_path, WHOLE).endpoints == {
        "http://127.0.0.1:11434": EndpointLimits(max_concurrency=2),
        "openai": EndpointLimits(rpm=500, tpm=200_000),
    }
    assert "max_concurency" in mistake(tmp_path, "endpoints: {openai: {max_concurency: 2}}")


def test_retries_count_only_where_they_are_wanted(tmp_path: Path) -> None:
    assert read(tmp_path, "batch_settings: {max_retries: 5}").batch.attempts == 1


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "models:\n# - name: gpt-4\n"])
def test_a_file_with_everything_commented_out_is_no_mistake(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, text).models == ()


def test_an_anchor_shares_settings(tmp_path: Path) -> None:
    text = """\
models:
  - &base {name: a, provider: ollama, settings: {temperature: 0}}
  - {<<: *base, name: b}
"""
    a, b = read(tmp_path, text).models
    assert (a.name, b.name) == ("a", "b")
    assert b.parameters == {"temperature": 0}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "models:\n  - name: a\n    providr: openai\n",
            ":3: unknown key 'providr'; did you mean 'provider'?",
        ),
        ("modles: []\n", ":1: unknown key 'modles'; did you mean 'models'?"),
        (
            "models: []\nbatch_settings:\n  max_parallel: 2\n  max_retry: 1\n",
            ":4: unknown key 'max_retry'; did you mean 'max_retries'?",
        ),
        (
            "batch_settings:\n  verbose: false\n  max_parallel: many\n",
            ":3: key 'batch_settings.max_parallel': a whole number is expected, not a text",
        ),
        (
            "models:\n  - name: a\n    settings:\n      max_tokens: '10'\n",
            ":4: key 'models[0].settings.max_tokens': a whole number is expected, not a text",
        ),
        ("models:\n  - provider: openai\n", ":2: key 'models[0]': "),
        (
            "models:\n  - name: a\n    name: b\n",
            ":3: key 'models[0].name' is repeated here; it was first on line 2",
        ),
        (
            "models:\n  - name: [a\n",
            ":3: not valid YAML: expected ',' or ']', but got '<stream end>' (column 1)",
        ),
        ("categories:\n  yes: [a]\n", ":2: write the key 'yes' in quotes"),
        (
            "models:\n  - name: a\n    settings:\n      since: 2024-01-01\n",
            ":4: key 'models[0].settings.since': a date is not read here; write it in quotes",
        ),
        (
            "models:\n  - name: a\n    settings: {temperature: .nan}\n",
            ":3: key 'models[0].settings.temperature': nan is not a number",
        ),
        ("- a\n- b\n", ": write keys in it, such as `models:`, not a bare value"),
        ("models: !!python/object/apply:os.getcwd []\n", ":1: not valid YAML: could not determine"),
        ("a: 1\n---\nb: 2\n", ":2: not valid YAML: but found another document"),
        (b"models: \xff\n", " is not UTF-8 text (byte 8)"),
        ("models: &a [*a]\n", ": nested more than 200 levels deep"),
        ("models: " + "[" * 5000, ": nested more than 200 levels deep"),
        (
            "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
            + "".join(
                f"{b}: &{b} [{','.join([f'*{a}'] * 10)}]\n"
                for a, b in zip("abcde", "bcdef", strict=True)
            ),
            ": more than 100000 values, aliases written out",
        ),
    ],
)
def test_a_mistake_names_the_line_and_the_key(tmp_path: Path, text: str, message: str) -> None:
    assert mistake(tmp_path, text).startswith(message)


def test_all_keys_that_stand_twice_are_told(tmp_path: Path) -> None:
    first, second = mistake(tmp_path, "models:\n  - name: a\n    name: b\nmodels: []\n").split("\n")
    assert first == ":3: key 'models[0].name' is repeated here; it was first on line 2"
    assert second.endswith(":4: key 'models' is repeated here; it was first on line 1")


def test_a_file_that_is_not_there_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        read_models_file(tmp_path / "none.yaml")
