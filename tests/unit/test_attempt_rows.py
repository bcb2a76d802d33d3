"""An attempt as columns and a compact rest: the same again, and small."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakeoff.core.outcome import Outcome, Spent, Usage
from bakeoff.core.record import Attempt, Fault, Score, Status
from bakeoff.core.task import Message, ToolCall
from bakeoff.stores.attempt_rows import Rest, attempt_of, rest_of, row_of
from bakeoff.stores.packing import _FRAGMENTS, inflated, pack, pack_record, unpack
from bakeoff.stores.schema import ATTEMPT, parts_of_key, row_crc, trial_key
from support.plans import attempt

FULL = Attempt(
    number=2,
    status=Status.FAULTED,
    started_at=1.5,
    elapsed_s=2.5,
    outcome=Outcome(
        answer="four",
        transcript=(
            Message(role="assistant", content="", tool_calls=(ToolCall(id="1", name="f", arguments="{}"),)),
        ),
        notes={"empty": None, "list": [1, {"a": False}]},
        unfinished=True,
    ),
    scores=(Score(scorer="includes", value=0.0, details={"missing": []}, passed=False),),
    score=0.0,
    passed=False,
    fault=Fault(boundary="provider", message="no", transient=True, traceback="there"),
    spent=Spent(
        requests=1,
        usage=Usage(input_tokens=7, reasoning_tokens=None, cost_usd=0.5),
        flags=("cached", "truncated"),
        retries=3,
        cut=1,
    ),
    roles={"judge": Spent(requests=2)},
    phases={"agent": 1.0},
)  # fmt: skip


def stored(kept: Attempt) -> Attempt:
    rest = pack_record(rest_of(kept))
    row = row_of(7, kept, blob=None, rest=rest)
    return attempt_of(row[1 : 1 + len(ATTEMPT) - 3], unpack(rest, Rest))


@pytest.mark.parametrize("kept", [FULL, attempt(), attempt(status=Status.FAULTED)])
def test_an_attempt_comes_back_as_it_was(kept: Attempt) -> None:
    assert stored(kept) == kept


USUAL_PARTS = st.sampled_from([text.decode() for text, _ in _FRAGMENTS])
TEXTS = st.lists(st.text() | USUAL_PARTS).map("".join)


@given(TEXTS, TEXTS)
def test_so_does_whatever_was_said(answer: str, said: str) -> None:
    for content in (answer, said):
        transcript = (Message(role="assistant", content=content),)
        rest = Rest(outcome=Outcome(answer=answer, transcript=transcript))
        assert unpack(pack_record(rest), Rest) == rest
        assert unpack(pack(rest), Rest) == rest


def test_what_is_in_columns_is_not_written_twice() -> None:
    written = json.loads(inflated(pack_record(rest_of(FULL))))
    assert set(written) == {"outcome", "scores", "fault", "spent", "roles", "phases"}
    assert written["spent"] == {"usage": {"reasoning_tokens": None}, "retries": 3, "cut": 1}
    assert set(json.loads(inflated(pack_record(rest_of(attempt()))))) == {"outcome", "scores"}


def test_an_answer_costs_its_own_length_and_little_more() -> None:
    answer = "The capital of France is Paris."
    assert len(pack_record(rest_of(attempt(answer=answer)))) < len(answer) + 30


def test_the_key_of_a_trial_is_its_parts_and_grows_as_the_plan_does() -> None:
    keys = [trial_key(r, t, c) for r in (0, 1, 9) for t in (1, 2, 67_108_863) for c in (1, 32_767)]
    assert keys == sorted(keys)
    assert [parts_of_key(key) for key in keys] == [
        (r, t, c) for r in (0, 1, 9) for t in (1, 2, 67_108_863) for c in (1, 32_767)
    ]
    assert max(keys) < 2**63


def test_the_checksum_covers_every_column() -> None:
    row = row_of(7, FULL, blob=None, rest=b"x")
    for place in range(len(row) - 1):
        changed = (*row[:place], "another", *row[place + 1 : -1])
        assert row_crc(*changed) != row[-1]
