"""The scorer `reward`: a task's own verifier, as Harbor and Terminal-Bench run it."""

import math
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bakeoff._lib import scratch
from bakeoff._lib.untrusted import one_line, well_formed
from bakeoff.core.boxes import Command, Mount
from bakeoff.core.errors import ScorerError, UsageError
from bakeoff.core.outcome import Outcome
from bakeoff.core.ports import Context
from bakeoff.core.record import Score
from bakeoff.core.task import Task
from bakeoff.core.values import Json
from bakeoff.scorers.clean_room import last_lines, open_clean_room, run_in, shortened, workspace_of
from bakeoff.scorers.json_text import read_json

_LOGS = "/logs/verifier"
_BASH = "/bin/bash"  # not one that an agent put on PATH
_MOST = 65_536
_SAFE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, kw_only=True)
class Reward:
    """The reward that the task's verifier writes, 0 to 1.

    `bash /tests/test.sh` is run in the clean room; it writes /logs/verifier/reward.json, with a
    `reward` or several by name, of which the mean counts, or reward.txt, with one number. Where it
    writes neither, or something else, that is a fault and never a 0, whatever its exit code.
    """

    script: str = "/tests/test.sh"
    time_s: float = 600.0
    environment: Mapping[str, str] = field(default_factory=dict)

    def check(self, task: Task) -> None:
        """Refuse a task without a workspace, or whose verifier is not among what is hidden."""
        workspace = workspace_of(task, "reward")
        places = [tree.at.rstrip("/") for tree in workspace.hidden]
        if not any(self.script.startswith(f"{place}/") for place in places if place):
            raise UsageError(
                f"task {task.id!r}: scorer 'reward' runs {self.script}, and no hidden files go "
                f"there; there are: {', '.join(places) or 'none'}"
            )

    async def score(self, task: Task, outcome: Outcome, kit: Context) -> Score:
        """Run the verifier and read its reward."""
        logs = scratch.new_folder("verifier")
        try:
            logs.chmod(0o777)  # whoever the box makes of the verifier; the folder above is shut
            return await self._score(task, outcome, kit, logs)
        finally:
            scratch.remove(logs)

    async def _score(self, task: Task, outcome: Outcome, kit: Context, logs: Path) -> Score:
        shown = Mount(source=str(logs), target=_LOGS, writable=True)
        opened = open_clean_room(task, outcome, kit, scorer="reward", mounts=(shown,))
        async with opened as room:
            command = Command(
                argv=(_BASH, self.script), environment=self.environment, time_s=self.time_s
            )
            ran = await run_in(room, command, scorer="reward")
            await room.box.stop()  # nobody writes any more
            said = f"exit code {ran.code}; {last_lines(ran.output)}"
            rewards = _rewards(logs, said)
            value = rewards.get("reward", sum(rewards.values()) / len(rewards))
            return Score(
                scorer="reward",
                value=value,
                explanation=None if value >= 1 else one_line(said, width=400),
                details={
                    "rewards": dict(rewards),
                    "code": ran.code,
                    "duration_s": round(ran.elapsed_s, 3),
                    "output": shortened(ran.output),
                    "undone": list(room.undone),
                },
            )


def _rewards(logs: Path, said: str) -> dict[str, float]:
    """Return the rewards by name; ScorerError where there is none that can be read."""
    for name in ("reward.json", "reward.txt"):
        try:
            text = _text(logs / name)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise ScorerError(
                f"scorer 'reward': {name} cannot be read: {error.strerror}"
            ) from error
        try:
            return _checked(read_json(text) if name.endswith(".json") else float(text))
        except ValueError as error:
            raise ScorerError(
                f"scorer 'reward': {name} holds no reward from 0 to 1 but {one_line(text)!r} "
                f"({error}); {said}"
            ) from error
    raise ScorerError(f"scorer 'reward': the verifier wrote no reward.json or reward.txt; {said}")


def _checked(value: Json) -> dict[str, float]:
    named = value if isinstance(value, dict) else {"reward": value}
    rewards = {}
    for name, reward in named.items():
        if isinstance(reward, bool) or not isinstance(reward, int | float):
            raise ValueError(f"{name} is not a number")  # noqa: TRY004 -- one kind for all of them
        if not math.isfinite(reward) or not 0 <= reward <= 1:
            raise ValueError(f"{name} is not from 0 to 1")
        rewards[well_formed(name)] = float(reward)
    if not rewards:
        raise ValueError("it is empty")
    return rewards


def _text(path: Path) -> str:
    """Return a small file that a stranger may have put there: no link, nothing that waits."""
    file = os.open(path, _SAFE)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(0, "it is not a file")
        return os.read(file, _MOST).decode("utf-8", "replace").strip()
    finally:
        os.close(file)
