"""Real container engines for tests: a private dockerd, a private podman, images without a registry.

An engine is started when it is first asked for and ends with the test process, also when that is
killed. All it keeps is under one temporary folder; nothing of the machine's own engines is touched.
"""

import atexit
import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from support.parts import require

BUSYBOX = "bakeoff-test-busybox:1"
PYTHON = "bakeoff-test-python:1"
_INSTALL = "sh tests/setup_system.sh (as root, on Debian)"
_READY_S = 60.0

_BUSYBOX_FILE = """\
FROM scratch
COPY busybox /bin/busybox
RUN ["/bin/busybox", "--install", "-s", "/bin"]
RUN ["/bin/mkdir", "-m", "1777", "/tmp", "/home"]
"""

# libstdc++ and glibc of the machine's own release: its node runs in the image when it is mounted
_PACKAGES = "python3,git,libstdc++6,ca-certificates"
_LEFT_OUT = ("doc", "man", "info", "locale")

_CONTAINERS_CONF = """\
[containers]
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
tmp_dir = "{home}/tmp"
[network]
network_config_dir = "{home}/net"
"""

_STORAGE_CONF = """\
[storage]
driver = "overlay"
runroot = "{home}/run"
graphroot = "{home}/root"
"""


@dataclass(frozen=True, kw_only=True)
class Engine:
    """An engine that is up: the name of its client, and the environment that leads to it."""

    name: str
    home: Path
    environment: Mapping[str, str]

    def call(self, *words: str, data: bytes | None = None) -> str:
        """Run the client and return what it printed."""
        done = subprocess.run(
            [self.name, *words],
            env=dict(self.environment),
            input=data,
            check=False,
            capture_output=True,
        )
        if done.returncode:
            error = done.stderr.decode(errors="replace")
            raise RuntimeError(f"{self.name} {words[0]} gave {done.returncode}: {error}")
        return done.stdout.decode(errors="replace")

    def containers(self) -> list[str]:
        """Return the names of all containers, running or not."""
        return self.call("ps", "-a", "--format", "{{.Names}}").split()

    def with_busybox(self) -> str:
        """Return the name of a tiny image that has a shell; made where it is missing."""
        return _busybox(self)

    def with_python(self) -> str:
        """Return the name of a Debian image with Python, git and libstdc++."""
        return _python(self)


def engine(name: str) -> Engine:
    """Return the engine called `docker` or `podman`; skip the test where it cannot be had."""
    require("root, for a container engine of the tests' own", os.geteuid() == 0, "sudo")
    return {"docker": docker, "podman": podman}[name]()


@cache
def docker() -> Engine:
    """Start a private dockerd that leaves the machine's network alone."""
    found = shutil.which("dockerd") and shutil.which("docker")
    require("a Docker engine", found, _INSTALL)
    home = _home("docker")
    socket = home / "docker.sock"
    log = (home / "dockerd.log").open("wb")
    daemon = subprocess.Popen(
        # dies with the test process, whatever ends that
        [
            *("setpriv", "--pdeathsig", "TERM", "dockerd", "--host", f"unix://{socket}"),
            *("--data-root", str(home / "root"), "--exec-root", str(home / "exec")),
            *("--pidfile", str(home / "pid"), "--iptables=false", "--bridge=none"),
        ],
        stdout=log,
        stderr=log,
        start_new_session=True,
    )
    log.close()
    atexit.register(_end_docker, daemon, home)
    started = Engine(name="docker", home=home, environment=_client(DOCKER_HOST=f"unix://{socket}"))
    _wait_for(started, daemon)
    return started


@cache
def podman() -> Engine:
    """Set up a private podman; it needs no daemon."""
    found = shutil.which("podman") and shutil.which("runc")
    require("podman with runc", found, _INSTALL)
    home = _home("podman")
    (home / "containers.conf").write_text(_CONTAINERS_CONF.format(home=home))
    (home / "storage.conf").write_text(_STORAGE_CONF.format(home=home))
    made = Engine(
        name="podman",
        home=home,
        environment=_client(
            CONTAINERS_CONF=str(home / "containers.conf"),
            CONTAINERS_STORAGE_CONF=str(home / "storage.conf"),
        ),
    )
    atexit.register(_end_podman, made)
    made.call("info")
    return made


# --- starting and ending ------------------------------------------------------------------------


def _home(name: str) -> Path:
    """Return a new folder; a socket's path must be short, so not under pytest's."""
    return Path(tempfile.mkdtemp(prefix=f"bakeoff-{name}-", dir="/tmp"))


