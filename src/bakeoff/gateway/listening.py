"""The sockets of a gateway: one in the file system, for boxes without a network, one on loopback."""

import os
import secrets
import shutil
import socket
import tempfile
from pathlib import Path

from bakeoff._lib import owner
from bakeoff.core.errors import SandboxError

_LONGEST_PATH = 100  # bytes; the kernel takes 107, and other systems less
_PREFIX = "bakeoff-gateway-"
_WAITING = 512


class Listening:
    """Two sockets that listen; `url` and `path` say where."""

    def __init__(self, folder: Path) -> None:
        reap()
        self._own_folder: Path | None = None
        try:
            self.path = self._place(folder)
            self.unix = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.unix.bind(str(self.path))
            self.path.chmod(0o666)  # whoever a box runs as; the token is what lets them in
            self.unix.listen(_WAITING)
            self.tcp = socket.create_server(("127.0.0.1", 0), backlog=_WAITING)
        except OSError as error:
            raise SandboxError(
                f"the gateway cannot listen in {folder}: {error}; it needs a folder that it may "
                "write to, and a free port on 127.0.0.1"
            ) from error
        self.url = f"http://127.0.0.1:{self.tcp.getsockname()[1]}"

    def _place(self, folder: Path) -> Path:
        name = f"{secrets.token_hex(4)}.sock"
        if len(os.fsencode(folder.absolute() / name)) > _LONGEST_PATH:
            folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{owner.mine()}-"))
            self._own_folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o711)  # not to be listed, but to be reached by the user of a box
        return folder.absolute() / name

    def close(self) -> None:
        """Leave nothing behind; servers on the sockets must be closed before."""
        self.unix.close()
        self.tcp.close()
        self.path.unlink(missing_ok=True)
        if self._own_folder:
            shutil.rmtree(self._own_folder, ignore_errors=True)


def reap() -> None:
    """Take away the temporary folders of gateways whose process is gone."""
    for left in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        mark = owner.find(left.name)
        if mark and owner.is_dead(mark):
            shutil.rmtree(left, ignore_errors=True)
