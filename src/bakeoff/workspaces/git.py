"""Runs git on private repositories that nothing else writes to.

No configuration of the machine, the user or a repository is read, no hook, filter or driver runs,
and there is no work tree: an agent's files are passed as data and never read by git itself.
"""

import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from bakeoff._lib.sanitize import for_terminal
from bakeoff.core.errors import SandboxError
from bakeoff.workspaces.threads import ThreadWork

COMMIT_AUTHOR = "Bakeoff <bakeoff@localhost>"
COMMIT_DATE = (
    "946684800 +0000"  # 2000-01-01: equal files make an equal commit, on any machine and day
)
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
    """Return the path of git; SandboxError where it is not installed."""
    path = shutil.which("git")
    if path is None:
        raise SandboxError("git is not installed; install it (Debian: apt install git)")
    return path


def trusted_environment(git_dir: Path, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the complete environment in which git runs."""
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


def make_repository(
    git_dir: Path, *, alternates: Iterable[Path] = (), sha256: bool = False
) -> None:
    """Create an empty bare repository that can also read the objects of *alternates*."""
    (git_dir / "objects" / "info").mkdir(parents=True)
    (git_dir / "objects" / "pack").mkdir()
    (git_dir / "info").mkdir()
    (git_dir / "refs").mkdir()
    (git_dir / "HEAD").write_text("ref: refs/heads/none\n", encoding="ascii")
    (git_dir / "config").write_text(_CONFIG + (_SHA256 if sha256 else ""), encoding="ascii")
    lines = "".join(f"{other.resolve()}/objects\n" for other in alternates)
    (git_dir / "objects" / "info" / "alternates").write_text(lines, encoding="utf-8")


def git(
    work: ThreadWork,
    git_dir: Path,
    *args: str,
    stdin: bytes | Iterable[bytes] = b"",
    more: Mapping[str, str] | None = None,
) -> bytes:
    """Return git's output; SandboxError with its last lines where it fails."""
    done = run_git(work, git_dir, *args, stdin=stdin, more=more)
    if done.returncode:
        raise SandboxError(f"git {args[0]} failed: {last_lines(done.stderr)}")
    return done.stdout


def run_git(
    work: ThreadWork,
    git_dir: Path,
    *args: str,
    stdin: bytes | Iterable[bytes] = b"",
    more: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """Run git and return how it ended."""
    return work.run((program(), *args), stdin=stdin, env=trusted_environment(git_dir, more))


def last_lines(output: bytes, *, most: int = 600) -> str:
    """Return the last lines of a program's output, for a message."""
    lines = for_terminal(output.decode("utf-8", "replace")).strip().splitlines()[-6:]
    return " / ".join(line.strip() for line in lines)[-most:] or "it printed nothing"


def quoted(path: bytes) -> bytes:
    """Return *path* quoted as git does, in ASCII."""
    result = bytearray(b'"')
    for byte in path:
        if byte in b'"\\':
            result += b"\\%c" % byte
        elif 32 <= byte < 127:
            result.append(byte)
        else:
            result += b"\\%03o" % byte
    return bytes(result + b'"')
