"""Git as this program uses it: on repositories of its own, which nobody else writes to.

No configuration of the machine, the user or a repository is heard, no hook, filter or driver runs,
and there is no work tree: what an agent left is handed over as data and never looked at by git.
"""

import asyncio
import os
import shutil
import subprocess
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Generic, TypeVar

from bakeoff._lib.process import uncancelled
from bakeoff._lib.sanitize import for_terminal
from bakeoff.core.errors import SandboxError
from bakeoff.workspaces.threads import ThreadWork

WHO = "Bakeoff <bakeoff@localhost>"
WHEN = "946684800 +0000"  # 2000-01-01: equal files make an equal commit, on any machine and day
_CONFIG = """\
[core]
	repositoryformatversion = 0
	bare = true
	filemode = true
	symlinks = true
	ignorecase = false
	precomposeunicode = false
	protectNTFS = false
	protectHFS = false
	hooksPath = /dev/null
	attributesFile = /dev/null
	excludesFile = /dev/null
	fsyncMethod = writeout-only
	fsync = none
	compression = 1
[fastimport]
	unpackLimit = 0
[gc]
	auto = 0
"""
_SHA256 = """\
[core]
	repositoryformatversion = 1
[extensions]
	objectFormat = sha256
"""


@cache
def program() -> str:
    """Return where git is; SandboxError where there is none."""
    found = shutil.which("git")
    if found is None:
        raise SandboxError("git is not installed; install it (Debian: apt install git)")
    return found


def trusted_environment(git_dir: Path, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return all that git gets to know of its surroundings."""
    return {
        "PATH": os.defpath,
        "LC_ALL": "C",
        "HOME": "/nonexistent",
        "GIT_DIR": str(git_dir),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_SYSTEM": "/dev/null",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_LITERAL_PATHSPECS": "1",
        **(more or {}),
    }


def make_repository(git_dir: Path, *, borrowing: Iterable[Path] = (), sha256: bool = False) -> None:
    """Make an empty repository without a work tree that can also read *borrowing*'s objects."""
    (git_dir / "objects" / "info").mkdir(parents=True)
    (git_dir / "objects" / "pack").mkdir()
    (git_dir / "info").mkdir()
    (git_dir / "refs").mkdir()
    (git_dir / "HEAD").write_text("ref: refs/heads/none\n", encoding="ascii")
    (git_dir / "config").write_text(_CONFIG + (_SHA256 if sha256 else ""), encoding="ascii")
    lenders = "".join(f"{other.resolve()}/objects\n" for other in borrowing)
    (git_dir / "objects" / "info" / "alternates").write_text(lenders, encoding="utf-8")


def git(
    work: ThreadWork,
    git_dir: Path,
    *args: str,
    stdin: bytes | Iterable[bytes] = b"",
    more: Mapping[str, str] | None = None,
) -> bytes:
    """Return what git prints; SandboxError with its last words where it fails."""
    done = run_git(work, git_dir, *args, stdin=stdin, more=more)
    if done.returncode:
        raise SandboxError(f"git {args[0]} failed: {last_words(done.stderr)}")
    return done.stdout


def run_git(
    work: ThreadWork,
    git_dir: Path,
    *args: str,
    stdin: bytes | Iterable[bytes] = b"",
    more: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """Run git to its end, whatever that is."""
    return work.run((program(), *args), stdin=stdin, env=trusted_environment(git_dir, more))


def last_words(output: bytes, *, most: int = 600) -> str:
    """Return the end of what a program printed, fit for a message."""
    lines = for_terminal(output.decode("utf-8", "replace")).strip().splitlines()[-6:]
    return " / ".join(line.strip() for line in lines)[-most:] or "it said nothing"


def quoted(path: bytes) -> bytes:
    """Return *path* as git writes names in quotes; all of it ASCII."""
    made = bytearray(b'"')
    for byte in path:
        if byte in b'"\\':
            made += b"\\%c" % byte
        elif 32 <= byte < 127:
            made.append(byte)
        else:
            made += b"\\%03o" % byte
    return bytes(made + b'"')


T = TypeVar("T")


class RefCache(Generic[T]):
    """Makes a thing when somebody first wants it; at most *spare* that nobody wants are kept."""

    def __init__(self, *, spare: int, discard: Callable[[T], Awaitable[None]]) -> None:
        self._spare = spare
        self._discard = discard
        self._made: OrderedDict[str, asyncio.Task[T]] = OrderedDict()
        self._users: dict[str, int] = {}

    @asynccontextmanager
    async def lend(self, key: str, make: Callable[[], Awaitable[T]]) -> AsyncIterator[T]:
        """Lend the thing called *key*; whoever comes first makes it, and the others wait."""
        task = self._made.get(key)
        if task is None:
            task = self._made[key] = asyncio.ensure_future(_made(make))
        self._made.move_to_end(key)
        self._users[key] = self._users.get(key, 0) + 1
        try:
            # one who is cancelled while waiting must not spoil it for the others
            yield await asyncio.shield(task)
        finally:
            self._users[key] -= 1
            await uncancelled(self._tidy())

    async def close(self) -> None:
        """Give everything away."""
        self._spare = 0
        for task in self._made.values():
            task.cancel()
        await self._tidy()

    async def _tidy(self) -> None:
        """Discard what could not be made, and what is neither wanted nor among the spare."""
        idle = [key for key in self._made if not self._users.get(key)]
        failed = [key for key in idle if self._made[key].done() and _failed(self._made[key])]
        spare = [key for key in idle if key not in failed]
        for key in (*failed, *spare[: max(0, len(spare) - self._spare)]):
            if self._users.get(key) or key not in self._made:
                continue  # while another was discarded, somebody took it, or threw it away
            task = self._made.pop(key)
            self._users.pop(key, None)
            task.cancel()
            await asyncio.wait({task})
            if not _failed(task):
                await self._discard(task.result())


async def _made(make: Callable[[], Awaitable[T]]) -> T:
    return await make()


def _failed(task: "asyncio.Task[T]") -> bool:
    return task.cancelled() or task.exception() is not None
