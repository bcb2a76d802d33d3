"""`bakeoff baseline` and `bakeoff gate`: as a pull request has them, with a real server between the runs."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import yaml

from support.cli import Ended, bakeoff
from support.loopback import Asked, Loopback, Reply, chat

TASKS = 60
ACTION = Path(__file__).parents[2] / ".github/actions/gate/action.yml"


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    return write(tmp_path, "say {}")


def write(folder: Path, prompt: str) -> Path:
    tests = [
        {"id": f"t{n:02}", "prompt": prompt.format(f"{n:02}"), "expected": f"{n:02}"}
        for n in range(TASKS)
    ]
    path = folder / "suite.json"
    path.write_text(json.dumps({"tests": tests}))
    return path


def knowing(wrong: int, *, fault: int = 0) -> Callable[[Asked], Reply]:
    """Answers of which the first are *wrong* and the last end in a fault."""

    def answer(asked: Asked) -> Reply:
        number = int(asked.prompt.split()[-1])
        if number >= TASKS - fault:
            return Reply(status=400)
        return chat("?" if number < wrong else f"{number:02}")

    return answer


def run(suite: Path, answer: Callable[[Asked], Reply], *words: str) -> Ended:
    with Loopback(answer) as server:
        return bakeoff(
            "run", suite, "--model", "m", "--base-url", server.url, *words, cwd=suite.parent
        )


def gate(folder: Path, *words: str, **env: str) -> Ended:
    ended = bakeoff("gate", "latest", *words, cwd=folder, env={**os.environ, **env})
    assert "Traceback" not in ended.err
    return ended


def with_baseline(suite: Path, wrong: int) -> None:
    assert run(suite, knowing(wrong)).code == 0
    ended = bakeoff("baseline", "set", "main", "latest", cwd=suite.parent)
    assert ended.out.startswith("baseline main: ")


def test_a_pull_request_that_makes_it_worse_fails_with_a_comment_that_says_so(
    suite: Path, tmp_path: Path
) -> None:
    with_baseline(suite, 2)
    write(tmp_path, "do say {}")  # the changed prompt
    run(suite, knowing(20))
    summary = tmp_path / "step-summary.md"
    ended = gate(
        tmp_path, "--baseline", "main", "--github",
        "--junit", str(tmp_path / "gate.xml"), "--comment", str(tmp_path / "gate.md"),
        GITHUB_STEP_SUMMARY=str(summary),
    )  # fmt: skip
    assert ended.code == 5, ended.err
    found = "surely worse than the baseline: 0.967 → 0.667, a change of "
    assert f"failed: m: {found}" in ended.out
    assert "note: 60 of the tasks differ in messages" in ended.out
    assert re.search(r"^::error title=m%3A baseline::surely worse", ended.out, re.MULTILINE)
    assert re.search(r"^gate failed: \S+ against main$", ended.out, re.MULTILINE)
    compared = bakeoff("compare", "main", cwd=tmp_path)  # a baseline is a name of a run
    assert "verdict: m: worse than before: solves 30 of 100 tasks fewer (" in compared.out
    comment = (tmp_path / "gate.md").read_text()
    assert comment.startswith("<!-- bakeoff gate -->\n### gate failed: ")
    assert f"| ❌ | m | baseline | {found}" in comment
    assert summary.read_text() == comment
    cases = ET.parse(tmp_path / "gate.xml").findall(".//testcase")
    assert [(case.get("classname"), case.find("failure") is not None) for case in cases] == [
        ("m", True)
    ]


def test_what_is_shown_not_to_be_worse_passes(suite: Path, tmp_path: Path) -> None:
    with_baseline(suite, 20)
    run(suite, knowing(10))
    ended = gate(tmp_path, "--baseline", "main", "--strict")
    assert ended.code == 0, ended.out
    assert "passed: m: not worse than the baseline by 0.02 or more: 0.667 → 0.833" in ended.out


def test_what_so_few_tasks_cannot_show_is_neither_and_says_how_many_would(
    suite: Path, tmp_path: Path
) -> None:
    with_baseline(suite, 20)
    run(suite, knowing(22))
    ended = gate(tmp_path, "--baseline", "main")
    assert ended.code == 0
    assert "not shown: m: not shown to be within 0.02 of the baseline: 0.667 → 0.633" in ended.out
    assert re.search(r"; about [\d,]+ tasks would show it", ended.out)
    assert gate(tmp_path, "--baseline", "main", "--strict").code == 6
    assert gate(tmp_path, "--baseline", "main", "--strict", "--margin", "0.3").code == 0


def test_faults_cannot_carry_a_run_through_the_gate(suite: Path, tmp_path: Path) -> None:
    with_baseline(suite, 0)
    run(suite, knowing(0, fault=15))
    ended = gate(tmp_path, "--baseline", "main", "--strict")
    assert ended.code == 6, ended.out


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["--min-score", "0.6"], 0, "passed: m: score 0.667, at least 0.6 wanted"),
        (["--min-score", "0.7"], 5, "failed: m: score 0.667, at least 0.7 wanted"),
        (["--min-pass-rate", "0.5"], 5, "20 of 60 tasks pass in less than 50%: t00 0%, t01 0%"),
        (["--max-cost", "1"], 5, "failed: m: cost unknown, at most 1 $ wanted"),
        (["--max-latency", "60"], 0, "passed: m: latency p95 "),
        (["--max-latency", "0.000001"], 5, "at most 1e-06 s wanted"),
    ],
)
def test_bounds_need_no_baseline(
    suite: Path, tmp_path: Path, words: list[str], code: int, text: str
) -> None:
    run(suite, knowing(20))
    ended = gate(tmp_path, *words)
    assert (ended.code, text in ended.out) == (code, True), ended.out


def test_a_run_under_other_limits_is_not_shown_either_way_unless_it_is_forced(
    suite: Path, tmp_path: Path
) -> None:
    with_baseline(suite, 2)
    limited = tmp_path / "limited.toml"
    limited.write_text(f'suites = ["{suite.name}"]\n[limits]\ntime_s = 77\n')
    run(limited, knowing(30))
    ended = gate(tmp_path, "--baseline", "main", "--strict")
    assert ended.code == 6
    assert (
        "not shown: m: cannot be told: different conditions: limits.time_s is not set and 77"
        in ended.out
    )
    assert gate(tmp_path, "--baseline", "main", "--force").code == 5


def test_mistakes_are_said_with_what_to_do(suite: Path, tmp_path: Path) -> None:
    run(suite, knowing(0))
    assert "'-3' is not a duration" in gate(tmp_path, "--max-latency=-3").err
    assert "nothing to check: name a baseline" in gate(tmp_path).err
    assert "'mian' is neither a baseline nor a run" in gate(tmp_path, "--baseline", "mian").err
    bakeoff("baseline", "set", "main", cwd=tmp_path)
    assert "is the run of the baseline 'main' itself" in gate(tmp_path, "--baseline", "main").err
    assert "no baseline 'x'" in bakeoff("baseline", "remove", "x", cwd=tmp_path).err
    assert bakeoff("baseline", "list", cwd=tmp_path).out.startswith("main: ")
    assert bakeoff("baseline", "remove", "main", cwd=tmp_path).code == 0
    assert "no baselines in" in bakeoff("baseline", "list", cwd=tmp_path).out


def steps(inputs: dict[str, str], github: dict[str, str]) -> list[tuple[str, dict[str, str], str]]:
    """The steps of the action: name, environment and script, with what its expressions come to."""
    action: Any = yaml.safe_load(ACTION.read_text())
    given = {name: str(value.get("default", "")) for name, value in action["inputs"].items()}
    values = {f"inputs.{name}": value for name, value in {**given, **inputs}.items()}
    values |= {f"github.{name}": value for name, value in github.items()}

    def filled(text: str) -> str:
        return re.sub(r"\$\{\{ (\S+) \}\}", lambda found: values[found[1]], text)

    return [
        (step["name"], {k: filled(str(v)) for k, v in step.get("env", {}).items()}, step["run"])
        for step in action["runs"]["steps"]
    ]


GH = """\
#!%s
# in the place of GitHub: keeps the comments of pull request 7 of acme/evals, as its API does
import json, os, pathlib, sys
words, kept = sys.argv[1:], pathlib.Path("comments.json")
comments = json.loads(kept.read_text()) if kept.exists() else []
if os.environ.get("FORBIDDEN"):
    sys.exit("gh: Resource not accessible by integration (HTTP 403)")
