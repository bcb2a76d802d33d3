"""The scorer `reward`: a task's own verifier, as Harbor and Terminal-Bench run it."""

import math
import os
import secrets
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bakeoff._lib import scratch
from bakeoff._lib.sanitize import one_line, well_formed
from bakeoff.core.errors import UsageError
from bakeoff.core.outcome import Outcome
from bakeoff.core.ports import Context
from bakeoff.core.record import Score
from bakeoff.core.sandbox import Command, GradingSpec, GradingWorkspace, Mount
from bakeoff.core.task import Task
from bakeoff.core.values import Json
from bakeoff.scorers.grading_box import (
    CheckError,
    check_change,
    last_lines,
    open_grading_workspace,
    run_check,
    truncate,
    workspace_of,
)
from bakeoff.scorers.json_answer import read_json

_LOGS = "/logs/verifier"
_BASH = "/bin/bash"  # not one that an agent put on PATH
_FILES = ("reward.json", "reward.txt")
_MAX_BYTES = 65_536
_PROBE_S = 60.0
_SIGNALLED = range(129, 193)  # exit codes of what a signal ended: 128 and its number
_MAX_NAMED = 3
_SAFE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, kw_only=True)
class Reward:
    """The reward that the task's verifier writes, 0 to 1.

    `bash /tests/test.sh` is run in the clean room; it writes /logs/verifier/reward.json, with a
    `reward` or several by name, of which the mean counts, or reward.txt, with one number. Where both
    are there and disagree, the lower one counts. The folder belongs to the verifier's user.

    A verifier that writes neither, or something else, or does not end by itself, gives no reward,
    and neither does a file that is written to after its end. Where it gives one without the change,
    the change is why, and scores 0; else that is a fault. Its exit code does not matter, unless it
    says that a signal ended it.
    """

    script: str = "/tests/test.sh"
    time_s: float = 600.0
    environment: Mapping[str, str] = field(default_factory=dict)

    def check(self, task: Task) -> None:
        """Refuse a task without a workspace, or whose verifier is not among what is hidden."""
        workspace = workspace_of(task, "reward")
        hidden_paths = [tree.at.rstrip("/") for tree in workspace.hidden]
        if not any(self.script.startswith(f"{path}/") for path in hidden_paths if path):
            raise UsageError(
                f"task {task.id!r}: scorer 'reward' runs {self.script}, and no hidden files go "
                f"there; there are: {', '.join(hidden_paths) or 'none'}",
                task=task.id,
            )

    async def score(self, task: Task, outcome: Outcome, context: Context) -> Score:
        """Run the verifier and read its reward."""

        async def check(outcome: Outcome) -> Score:
            logs = scratch.new_folder("verifier")
            try:
                logs.chmod(0o777)  # for any user in the box; the folder above is private
                return await self._score(task, outcome, context, logs)
            finally:
                scratch.remove(logs)

        return await check_change(check, outcome, scorer="reward")

    async def _score(self, task: Task, outcome: Outcome, context: Context, logs: Path) -> Score:
        shown = Mount(source=str(logs), target=_LOGS, writable=True)
        opened = open_grading_workspace(
            task,
            outcome,
            context,
            scorer="reward",
            spec=GradingSpec(mounts=(shown,), environment=self.environment),
        )
        async with opened as grading:
            is_shared = await _give_to_verifier(grading, logs)
            command = Command(
                argv=(_BASH, self.script), environment=self.environment, time_s=self.time_s
            )
            ran = await run_check(grading, command, scorer="reward")
            at_the_end = _RewardFiles.read(logs)
            await grading.box.stop()  # nothing writes any more
            written = _RewardFiles.read(logs)
            ended = f"exit code {ran.code}; {last_lines(ran.output)}"
            if ran.code is None or ran.code in _SIGNALLED:
                how = ran.stopped or f"code {ran.code}"
                raise CheckError(f"scorer 'reward': the verifier was ended ({how}); {ended}")
            if is_shared and written != at_the_end:
                raise CheckError(
                    "scorer 'reward': the reward was written to after the verifier had ended; "
                    f"{ended}"
                )
            rewards, objection = written.rewards(ended)
            value = _value(rewards)
            return Score(
                scorer="reward",
                value=value,
                explanation=_explanation(value, objection, ended, grading.undone),
                details={
                    "rewards": dict(rewards),
                    "code": ran.code,
                    "duration_s": round(ran.elapsed_s, 3),
                    "output": truncate(ran.output),
                    "undone": list(grading.undone),
                },
            )


