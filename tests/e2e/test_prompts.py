"""Prompts as candidates: compared as models are, filled in from the tasks, checked before a request."""

import csv
import json
import shlex
from itertools import pairwise
from pathlib import Path

import pytest

import bakeoff
from bakeoff import Message, PromptSpec, Request, ScorerSpec, Task, UsageError
from bakeoff.app.run import plan
from support.cli import bakeoff as command
from support.coding_tasks import write_fix_add
from support.doc_blocks import ROOT, blocks
from support.loopback import Asked, Loopback, Reply, chat

SHORT, LONG = "Is {{item}} fine? Answer yes or no.", "Think first.\nIs {{item}} fine?"
ROWS = 200
RUN_FILE = """
suites = ["suite.json"]
[[prompts]]
name = "short"
text = "Is {{item}} fine? Answer yes or no."
[[prompts]]
file = "long.txt"
"""


def row(number: int) -> dict[str, object]:
    return {"id": f"row-{number}", "vars": {"item": f"item {number:03}"}, "expected": "yes"}


def scripted(name: str, *, short: str, long: str) -> str:
    """A model that is right where the last digits of an item match, by the prompt."""
    rules = ((f"Think first[\\s\\S]*item {long}", "yes"), (f"^Is item {short}.*Answer", "yes"))
    written = ", ".join(
        f"{{ match = {json.dumps(match)}, reply = {json.dumps(reply)} }}" for match, reply in rules
    )
    return f"""
[[models]]
model = "scripted/{name}"
settings = {{ replies = ["no"], rules = [{written}] }}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    suite = {"tests": [row(number) for number in range(ROWS)]}
    (tmp_path / "suite.json").write_text(json.dumps(suite))
    (tmp_path / "short.txt").write_text(f"{SHORT}\n")
    (tmp_path / "long.txt").write_text(f"{LONG}\n")
    models = "".join(
        scripted(name, short=f"\\d\\d[0-{right}]", long=f"\\d\\d[0-{right + 2}]")
        for name, right in (("poor", 3), ("fair", 4), ("good", 5))
    )
    (tmp_path / "run.toml").write_text(RUN_FILE + models)
    (tmp_path / "models.toml").write_text(f'suites = ["suite.json"]\n{models}')
    return tmp_path


def scores(folder: Path, *args: str) -> dict[str, float]:
    ended = command("run", *args, "--json", "--output", str(folder / "runs"), cwd=folder)
    assert ended.code == 0, ended.err
    summary = json.loads(ended.out)
    return {c["candidate"]: c["total"]["score"]["mean"] for c in summary["candidates"]}


EXPECTED = {
    f"{prompt} · scripted/{model}": pytest.approx((right + more + 1) / 10)
    for model, right in (("poor", 3), ("fair", 4), ("good", 5))
    for prompt, more in (("short", 0), ("long", 2))
}


def test_every_prompt_is_run_with_every_model_and_its_order_changes_nothing(folder: Path) -> None:
    assert scores(folder, "run.toml") == EXPECTED
    given = ("models.toml", "--prompt", "short.txt", "--prompt", "long.txt")
    swapped = ("models.toml", "--prompt", "long.txt", "--prompt", "short.txt")
    assert scores(folder, *given) == scores(folder, *swapped) == EXPECTED
    plans = {entry["plan"] for entry in manifests(folder)}
    assert len(plans) == 1


def test_prompts_are_compared_across_models_and_models_across_prompts(folder: Path) -> None:
    ended = command("run", "run.toml", cwd=folder)
    text = ended.out
    assert "prompt 'long' is better than 'short' across 3 models: +0.200 [" in text
    assert "model 'scripted/good' is better than 'scripted/poor' across 2 prompts: +0.200 [" in text
    assert "verdict: long · scripted/good is the best of 6" in text
    assert "\nprompts: 'long' is better than 'short' across 3 models\n" in text
    (summary,) = folder.glob("runs/*/summary.json")
    prompts, models = json.loads(summary.read_text())["main_effects"]
    assert (prompts["factor"], prompts["other"], prompts["across"]) == ("prompt", "model", 3)
    assert [pair["better"] for pair in prompts["comparison"]["pairs"]] == ["long"]
    ranked = [rank["candidate"] for rank in models["comparison"]["ranks"]]
    assert ranked == ["scripted/good", "scripted/fair", "scripted/poor"]
    assert command("report", "latest", "--format", "html,md", cwd=folder).code == 0
    for file in ("report.html", "report.md"):
        (page,) = folder.glob(f"runs/*/{file}")
        assert "Main effects" in page.read_text()
        assert "is better than" in page.read_text()


def manifests(folder: Path) -> list[dict[str, object]]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob("runs/*/manifest.json"))]


def test_a_typo_in_a_variable_is_an_error_before_any_request(folder: Path) -> None:
    (folder / "long.txt").write_text("Think first.\nIs {{itme}} fine?\n")
    ended = command("run", "run.toml", cwd=folder)
    assert ended.code == 1
    assert ended.err == (
        f"bakeoff: error: {Path('long.txt')}:2: {{{{itme}}}}: no task has a value for it; did you mean "
        "'item'?\n"
    )
    assert not (folder / "runs").exists()


def test_a_run_with_prompts_resumes_shows_and_is_graded_again(folder: Path) -> None:
    options = ["--prompt", "short.txt", "--prompt", "long.txt", "--limit", "2"]
    assert command("run", "models.toml", *options, cwd=folder).code == 0
    again = command("run", "models.toml", *options[:-1], "3", "--resume", "latest", cwd=folder)
    assert again.code == 0
    assert "18 trials" in again.err
    shown = command("show", "latest", "row-1@long · scripted/good#0", cwd=folder)
    assert shown.out.startswith("user\nThink first.\nIs item 001 fine?\n")
    assert command("run", "--resume", "latest", cwd=folder).code == 0
    assert command("eval", "latest", cwd=folder).code == 0
    assert command("report", "latest", "--format", "csv,html", cwd=folder).code == 0
    (page,) = folder.glob("runs/*/report.html")
    assert "Think first.\nIs item 001 fine?" in page.read_text()
    (table,) = folder.glob("runs/*/report.csv")
    questions = {row["question"] for row in csv.DictReader(table.read_text().splitlines())}
    assert len(questions) == 6  # two prompts for each of three rows


def test_a_recording_with_prompts_is_replayed(folder: Path) -> None:
    options = ("models.toml", "--prompt", "short.txt", "--prompt", "long.txt", "--limit", "4")
    first = scores(folder, *options, "--record", "tape")
    assert scores(folder, *options, "--replay", "tape") == first


def test_the_commands_of_the_guide_run_as_they_stand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = list(blocks(ROOT / "docs/guides/prompts.md"))
    (suite,) = [block.text for block in page if block.language == "json"]
    (run_file,) = [block.text for block in page if block.language == "toml"]
    (tmp_path / "capitals.json").write_text(suite)
    (tmp_path / "run.toml").write_text(run_file)
    ollama = json.dumps({"model": "m", "message": {"content": "Paris"}, "done": True}).encode()

    def answer(asked: Asked) -> Reply:
        if asked.path.startswith("/api/"):
            return Reply(headers={"Content-Type": "application/json"}, body=ollama)
        return chat("Paris")

    with Loopback(answer) as server:
        monkeypatch.setenv("OLLAMA_HOST", server.url.removesuffix("/v1"))
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "a-key-of-nobody")
        for session in (block.text for block in page if block.language == "console"):
            for line, after in pairwise([*session.splitlines(), ""]):
                if line.startswith("$ echo"):
                    words = shlex.split(line[2:])
                    (tmp_path / words[3]).write_text(f"{words[1]}\n")
                elif line.startswith("$ bakeoff"):
                    ended = command(*shlex.split(line[2:])[1:], cwd=tmp_path)
                    is_error = after.startswith("bakeoff: error")
                    assert ended.err == f"{after}\n" if is_error else ended.code == 0, ended.err
        assert command("run", "run.toml", "--dry-run", cwd=tmp_path).code == 0


def test_a_prompt_wraps_the_instruction_of_a_coding_task(tmp_path: Path) -> None:
    asked: list[str] = []

    def model(request: Request) -> str:
        asked.append("\n".join(m.content for m in request.messages))
        return "done"

    task = write_fix_add(tmp_path)
    wrapped = "Be quick.\n{{prompt}}\nThen stop."
    bakeoff.run(
        task, models=[model], agents=["shell"], prompts=[wrapped], sandbox="local", output=tmp_path
    )
    assert "Be quick.\n`add` in calc.py subtracts. Repair it.\n\nThen stop." in asked[0]


# --- in Python ------------------------------------------------------------------------------------


def asked_with(prompts: list[str | PromptSpec], task: Task, tmp_path: Path) -> list[list[str]]:
    requests: list[list[str]] = []

    def model(request: Request) -> str:
        requests.append([f"{m.role}: {m.content}" for m in request.messages])
        return "yes"

    bakeoff.run([task], models=[model], prompts=prompts, output=tmp_path, parallel=1)
    return requests


def said(role: str, content: str) -> Message:
    return Message(role=role, content=content)


def test_a_prompt_wraps_the_last_message_and_replaces_the_system_message(tmp_path: Path) -> None:
    talk = (said("system", "Be kind."), said("user", "Hi"), said("assistant", "Yes?"), said("user", "2+2"))  # fmt: skip
    task = Task(id="t", messages=talk, scorers=(ScorerSpec(name="includes"),), target="yes")
    wrapped = PromptSpec(name="w", text="Q: {{prompt}}?", system="{{system}} Be brief.")
    only_system = PromptSpec(name="s", system="Be rude.")
    assert asked_with([wrapped, only_system], task, tmp_path) == [
        ["system: Be rude.", "user: Hi", "assistant: Yes?", "user: 2+2"],
        ["system: Be kind. Be brief.", "user: Hi", "assistant: Yes?", "user: Q: 2+2?"],
    ]


def test_a_value_of_a_row_wins_over_the_tasks_own_prompt_and_is_never_expanded(
    tmp_path: Path,
) -> None:
    task = Task(id="t", messages=(said("user", "own"),), vars={"prompt": "{{x}}", "x": "no"})
    assert asked_with(["<{{prompt}}>"], task, tmp_path) == [["user: <{{x}}>"]]
    literal = PromptSpec(text="<{{prompt}}>", literal=True)
    assert asked_with([literal], task, tmp_path / "b") == [["user: <{{prompt}}>"]]


def test_a_variable_that_some_tasks_lack_is_an_error_unless_it_is_guarded(tmp_path: Path) -> None:
    full = Task(id="a", messages=(), vars={"q": 1, "hint": "h"})
    tasks = [full, Task(id="b", messages=(), vars={"q": 2})]
    with pytest.raises(
        UsageError, match=r"{{hint}}: task 'b' has no value for it; .* write {{ hint \| default"
    ):
        plan(tasks, models=["scripted/echo"], prompts=["{{q}} {{hint}}"])
    guarded = "{{q}}{% if hint is defined %} {{hint}}{% endif %}"
    run_ = bakeoff.run(tasks, models=["scripted/echo"], prompts=[guarded], output=tmp_path)
    answers = [r.attempt.outcome.answer for r in run_.trials() if r.attempt.outcome]
    assert answers == ["1 h", "2"]
    assert [c.id for c in run_.plan.candidates] == ["scripted/echo"]  # the only prompt, unnamed


def test_a_prompt_without_a_variable_asks_every_task_the_same_and_is_refused() -> None:
    tasks = [Task(id=name, messages=(said("user", name),)) for name in "ab"]
    with pytest.raises(UsageError, match=r"a variable has two braces: \{\{prompt\}\}"):
        plan(tasks, models=["scripted/echo"], prompts=["Answer {prompt}."])
    with pytest.raises(UsageError, match="all 2 tasks would be asked the same"):
        plan(tasks, models=["scripted/echo"], prompts=["Answer."])


def test_a_suite_without_texts_is_valid_and_validate_says_what_it_needs(folder: Path) -> None:
    ended = command("validate", "suite.json", cwd=folder)
    assert ended.code == 0, ended.err
    assert "its tests have no text of their own: run it with --prompt" in ended.out
    assert "item: item 007" in command("list", "tasks", "suite.json", cwd=folder).out


def test_tasks_without_a_text_need_a_prompt() -> None:
    with pytest.raises(UsageError, match=r"no text of its own: give a prompt, .*{{q}}"):
        plan([Task(id="a", messages=(), vars={"q": 1})], models=["scripted/echo"])


def test_a_file_that_is_not_there_is_not_sent_as_a_text(tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_text("{{q}}")
    with pytest.raises(UsageError, match=r"shrt\.txt does not exist; did you mean .*short\.txt"):
        plan(
            [Task(id="a", messages=(), vars={"q": 1})],
            models=["scripted/echo"],
            prompts=[str(tmp_path / "shrt.txt")],
        )


def test_candidates_without_prompts_keep_their_digests() -> None:
    candidate = bakeoff.Candidate(id="a", model=bakeoff.ModelSpec(provider="p", name="m"))
    assert "prompt" not in candidate.identity()


def test_a_late_row_that_a_prompt_cannot_be_filled_in_for_is_a_fault_of_its_trial(
    tmp_path: Path,
) -> None:
    tasks = [Task(id=f"t{n}", messages=(), vars={"n": n}, target="1") for n in range(1_002, 0, -1)]
    tasks.append(Task(id="zero", messages=(), vars={"n": 0}, target="1"))
    run = bakeoff.run(tasks, models=["scripted/echo"], prompts=["{{ 7 // n }}"], output=tmp_path)
    buckets = run.summary().buckets
    assert (buckets.planned, buckets.faults) == (1_003, 1)
    (record,) = run.attempts("zero@scripted/echo#0")[-1:]
    assert record.attempt.fault is not None
    assert "ZeroDivisionError" in record.attempt.fault.message
    assert run.asked(record).trouble is not None
    with pytest.raises(UsageError, match=r"ZeroDivisionError: .* \(task 'zero'\)"):
        bakeoff.run(tasks[-1:], models=["scripted/echo"], prompts=["{{ 7 // n }}"], output=tmp_path)


def test_an_adaptive_run_with_prompts_ends_early_and_has_no_main_effects(folder: Path) -> None:
    ended = command("run", "run.toml", "--adaptive", "--json", cwd=folder)
    summary = json.loads(ended.out)
    assert summary["buckets"]["not_needed"] > 0
    assert summary["main_effects"] == []
    assert summary["pairwise"]["ranks"][0]["candidate"] == "long · scripted/good"
