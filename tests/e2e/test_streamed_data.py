"""A large data set is run while it is read: no row is held, and none is lost, asked twice or unsaid."""

import asyncio
import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import bakeoff
from bakeoff._lib.redact import Redactor
from bakeoff.app.run import plan
from bakeoff.core.errors import UsageError
from bakeoff.core.events import Event, Notice, TrialEnded, TrialStarted
from bakeoff.core.lazy_tasks import MOST_HELD, StreamedTasks
from bakeoff.core.stop import Stop
from bakeoff.formats.detect import read_source
from bakeoff.planning.selection import Selection, select
from bakeoff.stores.ledger_writer import LEDGER, SqliteStore
from bakeoff.stores.plan_blocks import PlanStream
from support.cli import bakeoff as command

MANY = MOST_HELD + 400
ECHO = ["scripted/echo"]


def _rows(many: int = MANY) -> Iterator[dict[str, Any]]:
    for n in range(many):
        yield {"id": f"q{n}", "question": f"Repeat {n}", "answer": str(n), "level": n % 5}


def _write(path: Path, rows: Iterator[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


class _Heard:
    """Counts trials, and asks for a stop after some of them."""

    def __init__(self, stop: Stop | None = None, after: int = 0) -> None:
        self.stop, self.after = stop, after
        self.started: list[str] = []
        self.ended = 0
        self.notices: list[str] = []

    def __call__(self, event: Event) -> None:
        if isinstance(event, TrialStarted):
            self.started.append(event.trial.task.id)
        elif isinstance(event, TrialEnded):
            self.ended += 1
            if self.stop is not None and self.ended == self.after:
                self.stop.request()
        elif isinstance(event, Notice):
            self.notices.append(event.text)


def test_every_row_of_a_large_data_set_is_asked_once(tmp_path: Path) -> None:
    source = _write(tmp_path / "rows.jsonl", _rows())
    heard = _Heard()
    run = bakeoff.run(source, models=ECHO, output=tmp_path, listener=heard)
    assert heard.started == [f"q{n}" for n in range(MANY)]
    summary = run.summary()
    assert (summary.tasks, summary.buckets.scored) == (MANY, MANY)
    assert run.manifest.planned == run.manifest.tasks == MANY
    assert run.manifest.plan == run.plan.digest == plan(source, models=ECHO).plan.digest
    assert not run.plan_is_open


def test_a_run_that_is_stopped_while_rows_are_read_is_resumed_with_them(tmp_path: Path) -> None:
    source = _write(tmp_path / "rows.jsonl", _rows())
    stop = Stop()
    before = _Heard(stop, after=50)
    run = bakeoff.run(source, models=ECHO, output=tmp_path, listener=before, stop=stop)
    assert run.plan_is_open
    assert before.ended < MANY
    assert any("rows of its data set were read" in note for note in run.summary().notes)
    with pytest.raises(UsageError, match="still being read: to resume it, name that too"):
        bakeoff.run(resume=run.id, output=tmp_path)
    after = _Heard()
    run = bakeoff.run(source, models=ECHO, output=tmp_path, resume=run.id, listener=after)
    assert before.ended + after.ended == run.summary().buckets.scored == MANY
    assert not run.plan_is_open
    again = _Heard()
    bakeoff.run(resume=run.id, output=tmp_path, listener=again)
    assert again.ended == 0


def test_rows_that_changed_do_not_resume_a_run_of_others(tmp_path: Path) -> None:
    source = _write(tmp_path / "rows.jsonl", _rows())
    stop = Stop()
    run = bakeoff.run(
        source, models=ECHO, output=tmp_path, listener=_Heard(stop, after=20), stop=stop
    )
    first, *rest = _rows()
    _write(source, iter([{**first, "question": "Something else"}, *rest]))
    with pytest.raises(UsageError, match="planned with other rows: task 'q0' differs"):
        bakeoff.run(source, models=ECHO, output=tmp_path, resume=run.id)


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        ('{"id": "x", "question": "what?" "answer": 1}\n', rf":{MANY}: not valid JSON"),
        ('["x"]\n', rf":{MANY}: a row must be an object"),
    ],
)
def test_a_broken_line_far_down_is_an_error_before_the_first_request(
    tmp_path: Path, broken: str, why: str
) -> None:
    source = _write(tmp_path / "rows.jsonl", _rows(MANY - 1))
    with source.open("a") as file:
        file.write(broken)
    heard = _Heard()
    with pytest.raises(UsageError, match=why):
        bakeoff.run(source, models=ECHO, output=tmp_path, listener=heard)
    assert not heard.started


def test_a_variable_that_one_row_far_down_lacks_is_an_error_before_the_first_request(
    tmp_path: Path,
) -> None:
    rows = [*_rows(MANY - 1), {"id": "last", "answer": "x"}]
    source = _write(tmp_path / "rows.jsonl", iter(rows))
    with pytest.raises(UsageError, match=r"\{\{question\}\}: task 'last' has no value for it"):
        plan(source, models=ECHO, prompts=["Say {{question}}"])