def _client(**more: str) -> dict[str, str]:
    """Return an environment with the engine's address and nothing of the user's settings."""
    return {"PATH": os.environ["PATH"], "HOME": "/nonexistent", **more}


def _wait_for(started: Engine, daemon: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + _READY_S
    while time.monotonic() < until and daemon.poll() is None:
        seen = subprocess.run(
            ["docker", "version"], env=dict(started.environment), check=False, capture_output=True
        )
        if seen.returncode == 0:
            return
        time.sleep(0.1)
    tail = (started.home / "dockerd.log").read_text(errors="replace")[-2000:]
    raise RuntimeError(f"dockerd did not come up within {_READY_S:g} s: {tail}")


def _end_docker(daemon: subprocess.Popen[bytes], home: Path) -> None:
    environment = _client(DOCKER_HOST=f"unix://{home}/docker.sock")
    left = subprocess.run(
        ["docker", "ps", "-aq"], env=environment, check=False, capture_output=True
    ).stdout
    if left.split():
        subprocess.run(
            ["docker", "rm", "-f", *left.split()], env=environment, check=False, capture_output=True
        )
    daemon.terminate()
    try:
        daemon.wait(30)
    except subprocess.TimeoutExpired:
        os.killpg(daemon.pid, signal.SIGKILL)
        daemon.wait(30)
    _remove(home)


def _end_podman(made: Engine) -> None:
    subprocess.run(
        ["podman", "rm", "-f", "-a", "-t", "0"],
        env=dict(made.environment),
        check=False,
        capture_output=True,
    )
    _remove(made.home)


def _remove(home: Path) -> None:
    """Take *home* away with all that is mounted in it; an engine's last acts may come late."""
    until = time.monotonic() + _READY_S
    while places := _mounted_under(home):
        if time.monotonic() > until:
            raise RuntimeError(f"still mounted: {places}")
        for place in places:
            subprocess.run(["umount", "-l", place], check=False, capture_output=True)
        time.sleep(0.05)
    shutil.rmtree(home)


def _mounted_under(home: Path) -> list[str]:
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    return sorted((place for place in mounts if place.startswith(f"{home}/")), reverse=True)


# --- images -------------------------------------------------------------------------------------


@cache
def _busybox_context() -> Path:
    busybox = shutil.which("busybox")
    require("a static busybox", busybox, _INSTALL)
    folder = Path(tempfile.mkdtemp(prefix="bakeoff-busybox-"))
    atexit.register(shutil.rmtree, folder)
    shutil.copy(str(busybox), folder / "busybox")
    (folder / "Dockerfile").write_text(_BUSYBOX_FILE)
    return folder


_made: set[tuple[str, str]] = set()


def _busybox(where: Engine) -> str:
    if (where.name, BUSYBOX) not in _made:
        where.call("build", "-q", "-t", BUSYBOX, str(_busybox_context()))
        _made.add((where.name, BUSYBOX))
    return BUSYBOX


def _python(where: Engine) -> str:
    if (where.name, PYTHON) not in _made:
        where.call("import", str(debian_tar()), PYTHON)
        _made.add((where.name, PYTHON))
    return PYTHON


@cache
def debian_tar() -> Path:
    """Return a Debian root with Python and git as a tar; made once (a minute), then kept."""
    require("mmdebstrap", shutil.which("mmdebstrap"), _INSTALL)
    suite = _release()
    stamp = hashlib.sha256(f"{suite} {_PACKAGES} {_LEFT_OUT}".encode()).hexdigest()[:12]
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bakeoff-tests"
    made = caches / f"debian-{suite}-{stamp}.tar"
    caches.mkdir(parents=True, exist_ok=True)
    with _locked(made.with_suffix(".lock")):
        if not made.exists():
            _bootstrap(suite, made)
    return made


def _bootstrap(suite: str, made: Path) -> None:
    partial = made.with_suffix(".partial.tar")
    left_out = [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in _LEFT_OUT]
    done = subprocess.run(
        ["mmdebstrap", "--variant=essential", f"--include={_PACKAGES}", *left_out, suite, partial],
        check=False,
        capture_output=True,
        text=True,
    )
    require(
        f"a Debian image ({done.stderr[-300:].strip()})",
        done.returncode == 0,
        "a network that reaches the Debian archive",
    )
    partial.rename(made)


def _release() -> str:
    """Return the code name of the machine's own release."""
    lines = Path("/etc/os-release").read_text().splitlines()
    known = dict(line.split("=", 1) for line in lines if "=" in line)
    return known.get("VERSION_CODENAME", "bookworm").strip('"')


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
