"""Paths inside a workspace, as people write them."""

from bakeoff.core.errors import SandboxError


def parts_of(path: str) -> list[str]:
    """Return the names in *path* that say something: not the empty ones, and not `.`."""
    return [part for part in path.split("/") if part not in ("", ".")]


def plain_path(path: str) -> str:
    """Return *path* with nothing but names in it; SandboxError where it leads out."""
    parts = parts_of(path)
    if ".." in parts:
        raise SandboxError(f"{path!r} leads out of the workspace; give a path inside it")
    return "/".join(parts)
