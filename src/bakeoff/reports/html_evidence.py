"""What a rollout left, on a page: why it failed, what its checks said, what it changed and said."""

from collections.abc import Iterator

from bakeoff.reports import in_words
from bakeoff.reports.evidence import Check, Evidence
from bakeoff.reports.html_page import opening, quiet
from bakeoff.reports.html_text import clipped, code, conversation, diff, esc

_SHORT = 2  # messages that need no click
_LONG = 4_000


def evidence(left: Evidence, *, alone: bool) -> str:
    """Return all of it; the changes of a rollout that is *alone* are open."""
    return "".join(_parts(left, alone=alone))


def _parts(left: Evidence, *, alone: bool) -> Iterator[str]:
    if left.phases:
        yield quiet(" · ".join(f"{name} {in_words.seconds(s)}" for name, s in left.phases.items()))
    if left.error:
        yield f'<p class="fault">{esc(clipped(left.error, _LONG))}</p>'
    for check in left.checks:
        yield _check(check)
    if left.patch:
        yield opening("Changes", diff(left.patch), is_open=alone)
    elif left.patch is not None:
        yield quiet("Nothing was changed.")
    if left.left_out:
        yield quiet(clipped(f"Not in the patch: {', '.join(left.left_out)}", _LONG))
    if left.transcript:
        yield _transcript(left)
    elif left.answer:
        yield code(left.answer)


def _transcript(left: Evidence) -> str:
    many = len(left.transcript)
    said = conversation(left.transcript)
    if many <= _SHORT and left.patch is None:
        return said
    return opening(f"Transcript ({in_words.counted(many, 'message')})", said)


def _check(check: Check) -> str:
    why = f": {check.explanation}" if check.explanation else ""
    output = opening("What the check printed", code(check.output)) if check.output else ""
    return quiet(clipped(f"{check.scorer} {check.value:.2f}{why}", _LONG)) + output
