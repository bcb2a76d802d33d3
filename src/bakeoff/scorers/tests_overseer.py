"""Runs in the clean room: starts the tests in a process of their own and signs what they reported.

It is sent as text to whatever Python is there (3.7 or later), and imports nothing of the workspace.
The secret it signs with comes through its standard input and is known to nobody else in the box;
the tests, which run the agent's code, can end or confuse their own process, but cannot sign.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import secrets
import select
import signal
import subprocess
import sys

MOST = 3_000_000  # bytes of a report; what is longer is not whole


def main() -> None:
    """Read the secret, run the tests, print the signed report."""
    secret = sys.stdin.buffer.read()
    with contextlib.suppress(OSError):
        os.ftruncate(0, 0)  # where it is a file, others in the box may have it open
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    _shut_others_out()
    _say(secret, {"started": True})
    report = _run(sys.argv[1], json.loads(sys.argv[2]))
    _say(secret, report)
    sys.exit(0 if report["whole"] and report["code"] == 0 else 1)


def _shut_others_out() -> None:
    """Let no other process of this user look into this one, where the system can do that."""
    with contextlib.suppress(ImportError, OSError, AttributeError):
        import ctypes

        ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE


def _say(secret: bytes, what: dict[str, object]) -> None:
    text = json.dumps(what)
    seal = hmac.new(secret, text.encode(), hashlib.sha256).hexdigest()
    rest = memoryview(f"\nbakeoff-report {seal} {text}\n".encode())
    while rest:
        rest = rest[os.write(1, rest) :]


def _run(tests: str, wanted: dict[str, object]) -> dict[str, object]:
    """Run the tests and return all that they said, with how their process ended."""
    told, telling = os.pipe()
    nonce = secrets.token_hex(16)
    child = subprocess.Popen(
        [sys.executable, "-c", tests, str(telling), json.dumps(wanted)],
        stdin=subprocess.PIPE,
        pass_fds=(telling,),
        start_new_session=True,
    )
    os.close(telling)
    with contextlib.suppress(BrokenPipeError):
        if child.stdin is not None:
            child.stdin.write(nonce.encode())
            child.stdin.close()
    said = _heard(told, child)
    code = child.wait()
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)  # what they left must not print into the report
    return _checked(said, nonce, code)


def _heard(told: int, child: subprocess.Popen[bytes]) -> bytes:
    """Return what comes through the pipe until the tests are over, whoever else holds it open."""
    said = b""
    while True:
        over = child.poll() is not None
        ready = select.select([told], [], [], 0 if over else 0.05)[0]
        piece = os.read(told, 65536) if ready else b""
        if len(said) <= MOST:
            said += piece
        if (ready and not piece) or (over and (not ready or len(said) > MOST)):
            return said


def _checked(said: bytes, nonce: str, code: int) -> dict[str, object]:
    """Return the report: whole only where every line is the tests' own, to the last."""
    records = []
    whole = len(said) <= MOST
    for number, line in enumerate(said.decode("utf-8", "replace").splitlines()):
        try:
            record = json.loads(line)
        except ValueError:
            record = None
        if not isinstance(record, dict) or record.pop("by", None) != [nonce, number]:
            whole = False  # somebody else wrote into the pipe
            break
        records.append(record)
    last = records[-1] if records else {}
    return {"records": records, "code": code, "whole": whole and last.get("over") == code}


if __name__ == "__main__":
    main()
