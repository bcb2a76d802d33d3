"""An answer of many megabytes: held in few copies, and refused where it is larger than allowed."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import bakeoff
from bakeoff.core.errors import ProviderError
from bakeoff.core.outcome import Completion, Request
from bakeoff.core.task import Message
from bakeoff.models.adapters.openai_compatible import build
from bakeoff.scorers.text import single_spaced, word_count
from support.loopback import Loopback, chat

_TEXT = "hello world 12 "
_MIB = 1 << 20
_CLIENT = """
import json, resource, sys
import bakeoff
from bakeoff.app import run_async  # what a run imports is no part of the measurement

url, output, scorer = sys.argv[1:]

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

def run(name):
    task = bakeoff.Task(
        id=name,
        messages=(bakeoff.Message(role="user", content=name),),
        target="12",
        scorers=(bakeoff.ScorerSpec(name=scorer),),
    )
    (record,) = bakeoff.run([task], models=["m"], base_url=url, output=output).trials()
    return len(record.attempt.outcome.answer)

run("small")
before = peak()
length = run("large")
print(json.dumps([length, peak() - before]))
"""


@pytest.mark.parametrize(("scorer", "most"), [("includes", 6.0), ("reasoning", 6.0)])
def test_a_large_answer_is_in_memory_a_few_times_only(
    tmp_path: Path, scorer: str, most: float
) -> None:
    large = chat(_TEXT * (24 * _MIB // len(_TEXT)))
    with Loopback(lambda asked: chat("ok") if asked.prompt == "small" else large) as server:
        done = subprocess.run(
            [sys.executable, "-c", _CLIENT, server.url, str(tmp_path), scorer],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
    length, grown = json.loads(done.stdout)
    assert length > 24 * _MIB * 0.99
    assert grown / len(large.body) < most


def _ask(server: Loopback, **settings: Any) -> Completion:
    async def main() -> Completion:
        spec = bakeoff.ModelSpec(
            provider="openai-compatible", name="m", base_url=server.url, settings=settings
        )
        model = build(spec)
        try:
            return await model.complete(Request(messages=(Message(role="user", content="?"),)))
        finally:
            await model.close()

    return asyncio.run(main())


def test_the_largest_answer_can_be_set_and_the_refusal_names_the_setting() -> None:
    with Loopback(lambda _: chat("x" * 3 * _MIB)) as server:
        assert len(_ask(server, max_answer_mib=4).text) == 3 * _MIB
        with pytest.raises(ProviderError, match=r"larger than 2 MiB; `max_answer_mib`"):
            _ask(server, max_answer_mib=2)


@pytest.mark.parametrize(
    "text",
    ["", " ", "a", " a\n b ", "a b " * 700_000, "a" * 3_000_000, " " * 3_000_000, "x\u2003y"],
)
def test_a_long_text_has_the_words_that_a_short_one_has(text: str) -> None:
    assert single_spaced(text) == " ".join(text.split())
    assert word_count(text) == len(text.split())
