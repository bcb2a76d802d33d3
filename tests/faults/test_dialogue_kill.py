"""Dialogues whose runner is killed: what was answered is not asked again, and nothing is lost."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import bakeoff
from bakeoff.core.record import Attempt, Status
from support.agent_benches import Players, write_agent, write_base, write_bench
from support.cli import not_outliving
from support.loopback import Asked, Loopback, Reply, chat
from support.parts import require

ROOT = Path(__file__).parents[2]
AT_WORK = ROOT / "tests" / "support" / "dialogue_at_work.py"
TURNS = 4
REQUESTS = 10  # four replies; three messages of the instructor, each checked
LINES = 2 * TURNS


def only(folder: Path) -> Attempt:
    (record,) = bakeoff.load_run(folder).trials()
    return record.attempt


def at_work(config: Path, folder: Path, last: int, *, resume: bool) -> int:
    words = [sys.executable, str(AT_WORK), str(config), str(folder), str(last)]
    done = subprocess.run(
        [*words, *(["--resume"] if resume else [])], capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode


def told(attempt: Attempt) -> list[tuple[str, str]]:
    assert attempt.outcome is not None
    return [(m.role, m.content) for m in attempt.outcome.transcript]


def test_killed_after_every_line_the_talk_is_the_same_and_each_request_was_seen_once(
    tmp_path: Path,
) -> None:
    write_bench(tmp_path, ["case"])
    with Loopback(Players(TURNS)) as server:
        config = write_base(tmp_path, server.url)
        write_agent(tmp_path, "one", server.url)
        whole = tmp_path / "whole"
        assert at_work(config, whole, 0, resume=False) == 0
        assert len(server.requests) == REQUESTS
        server.requests.clear()

        cut = tmp_path / "cut"
        for line in range(1, LINES + 1):
            assert at_work(config, cut, line, resume=line > 1) == -signal.SIGKILL
        assert at_work(config, cut, 0, resume=True) == 0

        bodies = Counter(json.dumps(asked.body, sort_keys=True) for asked in server.requests)
        assert set(bodies.values()) == {1}
        assert len(bodies) == REQUESTS
    before, after = only(whole), only(cut)
    assert after.status is Status.COMPLETED
    assert told(after) == told(before)
    assert after.outcome is not None
    assert before.outcome is not None
    assert after.outcome.notes == before.outcome.notes
    # what was spent before the kills is in the record, once
    assert after.spent.requests == before.spent.requests == TURNS
    assert after.spent.usage == before.spent.usage
    assert {n: s.usage for n, s in after.roles.items()} == {
        n: s.usage for n, s in before.roles.items()
    }
    assert after.bill == before.bill
    assert bakeoff.load_run(cut).billed() == bakeoff.load_run(whole).billed()
    assert after.number == 1


class Killer:
    """Lets *answered* requests of a session pass, and kills its runner at the next."""

    def __init__(self, players: Players) -> None:
        self._players = players
        self.left = 0
        self.child: subprocess.Popen[bytes] | None = None
        self.killed = 0

    def __call__(self, asked: Asked) -> Reply:
        if self.left == 0:
            assert self.child is not None
            os.kill(self.child.pid, signal.SIGKILL)
            self.killed += 1
            return Reply(status=503)
        self.left -= 1
        return self._players(asked)


def test_the_runner_killed_at_every_request_goes_on_where_it_was(tmp_path: Path) -> None:
    write_bench(tmp_path, ["case"])
    players = Players(TURNS)
    killer = Killer(players)
    with Loopback(killer) as server:
        base = write_base(tmp_path, server.url)
        write_agent(tmp_path, "one", server.url)
        words = [sys.executable, str(ROOT / "runner.py"), "--base_config", str(base)]
        words += ["--agent_config", str(tmp_path / "agent_configs")]
        said = b""
        for session in range(REQUESTS):
            killer.left = 1
            again = ["--resume"] if session else []
            killer.child = subprocess.Popen([*words, *again], stderr=subprocess.PIPE)
            with not_outliving(killer.child) as child:
                _, said = child.communicate(timeout=60)
            if session < REQUESTS - 1:
                assert killer.child.returncode == -signal.SIGKILL, said
    assert killer.child is not None
    assert killer.child.returncode == 0, said
    assert killer.killed == REQUESTS - 1
    assert Counter(party for party, _ in players.asked) == {
        "agent": 4,
        "instructor": 3,
        "supervisor": 3,
    }
    assert set(Counter(players.asked).values()) == {1}
    (run,) = (tmp_path / "results").iterdir()
    (entry,) = json.loads((run / "all_results.json").read_text())
    assert (entry["status"], entry["conversation_turns"]) == ("completed", 4)
    assert entry["tokens"]["supervisor"] == {"requests": 3, "input": 21, "output": 9}
    history = json.loads(Path(entry["checkpoint_path"]).read_text())["conversation_history"]
    assert [h["role"] for h in history].count("assistant agent") == 4
    assert len(Path(entry["log_path"]).read_text().splitlines()) == LINES + 1  # how it ended


def test_one_that_is_stopped_says_how_to_go_on_and_is_billed_once(tmp_path: Path) -> None:
    write_bench(tmp_path, ["case"])
    players = Players(TURNS)
    stopper = Stopper(players, after=5)
    with Loopback(stopper) as server:
        base = write_base(tmp_path, server.url)
        write_agent(tmp_path, "one", server.url)
        words = [sys.executable, str(ROOT / "runner.py"), "--base_config", str(base)]
        words += ["--agent_config", str(tmp_path / "agent_configs")]
        stopper.child = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
        with not_outliving(stopper.child) as child:
            _, said = child.communicate(timeout=60)
        assert child.returncode == 130, said
        assert "--resume run_" in said
        done = subprocess.run([*words, "--resume"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        again = subprocess.run(words, capture_output=True, text=True, check=False)
        assert "was not finished" not in again.stderr
    (run, _) = sorted((tmp_path / "results").iterdir())
    attempt = only(run / "run")
    assert attempt.status is Status.COMPLETED
    assert attempt.spent.requests == TURNS
    assert attempt.number == 2  # the first was stopped, and that is on record
    billed = bakeoff.load_run(run / "run").billed()
    assert billed.tokens == 10 * REQUESTS  # what was answered, each once
    roles = json.loads((run / "summary.json").read_text())["role_fidelity"]
    assert roles["marked_turns"] == {"contradicted": 1, "overruled": 1}


class Stopper:
    """Stops the runner as a system does at its shutdown, when *after* requests were answered."""

    def __init__(self, players: Players, *, after: int) -> None:
        self._players = players
        self._left = after
        self.child: subprocess.Popen[str] | None = None

    def __call__(self, asked: Asked) -> Reply:
        if self._left == 0 and self.child is not None and self.child.poll() is None:
            self.child.send_signal(signal.SIGTERM)
            self.child.wait(timeout=30)
        self._left -= 1
        return self._players(asked)


def _codes(messages: list[dict[str, Any]]) -> Reply:
    """Count up in the session, one cell for each message, and tell the count."""
    if messages[-1]["role"] == "tool":
        return chat(f"it is {messages[-1]['content']}")
    number = sum(message["role"] == "tool" for message in messages) + 1
    code = "n = 1" if number == 1 else "n += 1"
    arguments = json.dumps({"code": f"{code}\nopen('log.txt', 'a').write(f'{{n}}\\n')\nn"})
    call: dict[str, Any] = {"id": f"c{number}", "type": "function"}
    call["function"] = {"name": "run_code", "arguments": arguments}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    usage = {"prompt_tokens": 7, "completion_tokens": 3}
    data = {"id": "x", "model": "loopback", "choices": [choice], "usage": usage}
    return Reply(headers={"Content-Type": "application/json"}, body=json.dumps(data).encode())


def test_a_python_session_is_what_it_was_after_a_kill(tmp_path: Path) -> None:
    require("bubblewrap", shutil.which("bwrap"), "apt-get install bubblewrap")
    write_bench(tmp_path, ["case"])
    with Loopback(Players(3, agent=_codes)) as server:
        config = write_base(tmp_path, server.url)
        config.write_text(config.read_text() + '\n[sandbox]\nname = "bubblewrap"\n')
        write_agent(tmp_path, "one", server.url, run_code=True)
        cut = tmp_path / "cut"
        for line in (2, 4):
            assert at_work(config, cut, line, resume=line > 2) == -signal.SIGKILL
        assert at_work(config, cut, 0, resume=True) == 0
        bodies = Counter(json.dumps(asked.body, sort_keys=True) for asked in server.requests)
        assert set(bodies.values()) == {1}
    attempt = only(cut)
    assert [text for role, text in told(attempt) if role == "assistant" and text] == [
        "it is 1",
        "it is 2",
        "it is 3",
        "it is 4",
    ]
    assert attempt.outcome is not None
    assert attempt.outcome.change is not None
    assert "+1\n+2\n+3\n+4\n" in attempt.outcome.change.patch
