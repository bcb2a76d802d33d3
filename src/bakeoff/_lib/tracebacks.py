"""Other people's Python code: the traceback of an error in it, and the modules that it imports."""

import os
import re
from pathlib import Path
from types import TracebackType

_OURS = f"{Path(__file__).parents[1]}{os.sep}"
_PYTHONS = f"{Path(os.__file__).parent}{os.sep}"
_INSTALLED = f"{os.sep}site-packages{os.sep}"
_MOST_HEAD, _MOST_TAIL = 4_000, 12_000
_CUT = "\n[... the middle of a long traceback is left out ...]\n"


def traceback_text(error: BaseException) -> str:
    """Return the traceback of *error*, without the frames of ours that led to it."""
    import traceback

    lines = traceback.format_exception(type(error), error, _from_theirs(error.__traceback__))
    text = "".join(lines).rstrip("\n")
    if len(text) <= _MOST_HEAD + _MOST_TAIL:
        return text
    return f"{text[:_MOST_HEAD]}{_CUT}{text[-_MOST_TAIL:]}"


def _from_theirs(trace: TracebackType | None) -> TracebackType | None:
    """Return *trace* from the first frame that is neither ours nor Python's; whole without one."""
    frame = trace
    while frame is not None:
        file = frame.tb_frame.f_code.co_filename
        pythons = file.startswith((_PYTHONS, "<frozen")) and _INSTALLED not in file
        if not file.startswith(_OURS) and not pythons:
            return frame
        frame = frame.tb_next
    return trace


def imports_module(source: str, name: str) -> bool:
    """Whether *source* imports the module *name* or something below it, also after others: `import a, b`."""
    others = r"(?:[\w.]+(?:[ \t]+as[ \t]+\w+)?[ \t]*,[ \t]*)*"
    statement = rf"(?:from[ \t]+{re.escape(name)}\b|import[ \t]+{others}{re.escape(name)}\b)"
    return re.search(rf"(?:^|;)[ \t]*{statement}", source, re.MULTILINE) is not None
