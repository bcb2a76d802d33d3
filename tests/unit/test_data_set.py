"""Rows become tasks: which columns mean what, ids, targets, and what is said about it."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from bakeoff.cli.options import scorer
from bakeoff.core.errors import UsageError
from bakeoff.core.run_spec import RunSpec
from bakeoff.core.task import Message, ScorerSpec
from bakeoff.formats.data.columns import DataOptions
from bakeoff.formats.detect import read_source


def _spec(tmp_path: Path, text: str, *, templated: bool = False, **columns: str) -> RunSpec:
    path = tmp_path / "rows.csv"
    path.write_text(text)
    return read_source(
        path, None, DataOptions(columns=columns, variables=templated, own_prompt=not templated)
    )


@pytest.mark.parametrize(
    ("header", "guessed"),
    [
        ("question,answer", "prompt = question, expected = answer"),
        ("input,target", "prompt = input, expected = target"),  # Inspect
        ("prompt,expected,id,category", "id = id, prompt = prompt, expected = expected, category = category"),
        ("Question,Best Answer,Category", "prompt = Question, expected = Best Answer, category = Category"),
        ("instruction,input,output", "prompt = instruction, expected = output"),
        ("task_id,prompt,canonical_solution", "id = task_id, prompt = prompt, expected = canonical_solution"),
        ("question,subject,choices,answer", "prompt = question, expected = answer, category = subject"),
        ("text,label", "prompt = text, expected = label"),
        ("question,__expected", "prompt = question, expected = __expected"),  # promptfoo
        ("query,gold,group,tags", "prompt = query, expected = gold, group = group, tags = tags"),
    ],
)  # fmt: skip
def test_usual_names_are_guessed_and_said(tmp_path: Path, header: str, guessed: str) -> None:
    cells = ",".join("x" for _ in header.split(","))
    notice, _ = _spec(tmp_path, f"{header}\n{cells}\n").notices
    assert notice.endswith(f"rows.csv: columns guessed by their names: {guessed}")


def test_a_row_becomes_a_task(tmp_path: Path) -> None:
    text = 'id,question,answer,subject,group,tags,lang\nq1,What?,Paris,geo,g1,"a, b",en\n'
    (task,) = _spec(tmp_path, text).tasks
    assert (task.id, task.target, task.category, task.group) == ("q1", "Paris", "geo", "g1")
    assert task.messages == (Message(role="user", content="What?"),)
    assert task.metadata == {"answer": "Paris", "lang": "en", "tags": ["a", "b"]}
    assert [scorer.name for scorer in task.scorers] == ["includes"]
    assert not task.vars


def test_a_templated_row_carries_its_columns_but_not_the_expected_answer(tmp_path: Path) -> None:
    text = "id,question,answer,lang\nq1,What?,Paris,en\n"
    (task,) = _spec(tmp_path, text, templated=True).tasks
    assert task.messages == ()
    assert task.vars == {"id": "q1", "question": "What?", "lang": "en"}
    (task,) = _spec(tmp_path, text, templated=True, solution="answer").tasks
    assert task.vars["solution"] == "Paris"


@pytest.mark.parametrize(
    ("cell", "target", "scorer"),
    [
        ("4", 4, "numeric"), ("-4.50", -4.5, "numeric"), ("1e3", 1000.0, "numeric"),
        ("007", "007", "includes"), ("4 km", "4 km", "includes"), ("true", "true", "includes"),
        ("1e999", "1e999", "includes"),
    ],
)  # fmt: skip
def test_an_answer_that_is_a_number_is_compared_as_one(
    tmp_path: Path, cell: str, target: Any, scorer: str
) -> None:
    (task,) = _spec(tmp_path, f"question,answer\nq,{cell}\n").tasks
    assert task.target == target
    assert [spec.name for spec in task.scorers] == [scorer]


@pytest.mark.parametrize(
    ("text", "scorer", "settings"),
    [
        ("question,A,B,answer\nq,x,y,B", "choice", {"options": ["A", "B", "C", "D"]}),
        ("question,option_a,option_b,answer\nq,x,y,E", "choice", {"options": ["A", "B", "C", "D", "E"]}),
        ("question,choices,answer\nq,x / y,A", "choice", {"options": ["A", "B", "C", "D"]}),
        ('question,answer\n"Which?\nA) x\nB) y",A', "choice", {"options": ["A", "B", "C", "D"]}),
        ("question,answer\nThe symbol of carbon?,C", "includes", {"whole_words": True, "ignore_case": False}),
        ("question,answer\nIs it?,no", "includes", {"whole_words": True}),
        ("question,answer\nWhere?,Rome", "includes", {}),
        ("question,answer\nWhich mark?,!", "includes", {}),
        ("question,answer\n首都は?,東京", "includes", {}),
        ("question,answer\nЭто?,да", "includes", {"whole_words": True}),
    ],
)  # fmt: skip
def test_a_short_answer_is_not_looked_for_within_words(
    tmp_path: Path, text: str, scorer: str, settings: dict[str, Any]
) -> None:
    (task,) = _spec(tmp_path, text + "\n").tasks
    assert [(spec.name, spec.settings) for spec in task.scorers] == [(scorer, settings)]


def test_how_answers_are_checked_is_said(tmp_path: Path) -> None:
    *_, said = _spec(tmp_path, "question,answer\na,1\nb,2\nc,x y\nd,\n").notices
    assert said.endswith(
        "rows.csv: answers are checked with numeric (2), includes (1); not checked: 1, no expected "
        "answer; to choose: --scorer NAME"
    )
    *_, said = _spec(tmp_path, "question\na\n").notices
    assert "no expected answer is there, so no answer is scored" in said
    path = tmp_path / "rows.csv"
    assert read_source(path, None, DataOptions(scored=True)).notices == (
        f"{path}: columns guessed by their names: prompt = question",
    )


def test_expected_answers_that_look_like_labels_are_told_with_the_line(tmp_path: Path) -> None:
    labels = ["it's good", "bad"]
    rows = "".join(f"q{n},{labels[n % 2]}\n" for n in range(20))
    *_, said = _spec(tmp_path, f"text,label\n{rows}").notices
    word = shlex.split(said.partition("--scorer ")[2])[0]
    assert scorer(word) == ScorerSpec(name="label", settings={"labels": ["bad", "it's good"]})
    few = "".join(f"q{n},{labels[n % 2]}\n" for n in range(19))
    assert not any("labels" in line for line in _spec(tmp_path, f"text,label\n{few}").notices)


def test_an_empty_answer_is_none(tmp_path: Path) -> None:
    (task,) = _spec(tmp_path, "question,answer\nq,\n").tasks
    assert (task.target, task.scorers) == (None, ())


def test_rows_without_ids_are_named_by_their_content(tmp_path: Path) -> None:
    first = [t.id for t in _spec(tmp_path, "question\nWho is it?\nWhat?\n").tasks]
    later = [t.id for t in _spec(tmp_path, "question\nNew\nWhat?\nWho is it?\n").tasks]
    assert first[0].startswith("who-is-it~")
    assert set(first) < set(later)


def test_equal_rows_are_asked_once_and_that_is_said(tmp_path: Path) -> None:
    spec = _spec(tmp_path, "question\nWhat?\nWho?\nWhat?\nWhat?\n")
    assert len(spec.tasks) == 2
    assert any("rows.csv:4: 2 rows, this one first, are equal" in line for line in spec.notices)


@pytest.mark.parametrize(
    ("text", "columns", "message"),
    [
        (
            "id,question\na,x\na,y\n",
            {},
            r"rows\.csv:3: an earlier row has the id 'a' too.*--map id=",
        ),
        ("id,question\n,x\n", {}, r"rows\.csv:2: column 'id' is the id, and has none here"),
        ("question\n \n", {}, r"rows\.csv:2: column 'question' is the prompt, and is empty"),
        ("foo,bar\n1,2\n", {}, r"which column is the prompt\? There are: foo, bar"),
        ("question\nx\n", {"expected": "answr"}, r"no column 'answr' for `expected`"),
        ("question,answer\nx,y\n", {"expected": "answr"}, r"did you mean 'answer'"),
        ("question\n", {}, r"there are no rows in it"),
        (
            "question,__expected\nx,contains:y\n",
            {},
            r"promptfoo's check 'contains'.*--scorer includes",
        ),
        ("question\nx\n", {"prompt": "Q: {{questin}}"}, r"rows\.csv:2: .*did you mean 'question'"),
    ],
)
def test_what_cannot_be_a_task_is_an_error(
    tmp_path: Path, text: str, columns: dict[str, str], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        _spec(tmp_path, text, templated=False, **columns)


def test_no_id_column_may_be_asked_for(tmp_path: Path) -> None:
    spec = _spec(tmp_path, "id,question\na,x\na,y\n", id="")
    assert len({task.id for task in spec.tasks}) == 2


def test_columns_are_refused_where_there_are_none(tmp_path: Path) -> None:
    path = tmp_path / "suite.json"
    path.write_text(json.dumps({"tests": [{"id": "a", "prompt": "b"}]}))
    with pytest.raises(UsageError, match="name columns of a data set, and this is none"):
        read_source(path, None, DataOptions(columns={"expected": "a"}))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"prmpt": "q"}, r"`prmpt` is no role of a column; did you mean `prompt`\?"),
        ({"prompt": "q", "expcted": "a"}, r"'expcted' is no role .* did you mean 'expected'\?"),
    ],
)
def test_a_misspelt_role_is_no_variable(
    tmp_path: Path, columns: dict[str, str], message: str
) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("q,a\n1,2\n")
    with pytest.raises(UsageError, match=message):
        read_source(path, None, DataOptions(columns=columns))


def test_a_file_without_a_header_is_told_so(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("What is 1+1?,2\nWhat is 2+2?,4\n")
    with pytest.raises(
        UsageError, match="Its first line must name the columns, and it has: What is"
    ):
        read_source(path)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.tsv", "question,answer\nx,y\n", r"one column, 'question,answer'; if ',' separates"),
        ("a.csv", "question~answer\nx~y\n", r"write sep=~ above its first line"),
        (
            "a.csv",
            "question,answer,lang\nx,y\n",
            r"a\.csv:2: 2 cells.*write ',' for each cell that is",
        ),
        ("a.jsonl", '{\n "question": "x"\n}\n', r"a\.jsonl:2: .*a row of JSON Lines is one line"),
        (
            "a.json",
            '{"data": [{"question": "x"}]}',
            r"If 'data' holds the rows .* a file of its own",
        ),
    ],
)
def test_a_file_of_another_shape_is_told_how_to_become_one(
    tmp_path: Path, name: str, text: str, message: str
) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(UsageError, match=message):
        read_source(path)


def test_a_bar_may_separate_cells(tmp_path: Path) -> None:
    (task,) = _spec(tmp_path, "id|question|answer\nq1|a, b; c?|Rome\n").tasks
    assert (task.id, task.messages[0].content, task.target) == ("q1", "a, b; c?", "Rome")
