"""The Python session inside the box: runs cells one after another in one namespace.

This file is never imported: `python3 -c` runs its source in the box, so it uses only the standard
library and nothing of Bakeoff. A cell is a file `N.py` in a given folder; its result is one line of
JSON on standard output, prefixed with the session's token. Nothing here is secret or trusted: a cell
that interferes harms only itself.
"""

import ast
import json
import linecache
import os
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path

_POLL_S = 0.01
_SLOW_POLL_S = 0.05
_PATIENCE = 100  # polls before it polls less often


class CellTimeoutError(BaseException):
    """The cell took too long; not an Exception, so that `except Exception` lets it through."""


def _on_alarm(_number: int, _frame: object) -> None:
    raise CellTimeoutError


def _shown(head: bytes, left_out: int, tail: bytes) -> str:
    ellipsis_text = f"\n[... {left_out:,} bytes left out ...]\n" if left_out else ""
    return head.decode(errors="replace") + ellipsis_text + tail.decode(errors="replace")


def _cut(data: bytes, max_bytes: int) -> str:
    """Return *data*, shortened to its first and last part if it is too long."""
    if len(data) <= max_bytes:
        return _shown(data, 0, b"")
    half = max_bytes // 2
    return _shown(data[:half], len(data) - 2 * half, data[-half:])


def _captured(path: str, max_bytes: int) -> str:
    """Return the captured output, shortened in the same way, without reading all of it."""
    with Path(path).open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        if size <= max_bytes:
            return _shown(file.read(), 0, b"")
        half = max_bytes // 2
        head = file.read(half)
        file.seek(-half, os.SEEK_END)
        return _shown(head, size - 2 * half, file.read(half))


def _execute(source: str, name: str, namespace: dict[str, object]) -> str | None:
    """Run *source* and return its error; the value of a last expression is printed."""
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    try:
        tree = ast.parse(source, name)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, name, "exec"), namespace)  # noqa: S102 -- that is what it is for
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), name, "eval"), namespace)  # noqa: S307
            if value is not None:
                print(repr(value))  # noqa: T201 -- into what is captured
    except CellTimeoutError:
        return "interrupted: it took too long"
    except SystemExit as error:
        return f"exit({error.code}) was called; the session goes on"
    except BaseException as error:  # noqa: BLE001 -- whatever a cell raises is its result
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename != name:
            trace = trace.tb_next
        return "".join(traceback.format_exception(type(error), error, trace))
    return None


def _run_cell(
    source: str, number: int, namespace: dict[str, object], settings: dict[str, float]
) -> dict[str, object]:
    """Run a cell with its output, and that of its children, redirected to a file."""
    kept_out, kept_err = os.dup(1), os.dup(2)
    handle, path = tempfile.mkstemp(prefix="cell-")
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    os.close(handle)
    error_text: str | None = "interrupted: it took too long"
    signal.setitimer(signal.ITIMER_REAL, settings["cell_s"])
    try:
        error_text = _execute(source, f"<cell {number}>", namespace)
    except CellTimeoutError:
        pass
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for stream in (sys.stdout, sys.stderr):
            if stream is not None and not stream.closed:
                stream.flush()
        os.dup2(kept_out, 1)
        os.dup2(kept_err, 2)
        os.close(kept_out)
        os.close(kept_err)
    max_bytes = int(settings["most_output"])
    output = _captured(path, max_bytes)
    Path(path).unlink(missing_ok=True)
    if error_text is not None:
        error_text = _cut(error_text.encode(errors="replace"), max_bytes)
    return {"cell": number, "output": output, "error": error_text}


def _next_cell(folder: Path, number: int) -> str:
    path, polls = folder / f"{number}.py", 0
    while not path.exists():
        polls += 1
        time.sleep(_POLL_S if polls < _PATIENCE else _SLOW_POLL_S)
    return path.read_text(encoding="utf-8", errors="replace")


def main() -> None:
    """Run cells until the box is stopped."""
    token, folder = sys.argv[1], Path(os.path.expanduser(sys.argv[2]))  # noqa: PTH111 -- `~` is the box's
    settings = json.loads(sys.argv[3])
    out = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="replace")
    signal.signal(signal.SIGALRM, _on_alarm)
    folder.mkdir(parents=True, exist_ok=True)
    sys.argv = [""]
    sys.path.insert(0, "")
    namespace: dict[str, object] = {"__name__": "__main__", "__builtins__": __builtins__}
    number = 0
    while True:
        number += 1
        source = _next_cell(folder, number)
        result = _run_cell(source, number, namespace, settings)
        out.write(f"{token}{json.dumps(result)}\n")
        out.flush()


if __name__ == "__main__":
    main()
