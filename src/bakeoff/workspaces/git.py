"""Git as this program uses it: on repositories of its own, which nobody else writes to.

No configuration of the machine, the user or a repository is heard, no hook, filter or driver runs,
and there is no work tree: what an agent left is handed over as data and never looked at by git.
"""

import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from bakeoff._lib.untrusted import for_terminal
from bakeoff.core.errors import SandboxError
from bakeoff.workspaces.aside import Work

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
    work: Work,
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
    work: Work,
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
