"""Detects once what bubblewrap can use on this host, and prepares what all boxes share."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from bakeoff._lib import scratch
from bakeoff.core.errors import SandboxError, UsageError
from bakeoff.sandboxes.bubblewrap import seccomp
from bakeoff.sandboxes.bubblewrap.root import python_of, write_support
from bakeoff.sandboxes.host import cgroups
from bakeoff.sandboxes.host.cgroups import Cgroups

INSTALL = "apt install bubblewrap (or: dnf install bubblewrap, pacman -S bubblewrap)"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_TRY_TIMEOUT_S = 30.0
_NAMESPACES = (
    "--unshare-all",
    "--unshare-user",
    *("--uid", "1000", "--gid", "1000"),
    *("--cap-drop", "ALL"),
    *("--hostname", "box"),
    "--die-with-parent",
    "--new-session",
)


@dataclass(frozen=True, kw_only=True)
class HostSupport:
    """What this host offers for boxes.

    `support` is a private folder with files that every box shows; `python_mounts` are needed where
    the host has no python3 of its own; `seccomp_filter` filters system calls, where the processor is
    supported, and `grading_seccomp_filter` those of a grading box.
    """

    program: str
    namespaces: tuple[str, ...]
    rootfs: Path | None
    python: str | None
    python_mounts: tuple[str, ...]
    cgroups: Cgroups | None
    support: Path
    seccomp_filter: Path | None
    grading_seccomp_filter: Path | None

    @property
    def path(self) -> str:
        """The PATH in a box."""
        mounted_python = self.python if self.python_mounts else None
        return PATH if mounted_python is None else f"{PATH}:{Path(mounted_python).parent}"


def prepare(rootfs: Path | None, *, with_cgroups: bool) -> HostSupport:
    """Detect what this host supports; UsageError or SandboxError where it supports no box."""
    program = find_bwrap()
    namespaces = usable_namespaces(program)
    python, python_mounts = python_of(rootfs)
    groups = cgroups.find() if with_cgroups else None
    support = scratch.new_folder("bubblewrap")
    seccomp_filter, grading_seccomp_filter = support / "seccomp", support / "seccomp-grading"
    try:
        write_support(support)
        filtered = seccomp.write_filter(seccomp_filter, grading=False)
        seccomp.write_filter(grading_seccomp_filter, grading=True)
    except BaseException:
        scratch.remove(support)
        raise
    return HostSupport(
        program=program,
        namespaces=namespaces,
        rootfs=rootfs,
        python=python,
        python_mounts=tuple(python_mounts),
        cgroups=groups,
        support=support,
        seccomp_filter=seccomp_filter if filtered else None,
        grading_seccomp_filter=grading_seccomp_filter if filtered else None,
    )


def find_bwrap() -> str:
    """Return the path of bubblewrap."""
    program = shutil.which("bwrap")
    if program is None:
        raise UsageError(f"bubblewrap is not installed; get it with: {INSTALL}")
    return program


def usable_namespaces(program: str) -> tuple[str, ...]:
    """Return the namespace arguments that work here; SandboxError where none do."""
    strict = (*_NAMESPACES, "--disable-userns")
    refusal = _refusal(program, strict)
    if refusal is None:
        return strict
    if "nknown option" in refusal:  # before 0.8: the seccomp filter has to be enough
        refusal = _refusal(program, _NAMESPACES)
        if refusal is None:
            return _NAMESPACES
    raise SandboxError(
        f"bubblewrap cannot make a box here: {refusal}; user namespaces may be forbidden "
        "(sysctl kernel.unprivileged_userns_clone=1, or on Ubuntu "
        "kernel.apparmor_restrict_unprivileged_userns=0, allows them)"
    )


def _refusal(program: str, arguments: tuple[str, ...]) -> str | None:
    """Return bubblewrap's error for *arguments*; None where they work."""
    # program folders only: some other mount of the machine may be disappearing just now
    folders = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix")
    mounts = [argument for folder in folders for argument in ("--ro-bind-try", folder, folder)]
    argv = [program, *arguments, *mounts, "--proc", "/proc", "true"]
    try:
        completed = subprocess.run(
            argv,
            capture_output=True,
            text=True,
            check=False,
            env={"PATH": PATH},
            timeout=_TRY_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        return f"a box that does nothing did not end within {_TRY_TIMEOUT_S:g} s"
    return None if completed.returncode == 0 else completed.stderr.strip()
