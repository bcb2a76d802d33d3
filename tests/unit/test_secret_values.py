"""Which names and values are taken for secrets, and which are not."""

from typing import Any

import pytest

from bakeoff._lib.redact import (
    MASK,
    environment_secrets,
    header_secrets,
    public_settings,
    public_url,
    public_word,
    setting_secrets,
    url_secrets,
)
from bakeoff.core.candidate import AgentSpec, ModelSpec


@pytest.mark.parametrize(
    ("url", "public"),
    [
        ("http://h:80/v1", "http://h:80/v1"),
        ("http://u:p%40ss@h/v1", f"http://{MASK}@h/v1"),
        ("http://token@h/v1", f"http://{MASK}@h/v1"),
        ("https://h/v1?key=abc&alt=sse", f"https://h/v1?key={MASK}&alt=sse"),
        ("https://h/v1?api-version=2024-10-21", "https://h/v1?api-version=2024-10-21"),
        ("https://h/v1?v=9f8e7d6c5b4a3f2e", f"https://h/v1?v={MASK}"),
        ("http://${U}:${P}@h/v1?key=${K}", "http://${U}:${P}@h/v1?key=${K}"),
        ("${HOST:-http://127.0.0.1:11434}", "${HOST:-http://127.0.0.1:11434}"),
        ("http://[::1]:8000/v1", "http://[::1]:8000/v1"),
        (f"http://{MASK}@h/v1?key={MASK}", f"http://{MASK}@h/v1?key={MASK}"),
        ("localhost:8000/v1?token=x", f"localhost:8000/v1?token={MASK}"),
        ("", ""),
    ],
)
def test_a_url_is_shown_without_its_secrets(url: str, public: str) -> None:
    assert public_url(url) == public
    assert public_url(public) == public


def test_the_secrets_of_a_url_are_known_as_written_and_decoded() -> None:
    found = set(url_secrets("http://user:p%40ss%2Fword@h/v1?sig=a%2Bb%20c&alt=sse"))
    assert {"p%40ss%2Fword", "p@ss/word", "user:p@ss/word", "a%2Bb%20c", "a+b c"} <= found
    assert "user" not in found
    assert "sse" not in found


def test_variables_are_secrets_by_name_or_by_form_and_ordinary_ones_are_not() -> None:
    ordinary = {
        "MODE": "thorough",
        "MAX_TOKENS": "200000",
        "TOKENIZERS_PARALLELISM": "disabled",
        "GIT_AUTHOR_NAME": "Somebody",
        "MODEL": "claude-sonnet-4-20250514",
        "OTHER_MODEL": "Qwen/Qwen2.5-Coder-7B-Instruct",
        "PYTHONPATH": "/opt/a1b2c3d4e5f6a7b8/lib",
        "URL": "http://localhost:8000/v1",
    }
    secret = {
        "GITHUB_TOKEN": "short1",
        "OPENAI_API_KEY": "anything",
        "DB_PASSWORD": "hunter2",
        "X": "ghp_aB3dE5fG7hI9",
        "Y": "0f1e2d3c4b5a6978",
        "DATABASE": "postgres://u:in-the-url@h/x",
    }
    assert set(environment_secrets(ordinary)) == set()
    found = set(environment_secrets(secret))
    assert {*list(secret.values())[:5], "in-the-url"} <= found


def test_a_header_tells_its_words_and_what_is_encoded_in_them() -> None:
    assert set(header_secrets("Bearer abcdef")) == {"abcdef"}
    assert "s3cret!" in set(header_secrets("Basic dXNlcjpzM2NyZXQh"))
    assert "abc123" in set(header_secrets("sid=abc123; theme=dark"))


def test_settings_are_looked_at_in_depth() -> None:
    settings: dict[str, Any] = {
        "extra_body": {"api_key": "one"},
        "environment": {"A_TOKEN": "two"},
        "n": 1,
    }
    assert set(setting_secrets(settings)) == {"one", "two"}
    public = {"extra_body": {"api_key": MASK}, "environment": {"A_TOKEN": MASK}, "n": 1}
    assert public_settings(settings) == public


def test_words_of_a_command_line_are_shown_without_secrets() -> None:
    words = [
        "run",
        "--base-url=http://u:p@h",
        "http://u@h",
        "models.0.api_key=x",
        "limits.time_s=3",
    ]
    assert [public_word(word) for word in words] == [
        "run",
        f"--base-url=http://{MASK}@h",
        f"http://{MASK}@h",
        f"models.0.api_key={MASK}",
        "limits.time_s=3",
    ]


def test_a_candidate_is_the_same_one_with_another_key() -> None:
    def model(url: str) -> ModelSpec:
        return ModelSpec(provider="openai-compatible", name="m", base_url=url)

    assert model("http://h/v1?key=a").identity() == model("http://h/v1?key=b").identity()
    assert model("http://u:a@h/v1").identity() == model(f"http://{MASK}@h/v1").identity()
    assert model("http://h/v1").identity() != model("http://h/v2").identity()
    one, other = (AgentSpec(environment={"A_TOKEN": t, "MODE": "x"}) for t in ("1", "2"))
    assert one.identity() == other.identity()
    assert one.identity() != AgentSpec(environment={"A_TOKEN": "1", "MODE": "y"}).identity()
