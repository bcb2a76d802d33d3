"""Runs in the grading box: starts the tests in processes of their own and signs what they reported.

It is sent as text to whatever Python is there (3.7 or later), and imports nothing of the workspace.
The secret it signs with comes through its standard input and is known to nobody else in the box;
the tests, which run the agent's code, can end or confuse their own process, but cannot sign.

The test files are taken out of the box before any code of the agent runs, and handed to the process
of the tests: what that process starts cannot look up what is expected.

The tests run twice, in an order that chance decides: as they are, and as decoys that must fail (see
plan.py). Code that makes tests pass by any other way than being right makes decoys pass too.
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

MOST = 3_000_000  # bytes of a report; what is longer is not whole
MOST_NAMES = 50
CANNOT = 70


def main() -> None:
    """Read the secret, run the tests, print the signed report."""
    secret = sys.stdin.buffer.read()
    with contextlib.suppress(OSError):
        os.ftruncate(0, 0)  # where it is a file, others in the box may have it open
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    _shut_others_out()
    _say(secret, {"started": True})
    report = _Tests(sys.argv[1], sys.argv[2], json.loads(sys.argv[3])).run()
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


class _Tests:
    """The tests of one scorer: what is planned, and how they are run, as they are and as decoys."""

    def __init__(self, tests: str, planning: str, wanted: dict[str, object]) -> None:
        self._sources = (tests, planning)
        self._wanted = wanted
        plan = types.ModuleType("plan")
        exec(compile(planning, "<plan>", "exec"), plan.__dict__)  # noqa: S102 -- it is ours
        found = plan.read_plan(wanted["runner"], wanted["paths"])
        self._plan = plan
        self._test_files: dict[str, str] = {}
        self._planned = [test.id for tests in found.values() for test in tests]
        self._decoys, self._sure = plan.choose_decoys(found, random.SystemRandom())

    def run(self) -> dict[str, object]:
        """Return what the tests reported, what was planned, and how the decoys went."""
        paths = [str(path) for path in self._wanted["paths"]]  # type: ignore[attr-defined]
        missing = [path for path in paths if not os.path.exists(path.split("::")[0])]  # noqa: PTH110
        if missing:
            record = {"missing": missing}
            return {"records": [record], "code": CANNOT, "whole": True, "out_of_time": False}
        if self._wanted["read_once"]:
            self._test_files = self._plan.take_sources(self._wanted["runner"], paths)
        control: dict[str, object] | None = None
        # by chance: code that knows it runs for the second time knows nothing
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
            "passed": passed[:MOST_NAMES] if in_place else [],
            "failed": failed,
        }

    def _run(self, decoys: dict[str, list[list[int]]] | None) -> dict[str, object]:
        """Run the tests and return all that they said, with how their process ended."""
        told, telling = os.pipe()
        nonce = secrets.token_hex(16)
        child = subprocess.Popen(
            [sys.executable, "-c", *self._sources, str(telling), json.dumps(self._wanted)],
            stdin=subprocess.PIPE,
            stdout=None if decoys is None else subprocess.DEVNULL,
            stderr=None if decoys is None else subprocess.DEVNULL,
            pass_fds=(telling,),
            env=_environment(),
            start_new_session=True,
        )
        os.close(telling)
        orders = {"nonce": nonce, "decoys": decoys, "sources": self._test_files}
        with contextlib.suppress(BrokenPipeError):
            if child.stdin is not None:
                child.stdin.write(json.dumps(orders).encode())
                child.stdin.close()
        said, out_of_time = _heard(told, child, float(str(self._wanted["time_s"])))
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)  # what they left must not print into the report
        os.close(told)
        return dict(_checked(said, nonce, child.wait()), out_of_time=out_of_time)


def _environment() -> dict[str, str]:
    """Return the variables of the tests' process, in which nothing can stand for Python's modules.

    It imports what it needs first, and then from the folders that PYTHONPATH named.
    """
    environment = dict(os.environ)
    if "PYTHONPATH" in environment:
        environment["BAKEOFF_PYTHONPATH"] = environment.pop("PYTHONPATH")
    return environment


def _heard(told: int, child: subprocess.Popen[bytes], time_s: float) -> tuple[bytes, bool]:
    """Return what comes through the pipe until the tests or their time are over.

    Whoever else holds the pipe open is not waited for.
    """
    said, until = b"", time.monotonic() + time_s
    while True:
        over = child.poll() is not None
        ready = select.select([told], [], [], 0 if over else 0.05)[0]
        piece = os.read(told, 65536) if ready else b""
        if len(said) <= MOST:
            said += piece
        if (ready and not piece) or (over and (not ready or len(said) > MOST)):
            break
        if time.monotonic() > until:
            return said, True
    while child.poll() is None:  # the pipe is shut, and the process is not over
        if time.monotonic() > until:
            return said, True
        time.sleep(0.01)
    return said, False


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
