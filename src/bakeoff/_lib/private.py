"""Files and folders that only their owner may read, whatever the umask: results hold what was said."""

import os
from pathlib import Path

FOLDER_MODE = 0o700
FILE_MODE = 0o600


def make_folder(folder: Path, *, exist_ok: bool = True) -> None:
    """Make *folder*, with all above it that is missing; what is there already stays as it is."""
    missing = []
    above = folder
    while not above.exists() and above != above.parent:
        missing.append(above)
        above = above.parent
    if not missing and not exist_ok:
        raise FileExistsError(17, "File exists", str(folder))
    for made in reversed(missing):
        made.mkdir(mode=FOLDER_MODE, exist_ok=exist_ok or made != folder)


def make_file(path: Path) -> None:
    """Make sure that there is a file at *path*; one that is made is empty and private."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE))
