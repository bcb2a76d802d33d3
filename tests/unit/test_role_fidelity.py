"""The audit of the roles: what is marked in a turn, and what the marks of a run come to."""

from typing import Any

import pytest

from bakeoff.agents.dialogue.agent import audited
from bakeoff.core.dialogue import Dialogue, DialogueTurn
from bakeoff.core.outcome import Outcome
from bakeoff.core.record import Attempt, Status, TrialRecord
from bakeoff.stats.role_fidelity import role_fidelity

DIALOGUE = Dialogue(
    objective="Get a model for the sales data.\n- clean the missing prices\n- predict weekly sales",
    knowledge="We sell in 45 stores. Holidays matter.",
    reference=(
        "Fill missing prices with the median of each store, then fit gradient boosting with a "
        "learning rate of 0.05 and 7 trees; the best error is 1834.7. Never forget the holidays."
    ),
)


def turn(message: str, *, number: int = 2, end: bool = False, **rest: Any) -> DialogueTurn:
    return DialogueTurn(number=number, speaker="instructor", message=message, end=end, **rest)


def said(message: str, reply: str) -> DialogueTurn:
    return DialogueTurn(number=1, speaker="instructor", message=message, reply=reply)


def marks(
    given: DialogueTurn, *before: DialogueTurn, dialogue: Dialogue = DIALOGUE
) -> tuple[str, ...]:
    return audited(dialogue, before, given).marks


@pytest.mark.parametrize(
    "message",
    [
        "Please fill missing prices with the median of each store.",  # its words
        "You should get down to 1834.7.",  # its result
        "It should be 1,834.70 or so.",  # written in another way
        "Try a rate of 0.05",
        "Fit seven trees to it",  # a small number with what it counts
        "Please never forget the holidays.",  # a short sentence, whole
    ],
)
def test_words_and_numbers_of_the_reference_are_a_leak(message: str) -> None:
    assert marks(turn(message)) == ("leaked",)


@pytest.mark.parametrize(
    "message",
    [
        "Please look at the gaps in the prices first.",
        "We have 45 stores, and holidays matter.",  # that it knows by itself
        "Use 5 folds, in 2 steps.",  # numbers that are in any text
        "I have seven questions.",  # the same number, of other things
        "Then fit something with a good learning rate.",  # five words in a row
    ],
)
def test_other_words_and_what_it_knows_are_none(message: str) -> None:
    assert marks(turn(message)) == ()


def test_what_the_agent_brought_up_is_no_leak() -> None:
    before = said("Hi", "I reached an error of 1834.7 with a learning rate of 0.05.")
    assert marks(turn("1834.7 with 0.05 is fine."), before) == ()


def test_an_end_before_everything_was_raised_is_early() -> None:
    assert marks(turn("Clean the missing prices. Bye.", end=True)) == ("ended early",)
    before = said("Clean the missing prices.", "Done.")
    assert marks(turn("Now predict the weekly sales. Bye.", end=True), before) == ()


def test_an_item_that_was_raised_in_other_forms_of_its_words_is_raised() -> None:
    before = said("The prices have gaps to be cleaned up.", "Done. Any predictions of the sales?")
    assert marks(turn("Yes, a forecast of sales, then bye.", end=True), before) == ()


@pytest.mark.parametrize("asks", ["Which column is the price?", "I did it. **Shall I go on?**"])
def test_an_end_while_the_agent_asks_is_early(asks: str) -> None:
    before = said("Clean missing prices, predict weekly sales.", asks)
    assert marks(turn("Thanks, bye.", end=True), before) == ("ended early",)


@pytest.mark.parametrize(
    ("asks", "answer"),
    [
        ("Which column is the price?", "The third column, that is all."),
        ("Shall I go on?", "Yes please, and then we are done."),
        ("Done. Is there anything else I can help you with?", "Thanks, bye."),
        ("It is finished. Does that make sense?", "Thanks, bye."),
        ("You asked: which column? I took the third.", "Thanks, bye."),
    ],
)
def test_an_end_with_an_answer_or_after_a_courtesy_is_none_too_early(
    asks: str, answer: str
) -> None:
    before = said("Clean missing prices, predict weekly sales.", asks)
    assert marks(turn(answer, end=True), before) == ()


def test_what_the_supervisor_did_is_marked_in_its_turns() -> None:
    assert marks(turn("Drop it.", contradictory=True, follow_up="Keep it.")) == ("contradicted",)
    assert marks(turn("Drop it.", contradictory=True)) == ("contradicted",)
    spoken = DialogueTurn(
        number=3, speaker="supervisor", message="Fill with the median of each store, then"
    )
    assert marks(spoken) == ("overruled",)


def test_shards_that_are_hardly_told_or_told_too_soon_are_marked() -> None:
    sharded = Dialogue(
        objective="x",
        mode="shard_user",
        shards=("remove duplicate customers before joining", "the discount is 17.5 percent"),
    )
    told = turn("remove duplicate customers before joining", shards=(1,))
    assert marks(told, dialogue=sharded) == ()
    assert marks(turn("do the usual", shards=(1,)), dialogue=sharded) == ("withheld",)
    both = turn("remove duplicate customers; discount 17.5", shards=(1,))
    assert marks(both, dialogue=sharded) == ("leaked",)


def record(task: str, *, passed: bool | None, status: Status = Status.COMPLETED, **marks: list[int]) -> TrialRecord:  # fmt: skip
    told: dict[str, Any] = {
        "turns": [{}, {}],
        "marks": {name.replace("_", " "): w for name, w in marks.items()},
    }
    outcome = Outcome(answer="", notes={"dialogue": told})
    attempt = Attempt(
        number=1, status=status, started_at=0, elapsed_s=1, outcome=outcome, passed=passed
    )
    return TrialRecord(task_id=task, category=None, candidate_id="m", rollout=0, attempt=attempt)


def test_the_marks_of_a_run_are_counted_and_the_failures_they_touch_are_named() -> None:
    plain = Attempt(number=1, status=Status.COMPLETED, started_at=0, elapsed_s=1)
    told = role_fidelity(
        [
            record("fine", passed=True, leaked=[1]),
            record("wrong", passed=False, leaked=[1, 2], ended_early=[2]),
            record("alone", passed=False),
            record("long", passed=None, status=Status.LIMITED, contradicted=[1]),
            TrialRecord(task_id="p", category=None, candidate_id="m", rollout=0, attempt=plain),
        ]
    )
    assert (told.conversations, told.turns, told.marked_conversations) == (4, 8, 3)
    assert told.marks == {"leaked": 3, "ended early": 1, "contradicted": 1}
    assert told.failures == 3
    assert [t.trial for t in told.touched] == ["wrong@m#0", "long@m#0"]
    assert told.touched_share == pytest.approx(2 / 3)
    assert told.in_words() == (
        "roles: 3 of 4 conversations have turns in which a role failed (leaked 3, "
        "ended early 1, contradicted 1); of 3 failures they touch 2: wrong@m#0, long@m#0"
    )
    assert role_fidelity([]).touched_share is None
    assert role_fidelity([record("fine", passed=True)]).in_words() is None
