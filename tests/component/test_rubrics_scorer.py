"""rubrics: scripts in clean rooms, weights, the judge where there are none, custom metrics."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bakeoff.core.errors import ScorerError, UsageError
from bakeoff.core.outcome import Completion, Request
from bakeoff.core.record import Score
from bakeoff.core.sandbox import Sandbox
from bakeoff.core.task import Message, Task
from bakeoff.registry import build
from bakeoff.sandboxes.host.local import Local
from bakeoff.scorers.rubrics import Rubrics
from support.workspaces import (
    changed_by,
    context,
    isolating,
    open_bench,
    outcome,
    tree,
    workspace_task,
    write,
)

CALC = {"calc.py": "def add(a, b):\n    return a - b\n", "own/check.sh": "test -f calc.py\n"}
RIGHT = "printf 'def add(a, b):\\n    return a + b\\n' > calc.py"
UNIT = """\
import unittest
import calc
class T(unittest.TestCase):
    def test_add(self):
        self.assertEqual(calc.add(1, 2), 3)
if __name__ == "__main__":
    unittest.main()
"""
PYTEST = """\
import pytest
import calc
print('{"custom_metrics": {"imported": 1}}')
@pytest.mark.parametrize("n", [1, 2])
def test_add(n):
    print('{"custom_metrics": {"called": %d}}' % n)
    assert calc.add(n, 2) == n + 2
