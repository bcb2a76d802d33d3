"""Three models that know a fixed share of the answers in questions.csv: no key, no server.

They stand in for yours: `--model pupils:strong` instead of `--model ollama/qwen3:8b`.
"""

import csv
from hashlib import sha256
from pathlib import Path

from bakeoff import Request

with Path(__file__).with_name("questions.csv").open(encoding="utf-8") as file:
    ANSWERS = {row["question"]: row["answer"] for row in csv.DictReader(file)}


def weak(request: Request) -> str:
    return _answer(request, name="weak", skill=0.3)


def fair(request: Request) -> str:
    return _answer(request, name="fair", skill=0.55)


def strong(request: Request) -> str:
    return _answer(request, name="strong", skill=0.8)


def _answer(request: Request, *, name: str, skill: float) -> str:
    """Answer right as often as *skill* says, and more often where the prompt lets it think."""
    asked = request.messages[-1].content
    question = next(question for question in ANSWERS if question in asked)
    if "step by step" in asked:
        skill += 0.15
    luck = int(sha256(f"{name} {question}".encode()).hexdigest()[:8], 16) / 16**8
    return f"It is {ANSWERS[question]}." if luck < skill else "I do not know."