def test_a_row_that_cannot_be_asked_stops_the_run_and_what_was_done_is_kept(
    tmp_path: Path,
) -> None:
    rows = list(_rows())
    empty = {**rows[-1], "question": " "}
    source = _write(tmp_path / "rows.jsonl", iter([*rows[:-1], empty]))
    heard = _Heard()
    with pytest.raises(
        UsageError, match=rf":{MANY}: column 'question' is the prompt, and is empty"
    ):
        bakeoff.run(source, models=ECHO, output=tmp_path, listener=heard)
    _write(source, iter(rows))
    after = _Heard()
    run = bakeoff.run(source, models=ECHO, output=tmp_path, resume="latest", listener=after)
    assert heard.ended > 0
    assert heard.ended + after.ended == run.summary().buckets.scored == MANY


def test_two_rows_with_one_id_are_told_with_the_line_of_the_second(tmp_path: Path) -> None:
    source = _write(tmp_path / "rows.jsonl", iter([*_rows(MANY - 1), next(_rows())]))
    with pytest.raises(UsageError, match=rf":{MANY}: an earlier row has the id 'q0' too"):
        bakeoff.run(source, models=ECHO, output=tmp_path)


def test_rows_that_repeat_others_are_asked_once_and_counted(tmp_path: Path) -> None:
    rows = [{"question": f"Please repeat {n}, and no more", "answer": str(n)} for n in range(MANY)]
    source = _write(tmp_path / "rows.jsonl", iter([*rows, *rows[:5]]))
    heard = _Heard()
    run = bakeoff.run(source, models=ECHO, output=tmp_path, listener=heard)
    assert heard.ended == run.manifest.planned == MANY
    assert any("5 rows repeated an earlier one" in notice for notice in heard.notices)


def test_a_part_of_a_stream_is_the_part_that_it_would_be_in_memory(tmp_path: Path) -> None:
    tasks = read_source(_write(tmp_path / "rows.jsonl", _rows())).tasks
    assert isinstance(tasks, StreamedTasks)
    for selection in (
        Selection(where="level == 3"),
        Selection(sample=7, seed=3),
        Selection(limit=3),
        Selection(tests=["q1", "q99*"]),
        Selection(where="level != 3", limit=20),
    ):
        held = [task.id for task in select(tuple(tasks), selection)]
        assert [task.id for task in select(tasks, selection)] == held
    most = select(tasks, Selection(where="id != 'q7'"))
    assert isinstance(most, StreamedTasks)
    assert len(most) == MANY - 1
    assert "q7" not in {task.id for task in most}


def test_a_run_file_streams_the_one_data_set_that_it_names(tmp_path: Path) -> None:
    _write(tmp_path / "rows.jsonl", _rows())
    (tmp_path / "run.toml").write_text(
        'models = ["scripted/echo"]\nparameters = {temperature = 0}\n'
        'scorers = ["exact"]\n[[data]]\npath = "rows.jsonl"\n'
    )
    tasks = read_source(tmp_path / "run.toml").tasks
    assert isinstance(tasks, StreamedTasks)
    assert tasks.first[0].parameters == {"temperature": 0}
    assert [scorer.name for scorer in tasks[-1].scorers] == ["exact"]


def test_a_dry_run_of_a_large_data_set_says_what_it_would_run(tmp_path: Path) -> None:
    source = _write(tmp_path / "rows.jsonl", _rows())
    shown = command("run", source, "--model", "scripted/echo", "--dry-run", "--json").out
    assert json.loads(shown)["trials"] == MANY


def test_reading_ahead_takes_the_memory_of_a_batch_however_many_rows_there_are(
    tmp_path: Path,
) -> None:
    peaks = {}
    for many in (MANY, 2 * MANY):
        folder = tmp_path / str(many)
        folder.mkdir()
        planned = plan(_write(folder / "rows.jsonl", _rows(many)), models=ECHO).plan
        store = SqliteStore(folder)
        store.freeze(planned)
        (block,) = planned.blocks
        stream = PlanStream(
            folder / LEDGER, block.tasks, redactor=Redactor(), check=lambda task: None
        )
        tracemalloc.start()
        try:
            while stream.advance():
                pass
            peaks[many] = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
            stream.close()
        assert stream.whole
        assert len(stream.tasks) == many
        asyncio.run(store.close())
    # eight bytes for a row's place, and for its id at most 24
    assert peaks[2 * MANY] - peaks[MANY] < MANY * 100


def test_a_prompt_that_asks_for_the_expected_answers_is_told_how(tmp_path: Path) -> None:
    source = _write(tmp_path / "rows.jsonl", _rows(3))
    with pytest.raises(UsageError, match=r"holds the expected answers.*--map told=answer"):
        plan(source, models=ECHO, prompts=["{{question}} {{answer}}"])