"""
PLAIN = "import calc\nassert calc.add(1, 2) == 3\nprint('fine')\n"
SHELL = "python3 -c 'import calc; print(calc.add(1, 2))' | grep -qx 3\n"


def rubrics(*scripts: dict[str, Any], **weights: float) -> Rubrics:
    """The scorer as it is made from the settings of a task."""
    named = weights or {"works": 1.0}
    settings = {
        "rubrics": [
            {"id": name, "criterion": f"{name}!", "weight": w} for name, w in named.items()
        ],
        "test_scripts": list(scripts),
    }
    scorer = build(Rubrics, settings, what="scorer 'rubrics'")
    assert isinstance(scorer, Rubrics)
    return scorer


def script(path: str, content: str | None = None, rubric: str = "works") -> dict[str, Any]:
    return {"path": path, "rubric_id": rubric} | ({} if content is None else {"content": content})


class Judge:
    """A judge who always gives the same grade and remembers what it was asked."""

    def __init__(self, grade: int) -> None:
        self.grade = grade
        self.asked: list[str] = []

    async def complete(self, request: Request) -> Completion:
        self.asked.append(request.messages[-1].content)
        return Completion(text=json.dumps({"reasoning": "so it is", "score": self.grade}))


def scored(
    folder: Path,
    scorer: Rubrics,
    work: str = RIGHT,
    sandbox: Sandbox | None = None,
    **roles: Judge,
) -> Score:
    task = workspace_task(tree(write(folder / "repo", CALC)))

    async def run() -> Score:
        async with open_bench(folder / "cache", sandbox or isolating()) as bench:
            change = await changed_by(bench, task, work)
            return await scorer.score(task, outcome(change), context(bench, roles=roles))

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("evaluation/test_add.py", UNIT),
        ("tests/test_add_more.py", PYTEST),
        ("evaluation/check.py", PLAIN),
        ("check.sh", SHELL),
        ("deep/er/check", "#!/bin/sh\n" + SHELL),
    ],
)
def test_each_kind_of_script_passes_a_right_solution_and_fails_a_wrong_one(
    tmp_path: Path, path: str, content: str
) -> None:
    scorer = rubrics(script(path, content))
    right = scored(tmp_path, scorer)
    assert right.value == 1.0, right
    assert right.details["test_results"][path]["success"] is True
    assert right.details["test_results"][path]["duration_sec"] > 0
    wrong = scored(tmp_path, scorer, "true")
    assert wrong.value == 0.0
    assert wrong.explanation == "works: 0 of 1 tests passed"


@pytest.mark.parametrize("trick", ["os._exit(0)", "sys.exit(0)", "sys.exit()"])
@pytest.mark.parametrize("content", [UNIT, PLAIN], ids=["unittest", "plain"])
def test_a_solution_that_ends_the_script_has_not_passed(
    tmp_path: Path, trick: str, content: str
) -> None:
    work = f"printf 'import os, sys\\n{trick}\\n' > calc.py"
    assert scored(tmp_path, rubrics(script("t/check.py", content)), work).value == 0.0


def test_a_script_may_end_itself_when_it_is_content(tmp_path: Path) -> None:
    scorer = rubrics(script("t/check.py", PLAIN + "import sys\nsys.exit(0)\n"))
    assert scored(tmp_path, scorer).value == 1.0
    scorer = rubrics(script("t/check.py", PLAIN + "import sys\nsys.exit(1)\n"))
    assert scored(tmp_path, scorer).value == 0.0


def test_the_total_is_weighted_by_rubric_and_a_rubric_is_the_share_of_its_tests(
    tmp_path: Path,
) -> None:
    scorer = rubrics(
        script("a.sh", SHELL),
        script("b.sh", "exit 1\n"),
        script("c.sh", "exit 0\n", "exists"),
        works=3.0,
        exists=1.0,
    )
    given = scored(tmp_path, scorer)
    assert given.value == pytest.approx((0.5 * 3 + 1.0) / 4)
    assert given.details["rubrics"]["works"] == {
        "criterion": "works!",
        "weight": 3.0,
        "score": 0.5,
        "max_score": 1.0,
        "weighted_score": 1.5,
        "test_count": 2,
        "tests_passed": 1,
    }


def test_a_rubric_without_tests_is_judged_by_the_change(tmp_path: Path) -> None:
    judge = Judge(10)
    scorer = rubrics(script("a.sh", "exit 1\n"), works=1.0, style=1.0)
    given = scored(tmp_path, scorer, judge=judge)
    assert given.value == 0.5
    assert given.details["rubrics"]["style"]["score"] == 1.0
    assert given.details["rubrics"]["style"]["explanation"] == "so it is"
    assert len(judge.asked) == 1
    assert "style!" in judge.asked[0]
    assert "+    return a + b" in judge.asked[0]


def test_without_a_judge_such_a_rubric_is_null_and_counts_in_neither_sum(tmp_path: Path) -> None:
    scorer = rubrics(script("a.sh", SHELL), works=1.0, style=9.0)
    given = scored(tmp_path, scorer)
    assert given.value == 1.0
    entry = given.details["rubrics"]["style"]
    assert (entry["score"], entry["weighted_score"]) == (None, None)
    assert "there is no judge" in entry["explanation"]
    assert "style: not scored, there is no judge" in given.explanation


def test_nothing_that_counts_is_a_fault_and_no_0(tmp_path: Path) -> None:
    with pytest.raises(ScorerError, match=r"\[roles.judge\]"):
        scored(tmp_path, rubrics(style=1.0))


def test_custom_metrics_are_printed_or_written_and_change_no_score(tmp_path: Path) -> None:
    printing = 'echo noise; echo \'{"custom_metrics": {"lines": 3}}\'; exit 1\n'
    writing = "import json\njson.dump({'custom_metrics': {'speed': 1.5}}, open('custom_metrics.json', 'w'))\n"
    scorer = rubrics(script("a.sh", printing), script("b.py", writing))
    planted = RIGHT + '; echo \'{"custom_metrics": {"planted": 1}}\' > custom_metrics.json'
    given = scored(tmp_path, scorer, planted)
    assert given.value == 0.5
    assert given.details["custom_metrics"] == {"lines": 3, "speed": 1.5}
    assert given.details["custom_metrics_unverified"] == ["lines", "speed"]


@pytest.mark.parametrize(
    ("work", "make"),
    [(RIGHT, isolating), ("true", isolating), (RIGHT, Local)],
    ids=["passes", "fails", "passes where pytest is installed"],
)
def test_custom_metrics_that_a_pytest_script_prints_are_kept(
    tmp_path: Path, work: str, make: Callable[[], Sandbox]
) -> None:
    given = scored(tmp_path, rubrics(script("test_add.py", PYTEST)), work, make())
    assert given.value == float(work == RIGHT)
    assert given.details["custom_metrics"] == {"imported": 1, "called": 2}
    assert "custom_metrics_unverified" not in given.details


TELLING = {
    "evaluation/test_add.py": (
        "import json, unittest\nimport calc\n"
        "class T(unittest.TestCase):\n"
        "    def test_add(self):\n"
        "        print(json.dumps({'custom_metrics': {'quality': calc.add(1, 2)}}, indent=2))\n"
    ),
    "evaluation/test_pytest.py": (
        "import pytest\nimport calc\n"
        'def test_add():\n    print(\'{"custom_metrics": {"quality": %d}}\' % calc.add(1, 2))\n'
    ),
    "evaluation/check.py": 'import calc\nprint(\'{"custom_metrics": {"quality": 3}}\')\ncalc.add(1, 2)\n',
}
SAYING_SO_ITSELF = r"""cat > calc.py <<'END'
import atexit, os, subprocess, sys
line = '{"custom_metrics": {"quality": 99, "invented": 1}}'
def add(a, b):
    print(line)
    sys.stdout.write(line + "\n")
    os.write(1, ("\n" + line + "\n").encode())
    subprocess.run(["echo", line])
    exec(compile("print(line)", sys.argv[0], "exec"))
    return a + b
