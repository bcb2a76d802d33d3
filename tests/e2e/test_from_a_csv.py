"""From a CSV to a decision: 200 rows, two prompts, three models of known quality, one call."""

import csv
import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path

import pytest

import bakeoff
from bakeoff import Request, UsageError
from support.cli import bakeoff as command
from support.doc_blocks import blocks

ROOT = Path(__file__).parents[2]
DATA = ROOT / "examples" / "data"
with (DATA / "questions.csv").open(encoding="utf-8") as file:
    ANSWERS = {row["question"]: row["answer"] for row in csv.DictReader(file)}
SKILLS = {"weak": 0.3, "fair": 0.55, "strong": 0.8}
STEPS_HELP = 0.15


def _model(name: str) -> Callable[[Request], str]:
    """Return a model that knows a fixed share of the answers, and more where it may think."""

    def model(request: Request) -> str:
        asked = request.messages[-1].content
        question = next(question for question in ANSWERS if question in asked)
        skill = SKILLS[name] + STEPS_HELP * ("step by step" in asked)
        share = int(sha256(question.encode()).hexdigest()[:8], 16) / 16**8
        return f"It is {ANSWERS[question]}" if share < skill else "I do not know"

    model.__qualname__ = name
    return model


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(DATA, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _run(prompts: Sequence[str]) -> bakeoff.Run:
    models = [_model(name) for name in SKILLS]
    return bakeoff.run("questions.csv", models=models, prompts=[Path(name) for name in prompts])


def _verdicts(run: bakeoff.Run) -> tuple[dict[str, float], dict[str, list[str]]]:
    data = json.loads((run.folder / "summary.json").read_text())
    means = {c["candidate"]: c["total"]["score"]["mean"] for c in data["candidates"]}
    effects = {
        effect["factor"]: sorted(
            f"{pair['better']} of {sorted((pair['first'], pair['second']))}"
            for pair in effect["comparison"]["pairs"]
        )
        for effect in data["main_effects"]
    }
    return means, effects


def test_the_verdicts_are_right_whatever_the_order_of_the_prompts(folder: Path) -> None:
    means, effects = _verdicts(_run(["short.txt", "steps.txt"]))
    assert len(means) == 6
    for name, skill in SKILLS.items():
        (short,) = (m for c, m in means.items() if name in c and "short" in c)
        (steps,) = (m for c, m in means.items() if name in c and "steps" in c)
        assert short == pytest.approx(skill, abs=0.1)
        assert steps - short == pytest.approx(STEPS_HELP, abs=0.1)
    assert effects["prompt"] == ["steps of ['short', 'steps']"]
    assert [line.split(" of ")[0] for line in effects["model"]].count("strong") == 2
    swapped = _verdicts(_run(["steps.txt", "short.txt"]))
    assert swapped == (means, effects)


def test_a_typo_in_a_variable_is_an_error_before_any_request(folder: Path) -> None:
    asked: list[Request] = []

    def model(request: Request) -> str:
        asked.append(request)
        return "x"

    Path("typo.txt").write_text("Say:\n{{qestion}}\n")
    with pytest.raises(UsageError, match=r"typo\.txt:2: .*qestion.*did you mean 'question'"):
        bakeoff.run("questions.csv", models=[model], prompts=["typo.txt"])
    assert not asked
    assert not Path("runs").exists()


def test_one_command_without_any_other_file(folder: Path) -> None:
    line = "run questions.csv --prompt 'Answer: {{question}}' --expected answer --model scripted/echo --json"
    ended = command(*shlex.split(line))
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["candidates"][0]["total"]["score"]["tasks"] == 200


def test_a_subset_names_its_parent_and_failures_are_run_again(folder: Path) -> None:
    first = bakeoff.run("questions.csv", models=[_model("fair")], where="lang == 'de'", sample=30)
    assert first.manifest.selection == {
        "where": "lang == 'de'", "sample": 30, "seed": 0, "parent": "questions",
    }  # fmt: skip
    failed = {row.task_id for row in first.rows() if not row.passed}
    again = bakeoff.run("questions.csv", models=[_model("strong")], failed_in=first.id)
    assert {row.task_id for row in again.rows()} == failed
    assert again.manifest.selection == {"failed_in": first.id, "parent": "questions"}
    third = bakeoff.run("questions.csv", models=[_model("fair")], failed_in=first.id)
    with pytest.raises(UsageError, match="has changed"):
        bakeoff.run("questions.csv", models=[_model("fair")], changed_in=(first.id, third.id))


GUIDE = ROOT / "docs" / "guides" / "from-a-csv.md"
_MOMENT = re.compile(r"\d{8}-\d{6}-")


def _said(text: str) -> str:
    """Return *text* as it can be compared: no times of runs, and lines wrapped anywhere."""
    return " ".join(_MOMENT.sub("RUN-", text).split())


def test_the_guide_is_a_session_that_runs_and_says_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    commands = 0
    for block in blocks(GUIDE):
        for step in re.split(
            r"^\$ ", block.text if block.language == "console" else "", flags=re.MULTILINE
        ):
            line, _, shown = step.partition("\n")
            words = shlex.split(line)
            if words[:1] == ["cd"]:
                monkeypatch.chdir(words[1])
                continue
            if words[:1] == ["bakeoff"]:
                ended = command(*words[1:])
                assert ended.code == 0, ended.err
                printed, commands = _said(ended.err + ended.out), commands + 1
            elif words:
                printed = _said(
                    subprocess.run(words, capture_output=True, text=True, check=True).stdout
                )
            for expected in filter(None, map(_said, shown.split("\n"))):
                if expected != "...":
                    before, found, printed = printed.partition(expected)
                    assert found, f"{line}: {expected!r} is not in what follows: {before}"
    assert commands >= 10