assert words.pop(0) == "api", words
assert os.environ["GH_TOKEN"] == "t"
body = [pathlib.Path(w.removeprefix("body=@")).read_text() for w in words if w.startswith("body=@")]
(path,) = [word for word in words if word.startswith("repos/acme/evals/issues/")]
if "--jq" in words:
    assert path.endswith("/7/comments") and not body
    mark = words[words.index("--jq") + 1].split('startswith("')[1].split('")')[0]
    found = [number for number, text in enumerate(comments) if text.startswith(mark)]
    print(*found[:1])
elif "PATCH" in words:
    comments[int(path.rpartition("/comments/")[2])] = body[0]
else:
    assert path.endswith("/7/comments")
    comments.append(body[0])
kept.write_text(json.dumps(comments))
"""


def perform(folder: Path, *, inputs: dict[str, str], forbidden: bool) -> tuple[int, str]:
    """Perform the steps of the action, but for the installation: the package is here already."""
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    (programs / "gh").write_text(GH % sys.executable)
    (programs / "gh").chmod(0o755)
    path = f"{programs}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    github = {
        "action_path": str(ACTION.parent), "event.pull_request.number": "7", "token": "t",
        "repository": "acme/evals",
    }  # fmt: skip
    printed = ""
    for name, env, script in steps({"suite": "suite.json", **inputs}, github):
        if name == "Install":
            continue
        ended = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
            cwd=folder, env={**os.environ, "PATH": path, "FORBIDDEN": "1" * forbidden, **env},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        printed += ended.stdout + ended.stderr
        if ended.returncode:
            return ended.returncode, printed
    return 0, printed


def test_the_action_sets_a_baseline_and_stops_what_is_worse_with_a_comment(
    suite: Path, tmp_path: Path
) -> None:
    def act(wrong: int, *, forbidden: bool = False, baseline: bool = False) -> tuple[int, str]:
        with Loopback(knowing(wrong)) as server:
            arguments = f"--model m --base-url {server.url}"
            inputs = {"arguments": arguments, "set-baseline": str(baseline).lower()}
            return perform(tmp_path, forbidden=forbidden, inputs=inputs)

    comments = tmp_path / "comments.json"
    comments.write_text(json.dumps(["a person's comment"]))

    code, printed = act(2, baseline=True)
    assert (code, "baseline main: " in printed) == (0, True), printed
    code, printed = act(30)
    assert (code, "gate failed" in printed) == (5, True), printed
    theirs, ours = json.loads(comments.read_text())
    assert theirs == "a person's comment"
    assert "| ❌ | m | baseline | surely worse than the baseline: 0.967 → 0.500" in ours
    code, printed = act(0)  # a later push changes the comment
    assert code == 0, printed
    theirs, ours = json.loads(comments.read_text())
    assert theirs == "a person's comment"
    assert "❌" not in ours
    code, printed = act(30, forbidden=True)  # a fork may not comment: the verdict is the same
    assert (code, "::warning::the result could not be written" in printed) == (5, True), printed
