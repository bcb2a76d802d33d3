"""Real container engines for tests: a private dockerd, a private podman, images without a registry.

An engine is started when it is first asked for and ends with the test process, also when that is
killed. All it keeps is under one temporary folder; nothing of the machine's own engines is touched.
Processes that a test starts find the same engine through the environment.
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
_RUNNING = "BAKEOFF_TESTS_{name}"  # where the engine of a parent process has its home

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

    def has_image(self, image: str) -> bool:
        """Whether an image of this name is there."""
        return (
            image
            in self.call("images", "--format", "{{.Repository}}:{{.Tag}}")
            .replace("localhost/", "")
            .split()
        )

    def with_busybox(self) -> str:
        """Return the name of a tiny image that has a shell; made where it is missing."""
        return _busybox(self)

    def with_python(self) -> str:
        """Return the name of a Debian image with Python, git and libstdc++."""
        return _python(self)


def why_no_engine(name: str) -> str | None:
    """Return what to do where the engine called *name* cannot be had, None where it can."""
    programs = {"docker": ("dockerd", "docker"), "podman": ("podman", "runc")}[name]
    if os.geteuid() != 0:
        return "root, for a container engine of the tests' own"
    return None if all(shutil.which(program) for program in programs) else _INSTALL


def engine(name: str) -> Engine:
    """Return the engine called `docker` or `podman`; skip the test where it cannot be had."""
    missing = why_no_engine(name)
    require(f"{name} for tests", missing is None, missing or "")
    return {"docker": docker, "podman": podman}[name]()


@cache
def docker() -> Engine:
    """Start a private dockerd that leaves the machine's network alone."""
    if above := os.environ.get(_RUNNING.format(name="docker")):
        return _docker_in(Path(above))
    home = _home("docker")
    started = _docker_in(home)
    log = (home / "dockerd.log").open("wb")
    daemon = subprocess.Popen(
        # dies with the test process, whatever ends that
        [
            *(
                "setpriv",
                "--pdeathsig",
                "TERM",
                "dockerd",
                "--host",
                started.environment["DOCKER_HOST"],
            ),
            *("--data-root", str(home / "root"), "--exec-root", str(home / "exec")),
            *("--pidfile", str(home / "pid"), "--iptables=false", "--bridge=none"),
        ],
        stdout=log,
        stderr=log,
        start_new_session=True,
    )
    log.close()
    atexit.register(_end_docker, daemon, home)
    _wait_for(started, daemon)
    os.environ[_RUNNING.format(name="docker")] = str(home)
    return started


def _docker_in(home: Path) -> Engine:
    environment = _client(DOCKER_HOST=f"unix://{home}/docker.sock")
    return Engine(name="docker", home=home, environment=environment)


@cache
def podman() -> Engine:
    """Set up a private podman; it needs no daemon."""
    if above := os.environ.get(_RUNNING.format(name="podman")):
        return _podman_in(Path(above))
    home = _home("podman")
    (home / "containers.conf").write_text(_CONTAINERS_CONF.format(home=home))
    (home / "storage.conf").write_text(_STORAGE_CONF.format(home=home))
    made = _podman_in(home)
    atexit.register(_end_podman, made)
    made.call("info")
    os.environ[_RUNNING.format(name="podman")] = str(home)
    return made


def _podman_in(home: Path) -> Engine:
    environment = _client(
        CONTAINERS_CONF=str(home / "containers.conf"),
        CONTAINERS_STORAGE_CONF=str(home / "storage.conf"),
    )
    return Engine(name="podman", home=home, environment=environment)


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


def _busybox(where: Engine) -> str:
    if not where.has_image(BUSYBOX):
        where.call("build", "-q", "-t", BUSYBOX, str(_busybox_context()))
    return BUSYBOX


def _python(where: Engine) -> str:
    if not where.has_image(PYTHON):
        where.call("import", str(debian_tar()), PYTHON)
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
