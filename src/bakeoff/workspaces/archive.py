"""The change of a whole box, as an archive: counted, and freed of what must not reach the grade."""

import gzip
import io
import tarfile
from collections.abc import Iterable

from bakeoff.core.errors import SandboxError
from bakeoff.core.workspace import Change
from bakeoff.workspaces.aside import Work
from bakeoff.workspaces.protection import Protection


def count_files(_: Work, archive: bytes) -> int:
    """Return how many files and links *archive* holds."""
    with _opened(archive) as tar:
        return sum(1 for member in tar if not member.isdir())


def graded(
    work: Work, change: Change, root: str, protection: Protection, covered: Iterable[str]
) -> tuple[bytes, tuple[str, ...], tuple[str, ...]]:
    """Return *change*'s archive and what is gone, without what is protected; and what that was.

    Paths under *covered* are places of the grader: nothing may come there before it. Beyond the
    task's own protected paths nothing is held back: to install things is part of such tasks.
    """
    tops = [f"{top.strip('/')}/" for top in covered]
    undone: list[str] = []

    def counts(path: str) -> bool:
        plain = path.removeprefix("./").strip("/")
        if any(f"{plain}/".startswith(top) for top in tops) or _is_protected(
            plain, root.strip("/"), protection
        ):
            undone.append(plain)
            return False
        return True

    gone = tuple(path for path in change.gone if counts(path))
    kept = io.BytesIO()
    with (
        _opened(change.archive or b"") as old,
        gzip.GzipFile(fileobj=kept, mode="wb", compresslevel=1, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w|", format=tarfile.PAX_FORMAT) as new,
    ):
        for member in old:
            work.go_on()
            if counts(member.name):
                new.addfile(member, old.extractfile(member) if member.isreg() else None)
    return kept.getvalue(), gone, tuple(undone)


def _is_protected(path: str, root: str, protection: Protection) -> bool:
    """Whether a path of the box is one that the workspace protects, seen from its root."""
    if root and not path.startswith(f"{root}/"):
        return False
    inside = path.removeprefix(f"{root}/") if root else path
    return protection.covers(inside.encode("utf-8", "surrogateescape"))


def _opened(archive: bytes) -> tarfile.TarFile:
    try:
        return tarfile.open(fileobj=io.BytesIO(archive), mode="r|gz")
    except tarfile.TarError as error:
        raise SandboxError(
            f"the change of the box is no archive that can be read: {error}"
        ) from error
