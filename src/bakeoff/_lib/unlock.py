"""A file or folder that shuts its owner out, opened to the owner again."""

import os

_PRIVATE = 0o700


def unlock(name: str | bytes, parent: int | None) -> None:
    """Let the owner into what is called *name* in the open folder *parent*; no link is followed."""
    if not hasattr(os, "O_PATH"):
        os.chmod(name, _PRIVATE, dir_fd=parent, follow_symlinks=False)
        return
    handle = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        os.chmod(f"/proc/self/fd/{handle}", _PRIVATE)  # noqa: PTH101 -- the only way to change just this
    finally:
        os.close(handle)
