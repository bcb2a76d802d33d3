"""A mistake in a scorer is told with the file and the line on which the scorer stands."""

from collections.abc import Callable
from pathlib import Path

import pytest

import bakeoff
from bakeoff.app.checks import check
from bakeoff.core.errors import UsageError
from bakeoff.core.source_location import SourceLocation
from bakeoff.core.task import ScorerSpec


def _run(path: Path) -> None:
    bakeoff.run(path, models=["scripted/echo"], output=path.parent / "runs")


def _validate(path: Path) -> None:
    check(path)


SUITE = """{"tests": [
  {"id": "fine", "prompt": "p", "expected": "e"},
  {"id": "x", "prompt": "p",
   %s}
]%s}"""

RUN = """rollouts = 1
%s
[[tasks]]
id = "x"
prompt = "p"
%s
"""


@pytest.mark.parametrize("ask", [_run, _validate])
@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        (
            "s.json",
            SUITE % ('"expected": "e", "scorers": ["exact",\n"exct"]', ""),
            r"s\.json:5: task 'x': no scorer is called 'exct': did you mean 'exact'\?",
        ),
        (
            "s.json",
            SUITE % ('"scorers": [\n{"scorer": "pattern", "settings": {"pattern": "("}}]', ""),
            r"s\.json:5: task 'x': scorer 'pattern': '\(' is not a regular expression",
        ),
        (
            "s.json",
            SUITE % ('"scorers": [{"scorer": "pattern", "settings": {"patern": "a"}}]', ""),
            r"s\.json:4: task 'x': scorer 'pattern': .*'patern'",
        ),
        (
            "s.json",
            SUITE % ('"name": "n"', ',\n"scorers": [\n"exact"]'),
            r"s\.json:7: task 'x': scorer 'exact' needs `expected`",
        ),
        (
            "s.json",
            SUITE % ('"scorers": [],\n"expected": {"a": 1}', ',\n"scorers": ["choice"]'),
            r"s\.json:7: task 'fine': `expected` is 'e', which is no option",
        ),
        (
            "s.json",
            SUITE % ('"expected": "e",\n"evaluation_config": {"reasoning_type": "no"},\n'
                     '"scorers": ["reasoning"]', ""),
            r"s\.json:5: task 'x': .*no reasoning type 'no'",
        ),
        ("s.json", SUITE % ('"name": "n",\n"expected": []', ""), r"s\.json:5: task 'x': `expected`"),
        (
            "r.toml",
            RUN % ("", 'expected = "e"\nscorers = ["exact",\n  "exct"]'),
            r"r\.toml:7: task 'x': no scorer is called 'exct'",
        ),
        (
            "r.toml",
            RUN % ("", '\n[[tasks.scorers]]\nscorer = "pattern"\nsettings.pattern = "("'),
            r"r\.toml:7: task 'x': scorer 'pattern': '\(' is not a regular expression",
        ),
        (
            "r.toml",
            RUN % ('scorers = ["numeric"]', 'expected = "many"'),
            r"r\.toml:2: task 'x': scorer 'numeric' needs a number",
        ),
        (
            "d.json",
            '{"objective": "o",\n"roles": {"instructor": "scripted/echo"},\n"scorers": ["exct"]}',
            r"d\.json:3: task 'd': no scorer is called 'exct'",
        ),
    ],
)  # fmt: skip
def test_a_mistake_in_a_scorer_names_file_and_line(
    tmp_path: Path, ask: Callable[[Path], None], name: str, text: str, told: str
) -> None:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=told):
        ask(path)


def test_a_scorer_of_a_task_folder_names_its_file_and_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = Path("t")
    (folder / "files").mkdir(parents=True)
    (folder / "instruction.md").write_text("Do it.")
    (folder / "task.toml").write_text('time_s = 5\n\n[[scorers]]\nscorer = "exct"\n')
    with pytest.raises(UsageError, match=r"^t/task\.toml:3: task 't': no scorer is called 'exct'"):
        check(folder)


def test_a_scorer_of_a_task_in_markdown_names_its_file_and_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path("t.md")
    path.write_text("---\ntime_s: 5\nscorers:\n  - exct\n---\n# Task: T\n\nDo it.\n")
    with pytest.raises(UsageError, match=r"^t\.md:4: task 't': no scorer is called 'exct'"):
        check(path)


def test_a_scorer_from_the_command_line_is_told_as_such(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    path.write_text('{"tests": [{"id": "x", "prompt": "p"}]}')
    with pytest.raises(UsageError, match=r"^--set: task 'x': no scorer is called 'exct'"):
        bakeoff.run(path, models=["scripted/echo"], overrides={"scorers": '["exct"]'})
    with pytest.raises(UsageError, match=r"^task 'x': no scorer is called 'exct'"):
        bakeoff.run(path, models=["scripted/echo"], scorers=["exct"])


def test_where_a_scorer_was_written_is_no_part_of_what_it_is() -> None:
    here = ScorerSpec(name="exact", origin=SourceLocation(file="a.json", key=("scorers", 0)))
    assert here == ScorerSpec(name="exact")
    task = bakeoff.Task(id="t", messages=(), scorers=(here,))
    assert (
        task.digest == bakeoff.Task(id="t", messages=(), scorers=(ScorerSpec(name="exact"),)).digest
    )


@pytest.mark.parametrize("ask", [_run, _validate])
def test_all_mistakes_in_scorers_are_told_and_a_shared_one_once(
    tmp_path: Path, ask: Callable[[Path], None]
) -> None:
    path = tmp_path / "s.json"
    path.write_text(
        """{"scorers": ["exakt"], "tests": [
  {"id": "a", "prompt": "p", "expected": "e"},
  {"id": "b", "prompt": "p", "expected": "e"},
  {"id": "c", "prompt": "p", "scorers": ["numerc"]},
  {"id": "d", "prompt": "p", "expected": "e",
   "scorers": [{"scorer": "includes", "settings": {"ignore": 1, "al": 2}}]}
]}"""
    )
    with pytest.raises(UsageError) as caught:
        ask(path)
    lines = [line.removeprefix(str(path)) for line in str(caught.value).split("\n")]
    assert [line.partition(": did")[0] for line in lines[:2]] == [
        ":1: task 'a': no scorer is called 'exakt'",
        ":4: task 'c': no scorer is called 'numerc'",
    ]
    assert [line[:24] for line in lines[2:]] == [":6: task 'd': scorer 'in"]
