"""The container image of the Dockerfile, built by a real engine, and shards that run in it."""

import json
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import bakeoff
from bakeoff.app.inspection import check_run
from support.container_engines import Engine, engine
from support.parts import require
from support.plans import write_suite
from support.shards import summary_of

pytestmark = pytest.mark.soak  # wheels are downloaded, and an image is built: up to two minutes

ROOT = Path(__file__).parents[2]
IMAGE = "bakeoff-test-image:1"
ECHO = "scripted/echo"

# What python:X-slim is beyond a Debian with Python: `python` and `pip` on the PATH.
_BASE = """\
FROM {debian}
COPY *.whl /pip/
RUN python3 $(echo /pip/*.whl)/pip install --quiet --no-index --break-system-packages /pip/*.whl \\
 && rm -rf /usr/lib/python3*/EXTERNALLY-MANAGED /pip && ln -s /usr/bin/python3 /usr/local/bin/python
"""


def pip() -> list[str]:
    """A pip that works here, whatever environment the tests run in."""
    for python in (str(ROOT / ".tools/bin/python"), sys.executable, "python3"):
        if (found := shutil.which(python)) is None:
            continue
        words = [found, "-m", "pip"]
        if subprocess.run([*words, "--version"], capture_output=True, check=False).returncode == 0:
            return words
    require("pip", None, "make setup")
    raise AssertionError


def download(folder: Path, version: str, *packages: str) -> None:
    """Download wheels for the Python *version* of the image."""
    of_image = ["--only-binary", ":all:", "--python-version", version, "--implementation", "cp"]
    words = [*pip(), "download", "--quiet", "--dest", str(folder), *of_image, *packages]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    require(
        f"wheels ({done.stderr[-300:]})", done.returncode == 0, "a package index that pip reaches"
    )


@pytest.fixture(scope="module")
def docker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """An engine that has the image; nothing in it came from a registry, nor went over a network."""
    docker, context = engine("docker"), tmp_path_factory.mktemp("context")
    debian = docker.with_python()
    version = docker.call("run", "--rm", "--network", "none", debian, "python3", "-c",
                          "import sys; print('%d.%d' % sys.version_info[:2])").strip()  # fmt: skip
    base, wheels = context / "base", context / "wheels"
    download(base, version, "pip")
    (base / "Dockerfile").write_text(_BASE.format(debian=debian))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    needed = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    download(wheels, version, *needed)
    for name in ("docs", "examples", "src"):
        shutil.copytree(ROOT / name, context / name)
    for name in ("Dockerfile", ".dockerignore", "pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):  # fmt: skip
        shutil.copy(ROOT / name, context)
    (context / ".env").write_text("OPENAI_API_KEY=sk-not-for-images\n")
    docker.call("build", "-q", "--network", "none", "-t", f"python:{version}-slim", str(base))
    shutil.rmtree(base)
    given = {
        "PYTHON": version, "PACKAGES": "", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/source/wheels",
    }  # fmt: skip
    args = [word for name, value in given.items() for word in ("--build-arg", f"{name}={value}")]
    for target in (["--target", "build", "-t", f"{IMAGE}-build"], ["-t", IMAGE]):
        docker.call("build", "-q", "--network", "none", *args, *target, str(context))
    yield docker
    docker.call("rmi", "-f", IMAGE, f"{IMAGE}-build")


def in_container(docker: Engine, *words: str, work: Path | None = None, options: tuple[str, ...] = ()) -> str:  # fmt: skip
    mounted = ["-v", f"{work}:/work"] if work else []
    return docker.call("run", "--rm", "--init", "--network", "none", *mounted, *options, IMAGE, *words)  # fmt: skip


def test_the_image_is_bakeoff_and_does_not_run_as_root(docker: Engine) -> None:
    assert in_container(docker, "--version").startswith("bakeoff ")
    assert "bakeoff COMMAND" in in_container(docker)
    ids = docker.call("run", "--rm", "--network", "none", "--entrypoint", "id", IMAGE)
    assert "uid=1000(bakeoff)" in ids


def test_only_what_the_wheel_is_made_from_reaches_the_build(docker: Engine) -> None:
    there = docker.call("run", "--rm", "--network", "none", f"{IMAGE}-build", "ls", "-A", "/source")
    assert {".env", "Dockerfile", "tests", ".git"}.isdisjoint(there.split())
    size = int(docker.call("image", "inspect", "--format", "{{.Size}}", IMAGE))
    base = int(docker.call("image", "inspect", "--format", "{{.Size}}", f"{IMAGE}-build"))
    assert size < base  # neither sources nor wheels are in it


def test_shards_in_containers_are_merged_into_one_run(docker: Engine, tmp_path: Path) -> None:
    write_suite(tmp_path / "suite.json", 6)
    tmp_path.chmod(0o777)  # whoever runs in the container writes here
    run = ["run", "suite.json", "-m", ECHO, "--json", "--shard"]
    in_container(docker, *run, "0/2", work=tmp_path)
    anybody = ("--user", "4242:4242", "--read-only", "--tmpfs", "/tmp")
    (tmp_path / "runs").chmod(0o777)
    second = in_container(docker, *run, "1/2", work=tmp_path, options=anybody)
    assert json.loads(second)["buckets"]["scored"] == 3
    merged = bakeoff.merge(sorted((tmp_path / "runs").iterdir()), output=tmp_path / "merged")
    whole = bakeoff.run(tmp_path / "suite.json", models=[ECHO], output=tmp_path / "one")
    # the tasks remember another path of their file, which is not part of what they are
    assert merged.manifest.plan == whole.manifest.plan
    assert summary_of(merged) == summary_of(whole)
    assert not check_run(merged).lines