async def _give_to_verifier(grading: GradingWorkspace, logs: Path) -> bool:
    """Make the folder writable for the verifier's user only, where this user may do that.

    Returns whether files that the box writes are visible here at once.
    """
    probe = f".{secrets.token_hex(8)}"
    await grading.box.run(Command(argv=("/bin/sh", "-c", f": >{_LOGS}/{probe}"), time_s=_PROBE_S))
    return _shut_to_others(logs, logs / probe)


def _shut_to_others(logs: Path, probe: Path) -> bool:
    """Make the user that wrote *probe* the owner of *logs*; return whether *probe* exists."""
    try:
        verifier = probe.lstat()
    except FileNotFoundError:  # the box works on a copy of the folder
        return False
    probe.unlink(missing_ok=True)
    if os.geteuid() == 0:
        os.chown(logs, verifier.st_uid, verifier.st_gid)
    if os.geteuid() in (0, verifier.st_uid):  # otherwise this user could not remove its files
        logs.chmod(0o755)
    return True


def _explanation(
    value: float, objection: str | None, ended: str, undone: Sequence[str]
) -> str | None:
    """Return why the reward is not 1, for people."""
    if value >= 1:
        return None
    reasons = [objection] if objection else []
    if undone:
        more = f" and {len(undone) - _MAX_NAMED} more" if len(undone) > _MAX_NAMED else ""
        reasons.append(
            f"the verifier did not see what was changed at {', '.join(undone[:_MAX_NAMED])}{more} (for a "
            "task about the system itself, set trust_system_changes = true)"
        )
    return one_line("; ".join([*reasons, ended]), width=600)


@dataclass(frozen=True, kw_only=True)
class _RewardFiles:
    """The reward files: the text of each, or why it cannot be read."""

    texts: Mapping[str, str]
    problems: Mapping[str, str]
    stamps: Mapping[str, tuple[int, ...]]

    @classmethod
    def read(cls, logs: Path) -> "_RewardFiles":
        """Read the files as they are now."""
        texts, problems, stamps = {}, {}, {}
        for name in _FILES:
            try:
                texts[name], stamps[name] = _read_small_file(logs / name)
            except FileNotFoundError:
                continue
            except OSError as error:
                problems[name] = str(error.strerror)
        return cls(texts=texts, problems=problems, stamps=stamps)

    def rewards(self, ended: str) -> tuple[dict[str, float], str | None]:
        """Return the rewards by name, the lower ones if two files differ, and a note about that."""
        for name, why in self.problems.items():
            raise CheckError(f"scorer 'reward': {name} cannot be read: {why}; {ended}")
        given: dict[str, dict[str, float]] = {}
        for name, text in self.texts.items():
            try:
                given[name] = _check_rewards(
                    read_json(text) if name.endswith(".json") else float(text)
                )
            except ValueError as error:
                raise CheckError(
                    f"scorer 'reward': {name} holds no reward from 0 to 1 but {one_line(text)!r} "
                    f"({error}); {ended}"
                ) from error
        if not given:
            raise CheckError(
                f"scorer 'reward': the verifier wrote no reward.json or reward.txt; {ended}"
            )
        lowest = min(given, key=lambda name: _value(given[name]))
        values = {name: _value(rewards) for name, rewards in given.items()}
        if len(set(values.values())) == 1:
            return given[next(iter(given))], None
        both = " and ".join(f"{name} says {value:g}" for name, value in values.items())
        return given[lowest], f"{both}: the lower one counts"


def _value(rewards: Mapping[str, float]) -> float:
    return rewards.get("reward", sum(rewards.values()) / len(rewards))


def _check_rewards(value: Json) -> dict[str, float]:
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


def _read_small_file(path: Path) -> tuple[str, tuple[int, ...]]:
    """Read a small untrusted file, without following links or blocking; return it and its stamp."""
    file = os.open(path, _SAFE)
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(0, "it is not a file")
        text = os.read(file, _MAX_BYTES).decode("utf-8", "replace").strip()
        return text, (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    finally:
        os.close(file)
