"""Runs in the grading box: starts the tests in separate processes and signs their report.

It is sent as text to the box's Python (3.7 or later), and imports nothing from the workspace. The
secret that it signs with comes through its standard input and is known to nothing else in the box;
the tests, which run the agent's code, can end or confuse their own process, but cannot sign.

The test files are removed from the box before any code of the agent runs, and passed to the test
process: programs that it starts cannot look up what is expected.

The tests run twice, in random order: as they are, and as decoys that must fail (see plan.py). Code
that makes tests pass in any other way than by being right makes decoys pass too.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import random
import secrets
import select
import signal
import subprocess
import sys
import time
import types

MAX_REPORT = 3_000_000  # bytes of a report; a longer one is not complete
MAX_NAMES = 50
CANNOT = 70


def main() -> None:
    """Read the secret, run the tests, print the signed report."""
    secret = sys.stdin.buffer.read()
    with contextlib.suppress(OSError):
        os.ftruncate(0, 0)  # where it is a file, others in the box may have it open
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    _forbid_tracing()
    _send(secret, {"started": True})
    report = _Tests(sys.argv[1], sys.argv[2], json.loads(sys.argv[3])).run()
    _send(secret, report)
    sys.exit(0 if report["whole"] and report["code"] == 0 else 1)


def _forbid_tracing() -> None:
    """Forbid other processes of this user to trace this one, where the system supports it."""
    with contextlib.suppress(ImportError, OSError, AttributeError):
        import ctypes

        ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE


def _send(secret: bytes, message: dict[str, object]) -> None:
    text = json.dumps(message)
    signature = hmac.new(secret, text.encode(), hashlib.sha256).hexdigest()
    rest = memoryview(f"\nbakeoff-report {signature} {text}\n".encode())
    while rest:
        rest = rest[os.write(1, rest) :]


class _Tests:
    """The tests of one scorer: the plan, and the runs with and without decoys."""

    def __init__(self, tests: str, planning: str, wanted: dict[str, object]) -> None:
        self._sources = (tests, planning)
        self._wanted = wanted
        plan = types.ModuleType("plan")
        exec(compile(planning, "<plan>", "exec"), plan.__dict__)  # noqa: S102 -- it is ours
        planned = plan.read_plan(wanted["runner"], wanted["paths"])
        self._plan = plan
        self._test_files: dict[str, str] = {}
        self._planned = [test.id for tests in planned.values() for test in tests]
        self._decoys, self._sure = plan.choose_decoys(planned, random.SystemRandom())

    def run(self) -> dict[str, object]:
        """Return the report of the tests, the plan, and the results of the decoys."""
        paths = [str(path) for path in self._wanted["paths"]]  # type: ignore[attr-defined]
        missing = [path for path in paths if not os.path.exists(path.split("::")[0])]  # noqa: PTH110
        if missing:
            record = {"missing": missing}
            return {"records": [record], "code": CANNOT, "whole": True, "out_of_time": False}
        if self._wanted["read_once"]:
            self._test_files = self._plan.take_sources(self._wanted["runner"], paths)
        control: dict[str, object] | None = None
        # random, so that code learns nothing from being run a second time
        decoys_first = bool(self._sure) and secrets.randbits(1) == 1
        if decoys_first:
            control = self._control()
        report = self._run(None)
        passed = any(
            record.get("phase") == "call" and record.get("how") == "passed"
            for record in report["records"]  # type: ignore[attr-defined]
        )
        if self._sure and not decoys_first and passed:
            control = self._control()
        return dict(report, planned=self._planned, control=control)

    def _control(self) -> dict[str, object]:
        """Run the decoys, and return which of them passed."""
        report = self._run(self._decoys)
        files, passed, failed, armed = set(), [], 0, False
        sure = set(self._sure)
        for record in report["records"]:  # type: ignore[attr-defined]
            if "decoys_in" in record:
                files.add(record["decoys_in"])
            armed = armed or "decoy" in record
            if "test" not in record:
                continue
            failed += record["how"] != "passed"
            if record["phase"] == "call":
                test = record["test"].partition("[")[0]
                if record["how"] == "passed" and (armed or test in sure):
                    passed.append(record["test"])
                armed = False
        in_place = bool(files)
        return {
            "in_place": in_place,
            "whole": report["whole"],
            "out_of_time": report["out_of_time"],
            "passed": passed[:MAX_NAMES] if in_place else [],
            "failed": failed,
        }

    def _run(self, decoys: dict[str, list[list[int]]] | None) -> dict[str, object]:
        """Run the tests and return their records, with how their process ended."""
        read_fd, write_fd = os.pipe()
        nonce = secrets.token_hex(16)
        child = subprocess.Popen(
            [sys.executable, "-c", *self._sources, str(write_fd), json.dumps(self._wanted)],
            stdin=subprocess.PIPE,
            stdout=None if decoys is None else subprocess.DEVNULL,
            stderr=None if decoys is None else subprocess.DEVNULL,
            pass_fds=(write_fd,),
            env=_environment(),
            start_new_session=True,
        )
        os.close(write_fd)
        orders = {"nonce": nonce, "decoys": decoys, "sources": self._test_files}
        with contextlib.suppress(BrokenPipeError):
            if child.stdin is not None:
                child.stdin.write(json.dumps(orders).encode())
                child.stdin.close()
        received, out_of_time = _receive(read_fd, child, float(str(self._wanted["time_s"])))
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(
                child.pid, signal.SIGKILL
            )  # remaining processes must not write into the report
        os.close(read_fd)
        return dict(_checked(received, nonce, child.wait()), out_of_time=out_of_time)


def _environment() -> dict[str, str]:
    """Return the environment of the test process, in which nothing shadows Python's own modules.

    It imports what it needs first, and only then from the folders in PYTHONPATH.
    """
    environment = dict(os.environ)
    if "PYTHONPATH" in environment:
        environment["BAKEOFF_PYTHONPATH"] = environment.pop("PYTHONPATH")
    return environment


def _receive(read_fd: int, child: subprocess.Popen[bytes], time_s: float) -> tuple[bytes, bool]:
    """Return what comes through the pipe until the tests end or time out.

    Other processes that hold the pipe open are not waited for.
    """
    received, until = b"", time.monotonic() + time_s
    while True:
        over = child.poll() is not None
        ready = select.select([read_fd], [], [], 0 if over else 0.05)[0]
        chunk = os.read(read_fd, 65536) if ready else b""
        if len(received) <= MAX_REPORT:
            received += chunk
        if (ready and not chunk) or (over and (not ready or len(received) > MAX_REPORT)):
            break
        if time.monotonic() > until:
            return received, True
    while child.poll() is None:  # the pipe is closed, but the process is still running
        if time.monotonic() > until:
            return received, True
        time.sleep(0.01)
    return received, False


def _checked(received: bytes, nonce: str, code: int) -> dict[str, object]:
    """Return the report; it is whole only where every line is the tests' own, to the last."""
    records = []
    whole = len(received) <= MAX_REPORT
    for number, line in enumerate(received.decode("utf-8", "replace").splitlines()):
        try:
            record = json.loads(line)
        except ValueError:
            record = None
        if not isinstance(record, dict) or record.pop("by", None) != [nonce, number]:
            whole = False  # something else wrote into the pipe
            break
        records.append(record)
    last = records[-1] if records else {}
    return {"records": records, "code": code, "whole": whole and last.get("over") == code}


if __name__ == "__main__":
    main()
