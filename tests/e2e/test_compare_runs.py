"""`bakeoff compare`: two runs in folders, a real server between them that got better or worse."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bakeoff as package
from support.cli import Ended, bakeoff
from support.loopback import Asked, Loopback, Reply, chat

TASKS = 24


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    return write(tmp_path, "suite.json", "say {}")


def write(folder: Path, name: str, prompt: str, *, more: int = 0) -> Path:
    tests = [
        {"id": f"t{n:02}", "prompt": prompt.format(f"{n:02}"), "expected": f"{n:02}"}
        for n in range(TASKS + more)
    ]
    path = folder / name
    path.write_text(json.dumps({"tests": tests}))
    return path


def knowing(*share: int) -> Callable[[Asked], Reply]:
    """Answers that are right where the number has one of these remainders by 4."""

    def answer(asked: Asked) -> Reply:
        number = int(asked.prompt.split()[-1])
        return chat(f"{number:02}" if number % 4 in share else "?")

    return answer


def run(
    suite: Path,
    name: str,
    answer: Callable[[Asked], Reply],
    *,
    models: str = "m",
    limit: int | None = None,
) -> None:
    with Loopback(answer) as server:
        package.run(
            suite,
            models=models.split(),
            base_url=server.url,
            limit=limit,
            folder=suite.parent / name,
        )


def compare(folder: Path, *words: str) -> Ended:
    ended = bakeoff("compare", folder / "old", folder / "new", *words, folder=folder)
    assert "Traceback" not in ended.err
    return ended


def test_what_became_worse_is_told_with_its_tasks_and_can_fail_a_pipeline(
    suite: Path, tmp_path: Path
) -> None:
    run(suite, "old", knowing(0, 1, 2, 3))
    run(suite, "new", knowing(0, 1, 2))
    ended = compare(tmp_path)
    assert ended.code == 0, ended.err
    assert "old → new: 24 shared tasks" in ended.out
    assert "m: worse on 6 tasks: t03 1.00 → 0.00, t07 1.00 → 0.00" in ended.out
    worse = "m: worse than before: solves 25 of 100 tasks fewer (6 to 44.9)"
    assert f"verdict: {worse}\n" in ended.out
    assert json.loads(compare(tmp_path, "--json").out)["verdicts"] == [worse]
    assert package.compare(tmp_path / "old", tmp_path / "new").verdicts == (worse,)
    assert "1.000" in ended.out
    assert "0.750" in ended.out
    assert compare(tmp_path, "--fail-if-worse").code == 5
    back = bakeoff(
        "compare", tmp_path / "new", tmp_path / "old", "--fail-if-worse", folder=tmp_path
    )
    assert back.code == 0
    assert "better than before: solves 25 of 100 tasks more (6 to 44.9)" in back.out


def test_luck_is_no_verdict(suite: Path, tmp_path: Path) -> None:
    run(suite, "old", knowing(0, 1))
    run(suite, "twin", knowing(0, 1))
    same = bakeoff(
        "compare", tmp_path / "old", tmp_path / "twin", "--fail-if-worse", folder=tmp_path
    )
    assert same.code == 0
    assert "the same score on each of 24 tasks" in same.out
    assert "no decision (no difference was seen)" in same.out


def test_json_has_every_number_and_every_task(suite: Path, tmp_path: Path) -> None:
    run(suite, "old", knowing(0))
    run(suite, "new", knowing(0, 1, 2, 3))
    told: dict[str, Any] = json.loads(compare(tmp_path, "--json").out)
    assert (told["before"], told["after"], told["tasks"]) == ("old", "new", TASKS)
    (one,) = told["contrasts"]
    assert (one["mean_before"], one["mean_after"]) == (0.25, 1.0)
    assert one["pair"]["difference"] == 0.75
    assert one["pair"]["better"] == "after"
    assert len(one["moved"]) == 18
    found = package.compare(tmp_path / "old", tmp_path / "new")
    assert found.contrasts[0].pair.p == one["pair"]["p"]
    assert not found.worse


def test_what_became_better_by_faults_alone_is_no_verdict(suite: Path, tmp_path: Path) -> None:
    def refusing(asked: Asked) -> Reply:
        number = int(asked.prompt.split()[-1])
        return chat(f"{number:02}") if number % 4 < 2 else Reply(status=400)

    run(suite, "old", knowing(2, 3))
    run(suite, "new", refusing)
    ended = compare(tmp_path)
    assert (
        "verdict: m: no decision (after is better unless more than 3 of the 12 faulted trials "
        "went against it)"
    ) in ended.out
    assert ended.out.rstrip().splitlines()[-1].startswith("verdict: ")
    (one,) = json.loads(compare(tmp_path, "--json").out)["contrasts"]
    assert (one["pair"]["withheld"], one["pair"]["faults"], one["pair"]["better"]) == (
        True, 12, None,
    )  # fmt: skip
    assert one["pair"]["worst_difference"] == 0.0


def test_what_else_changed_is_said(suite: Path, tmp_path: Path) -> None:
    run(suite, "old", knowing(0))
    other = write(tmp_path, "other.json", "please say {}", more=3)
    (tmp_path / "run.toml").write_text(f'suites = ["{other.name}"]\n[limits]\ntime_s = 77\n')
    run(tmp_path / "run.toml", "new", knowing(0, 1))
    told = compare(tmp_path).out
    assert "tasks only in the run before: 0; only in the run after: 3" in told
    assert "left out" not in told  # what only one run has is counted once
    assert (
        "note: 24 of the tasks differ in messages: 't00', 't01', 't02', 't03', 't04', and 19 more"
        in told
    )
    assert "note: candidate 'm' differs in model.base_url" in told
    assert "note: they were run under other conditions: limits.time_s" in told


def test_other_candidates_are_compared_each_with_each_or_as_named(
    suite: Path, tmp_path: Path
) -> None:
    run(suite, "old", knowing(0), models="a b")
    run(suite, "new", knowing(0, 1, 2, 3), models="c")
    told = compare(tmp_path).out
    assert "verdict: a → c: better than before" in told
    assert "verdict: b → c: better than before" in told
    told = compare(tmp_path, "--pair", "b,c").out
    assert "verdict: b → c" in told
    assert "a → c" not in told


def test_what_cannot_be_compared_is_said(suite: Path, tmp_path: Path) -> None:
    run(suite, "old", knowing(0), limit=1)
    run(suite, "new", knowing(0), limit=1)
    strange = tmp_path / "strange.json"
    strange.write_text('{"tests": [{"id": "x", "prompt": "say 1", "expected": "1"}]}')
    run(strange, "strange", knowing(0))
    old, new = tmp_path / "old", tmp_path / "new"
    for words, told in (
        ((old, old), "old would be compared with itself"),
        ((old, "--candidates", "m"), "there is one candidate, and nothing to compare it with"),
        ((old, new, "--candidates", "x"), "no candidate 'x' in what is compared"),
        ((old, tmp_path / "none"), "none is not the folder of a run: it is not there"),
        ((old, new, "--pair", "m"), "'m' is not a pair: write the names of two candidates"),
        ((old, new, "--pair", "m,x"), "'x' is not in the run after; there are: m"),
        ((old, tmp_path / "strange"), "old and strange have no task in common"),
    ):
        ended = bakeoff("compare", *words, folder=tmp_path)
        assert ended.code in {1, 2}, words
        assert told in ended.err
        assert "Traceback" not in ended.err


def test_any_number_of_runs_are_compared_two_by_two_with_p_for_all_of_them(
    suite: Path, tmp_path: Path
) -> None:
    for name, share in (("old", (0, 1, 2, 3)), ("new", (0, 1)), ("third", (0,))):
        run(suite, name, knowing(*share))
    ended = compare(tmp_path, str(tmp_path / "third"))
    assert ended.code == 0, ended.err
    assert "old, new, third: 24 shared tasks" in ended.out
    assert "verdict: m, old → new: worse than before: solves 50 of 100 tasks fewer (" in ended.out
    assert "verdict: m, old → third: worse than before: solves 75 of 100 tasks fewer (" in ended.out
    assert "verdict: m, new → third: no decision" in ended.out or "new → third: worse" in ended.out
    found = package.compare(tmp_path / "old", tmp_path / "new", tmp_path / "third")
    assert found.runs == ("old", "new", "third")
    assert [(c.run_before, c.run_after) for c in found.contrasts] == [
        ("old", "new"), ("old", "third"), ("new", "third"),
    ]  # fmt: skip
    assert all((c.pair.p_holm or 0) >= (c.pair.p or 0) for c in found.contrasts)


def test_the_candidates_of_one_run_are_compared_where_it_is_the_latest_or_they_are_named(
    suite: Path, tmp_path: Path
) -> None:
    run(suite, "runs/one", knowing(0), models="a b c")
    for words in (("latest",), ("one", "--candidates", "all")):
        told = bakeoff("compare", *words, cwd=tmp_path).out
        assert "one: its candidates on 24 tasks" in told
        assert "verdict: no decision between b and a (no difference was seen)" in told
        assert "b: the same score as a on each of 24 tasks" in told
        assert not re.search(r"\b(before|after)\b", told)
        assert told.count("verdict: ") == 3
    told = bakeoff("compare", "latest", "--candidates", "a,c", cwd=tmp_path).out
    assert told.count("verdict: ") == 1


def test_tasks_are_matched_by_what_they_ask_not_by_what_they_are_called(
    suite: Path, tmp_path: Path
) -> None:
    run(suite, "old", knowing(0, 1, 2, 3))
    tests = json.loads(suite.read_text())["tests"]
    for number, test in enumerate(tests):
        test["id"] = f"renamed {number}"
    tests[0]["expected"] = "something else"
    suite.write_text(json.dumps({"tests": tests}))
    run(suite, "new", knowing(0, 1, 2, 3))
    ended = compare(tmp_path)
    assert "old → new: 23 shared tasks" in ended.out
    assert "note: 23 of the tasks have another id and the same content: 'renamed 1'" in ended.out
    assert "the same score on each of 23 tasks" in ended.out
    found = package.compare(tmp_path / "old", tmp_path / "new")
    assert found.only == {"old": ("t00",), "new": ("renamed 0",)}


def test_a_test_that_was_changed_is_left_out_by_name_unless_forced(
    suite: Path, tmp_path: Path
) -> None:
    run(suite, "old", knowing(0, 1, 2, 3))
    tests = json.loads(suite.read_text())["tests"]
    for test in tests[:4]:
        test["expected"] = "something else"
    suite.write_text(json.dumps({"tests": tests}))
    run(suite, "new", knowing(0, 1, 2, 3))
    told = compare(tmp_path).out
    assert "old → new: 20 shared tasks" in told
    assert (
        "note: 4 of the tasks differ in target, and are left out: they are other tests: 't00'"
        in told
    )
    assert "the same score on each of 20 tasks" in told
    assert "m: worse on 4 tasks" in compare(tmp_path, "--force").out


def test_there_is_no_verdict_on_what_was_not_asked_alike_unless_it_is_forced(
    suite: Path, tmp_path: Path
) -> None:
    run(suite, "old", knowing(0, 1, 2, 3))
    (tmp_path / "run.toml").write_text(f'suites = ["{suite.name}"]\n[limits]\ntime_s = 77\n')
    run(tmp_path / "run.toml", "new", knowing(0))
    ended = compare(tmp_path, "--fail-if-worse")
    assert ended.code == 0
    assert (
        "verdict: m: no decision (different conditions: limits.time_s is not set and 77)"
        in ended.out
    ), ended.out
    assert "--force compares them although their conditions differ" in ended.out
    assert "after - before" in ended.out, "the figures are shown"
    forced = compare(tmp_path, "--fail-if-worse", "--force")
    assert forced.code == 5
    assert "worse than before: solves 75 of 100 tasks fewer (" in forced.out
    assert "forced, although conditions differ: limits.time_s is not set and 77" in forced.out
