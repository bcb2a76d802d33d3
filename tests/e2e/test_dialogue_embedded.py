"""A real small model in all three seats: the conversation runs to its end."""

from pathlib import Path

import pytest

import bakeoff
from bakeoff.core.record import Status
from support.parts import require_embedded_model

CASE = """\
objective = "Find out what 2 and 3 make."
knowledge = "You like short answers."
reference = "2 and 3 make 5."
opening = "Hi! What do 2 and 3 make?"
max_turns = 2
answer = "all"

[roles.instructor]
model = "embedded"
parameters = { max_tokens = 60, temperature = 0 }

[roles.supervisor]
model = "embedded"
parameters = { max_tokens = 60, temperature = 0 }
"""


@pytest.mark.embedded
def test_a_conversation_with_a_real_model_in_every_seat_runs_to_its_end(tmp_path: Path) -> None:
    require_embedded_model()
    case = tmp_path / "sum.toml"
    case.write_text(CASE)
    run = bakeoff.run(case, models=["embedded"], output=tmp_path / "runs",
                      overrides={"parameters.max_tokens": "40"})  # fmt: skip
    (record,) = run.trials()
    attempt = record.attempt
    assert attempt.status in (Status.COMPLETED, Status.LIMITED), attempt.fault
    assert attempt.outcome is not None
    said = attempt.outcome.transcript
    assert [m.role for m in said] == ["user", "assistant", "user", "assistant"]
    assert all(m.content.strip() for m in said)
    assert attempt.roles["instructor"].requests >= 1
    assert attempt.roles["supervisor"].requests >= 1
    assert attempt.roles["supervisor"].usage.output_tokens
