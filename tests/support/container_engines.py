"""Real container engines for tests: a private dockerd, a private podman, images without a registry.

An engine is started when it is first asked for and ends with the test process. Where that is killed,
dockerd ends with it, and the next one takes away what else is left. All it keeps is under one
temporary folder; nothing of the machine's own engines is touched. Processes that a test starts find
the same engine through the environment.
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
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from bakeoff._lib import process_identity
from bakeoff.sandboxes.containers.engine import EngineName
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
# needed to set it up and by nobody after: what is taken out of a box is found by reading all of it
_TAKEN_AWAY = 'cd "$1/usr" && rm -rf share/perl lib/*/perl lib/*/gconv lib/git-core/git-http* lib/git-core/git-imap*'

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

    name: EngineName
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
    atexit.register(_end_docker_of, daemon, home)
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
    atexit.register(_end_podman, home)
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
    """Return a new folder, and take away those of test processes that were killed.

    A socket's path must be short, so it is not under pytest's folder.
    """
    with Path(f"/tmp/bakeoff-test-engines-{os.getuid()}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of several workers one cleans up
        for left in Path("/tmp").glob(f"bakeoff-{name}-*"):
            mark = process_identity.find(left.name)
            if mark is not None and process_identity.is_dead(mark):
                _END[name](left)
    return Path(
        tempfile.mkdtemp(prefix=f"bakeoff-{name}-{process_identity.current()}-", dir="/tmp")
    )


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


def _end_docker_of(daemon: subprocess.Popen[bytes], home: Path) -> None:
    _end_docker(home)
    daemon.wait(_READY_S)


def _end_docker(home: Path) -> None:
    environment = _client(DOCKER_HOST=f"unix://{home}/docker.sock")
    left = _quietly(["docker", "ps", "-aq"], environment).split()
    if left:
        _quietly(["docker", "rm", "-f", *left], environment)
    with suppress(FileNotFoundError, ProcessLookupError):
        os.kill(int((home / "pid").read_text()), signal.SIGTERM)
    until = time.monotonic() + _READY_S
    while (home / "pid").exists() and time.monotonic() < until:
        time.sleep(0.05)
    _remove(home)


def _end_podman(home: Path) -> None:
    _quietly(["podman", "rm", "-f", "-a", "-t", "0"], _podman_in(home).environment)
    _remove(home)


_END = {"docker": _end_docker, "podman": _end_podman}


def _quietly(words: list[str], environment: Mapping[str, str]) -> str:
    """Run a client that may find its engine gone already."""
    done = subprocess.run(words, env=dict(environment), check=False, capture_output=True)
    return done.stdout.decode(errors="replace")


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


def _busybox(where: Engine) -> str:
    if not where.has_image(BUSYBOX):
        busybox = shutil.which("busybox")
        require("a static busybox", busybox, _INSTALL)
        folder = where.home / "busybox"
        folder.mkdir(exist_ok=True)
        shutil.copy(str(busybox), folder / "busybox")
        (folder / "Dockerfile").write_text(_BUSYBOX_FILE)
        where.call("build", "-q", "-t", BUSYBOX, str(folder))
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
    recipe = f"{suite} {_PACKAGES} {_LEFT_OUT} {_TAKEN_AWAY}"
    stamp = hashlib.sha256(recipe.encode()).hexdigest()[:12]
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
    left_out.append(f"--customize-hook={_TAKEN_AWAY}")
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