add(0, 0)
atexit.register(add, 0, 0)
END
"""


@pytest.mark.parametrize("path", TELLING)
def test_metrics_that_the_solution_prints_are_not_those_of_its_check(
    tmp_path: Path, path: str
) -> None:
    given = scored(tmp_path, rubrics(script(path, TELLING[path])), SAYING_SO_ITSELF)
    assert given.value == 1.0, given
    assert given.details["custom_metrics"] == {"quality": 3}


def test_metrics_that_may_be_the_solutions_are_marked_and_never_go_before_the_checks(
    tmp_path: Path,
) -> None:
    shell = "python3 -c 'import calc; calc.add(1, 2)'\n"
    writing = SAYING_SO_ITSELF.replace("line =", "open('custom_metrics.json', 'w').write(").replace(
        '"invented": 1}}\'', '"written": 1}}\')\nline = \'{"custom_metrics": {"invented": 1}}\''
    )
    path = "evaluation/check.py"
    scorer = rubrics(script(path, TELLING[path]), script("b.sh", shell))
    given = scored(tmp_path, scorer, writing)
    assert given.details["custom_metrics"] == {"quality": 3, "written": 1, "invented": 1}
    assert given.details["custom_metrics_unverified"] == ["invented", "written"]


def test_scripts_do_not_meet(tmp_path: Path) -> None:
    scorer = rubrics(script("a.sh", "touch left /tmp/left\n"), script("b.sh", "test ! -e left\n"))
    assert scored(tmp_path, scorer).value == 1.0


def test_a_script_of_the_repository_is_as_it_was(tmp_path: Path) -> None:
    scorer = rubrics(script("own/check.sh"))
    given = scored(tmp_path, scorer, "rm calc.py; echo exit 0 > own/check.sh")
    assert given.value == 0.0
    assert given.details["undone"] == ["own/check.sh"]


@pytest.mark.parametrize(
    ("one", "why"),
    [
        (script("nowhere.sh"), "nowhere.sh is not there"),
        (script("a.sh", "no-such-program\n"), "could not be started"),
        (script("a.zz", "not a program"), "could not be started"),
    ],
)
def test_a_script_that_cannot_run_is_a_fault_and_no_0(
    tmp_path: Path, one: dict[str, Any], why: str
) -> None:
    with pytest.raises(ScorerError, match=why):
        scored(tmp_path, rubrics(one))


def checked(folder: Path, scorer: Rubrics) -> None:
    """Ask whether the box of an agent has what the scorer needs."""
    task = workspace_task(tree(write(folder / "repo", CALC)))

    async def run() -> None:
        async with open_bench(folder / "cache", isolating()) as bench:
            room = bench.open(task, label="t", gateway=None, mounts=(), environment={})
            async with room as opened:
                await scorer.check_box(opened.box)

    asyncio.run(run())


def test_what_a_box_lacks_is_known_before_an_agent_works_in_it(tmp_path: Path) -> None:
    checked(tmp_path, rubrics(script("test_a.py", PYTEST), script("a.sh", SHELL)))
    with pytest.raises(ScorerError, match=r"no 'php'.*Dockerfile.*`box.setup`"):
        checked(tmp_path, rubrics(script("a.py", PLAIN), script("a.php", "<?php")))


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"rubrics": []}, "no `rubrics`"),
        ({"rubrics": [{"id": "a"}, {"id": "a"}]}, "there twice"),
        ({"rubrics": [{"id": "a", "weight": 0}]}, "nothing would count"),
        ({"rubrics": [{"id": "a", "weight": -1}]}, "0 or more"),
        ({"rubrics": [{"id": "a"}], "test_scripts": [script("x", rubric="b")]}, "there are: a"),
        ({"rubrics": [{"id": "a"}], "test_scripts": [script("/x", rubric="a")]}, "not inside"),
    ],
)
def test_settings_that_make_no_sense_are_refused_early(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        build(Rubrics, settings, what="scorer 'rubrics'")


def test_scripts_need_a_workspace_and_judging_does_not() -> None:
    task = Task(id="t", messages=(Message(role="user", content="x"),))
    rubrics(style=1.0).check(task)
    with pytest.raises(UsageError, match="the task has none"):
        rubrics(script("a.sh", "")).check(task)
