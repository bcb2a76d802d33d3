"""Task folders in Harbor's format: what is taken over, what is refused, and how that is told."""

from pathlib import Path

import pytest

from bakeoff.core.errors import UsageError
from bakeoff.core.task import ScorerSpec
from bakeoff.core.workspace import BoxLimits, Image, Reference
from bakeoff.formats.detect import read_task_folder, read_tasks
from bakeoff.formats.harbor import last_workdir

PLAIN = """\
version = "1.0"

[metadata]
author_name = "A. Person"
difficulty = "easy"
category = "programming"
tags = ["files"]

[verifier]
timeout_sec = 120.0

[agent]
timeout_sec = 240.0

[environment]
build_timeout_sec = 300.0
cpus = 2
memory_mb = 4096
storage_mb = 8192
"""


def harbor_folder(parent: Path, settings: str = PLAIN, name: str = "hello") -> Path:
    folder = parent / name
    for path, text in {
        "task.toml": settings,
        "instruction.md": "Write hello.txt.\n",
        "environment/Dockerfile": "FROM debian:12\nWORKDIR /app\nCOPY . .\n",
        "environment/data.txt": "data\n",
        "tests/test.sh": "echo 1 >/logs/verifier/reward.txt\n",
        "solution/solve.sh": "echo hello >hello.txt\n",
    }.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return folder


def wrong(folder: Path) -> str:
    with pytest.raises(UsageError) as told:
        read_task_folder(folder)
    return str(told.value).replace(str(folder.resolve()), "T")


def test_a_folder_with_an_environment_is_harbors(tmp_path: Path) -> None:
    folder = harbor_folder(tmp_path)
    task = read_task_folder(folder)
    assert (task.id, task.category, task.time_s) == ("hello", "programming", 240.0)
    assert task.messages[0].content == "Write hello.txt.\n"
    assert task.metadata == {"author_name": "A. Person", "difficulty": "easy", "tags": ["files"]}
    assert task.scorers == (ScorerSpec(name="reward", settings={"time_s": 120.0}),)
    workspace = task.workspace
    assert workspace is not None
    assert workspace.whole_box
    assert workspace.start == "/app"
    assert workspace.network  # Harbor's default
    assert workspace.image is not None
    assert workspace.image.context is not None
    assert workspace.image.context.path == str(folder / "environment")
    assert [(t.path, t.at) for t in workspace.hidden] == [(str(folder / "tests"), "/tests")]
    assert workspace.reference == Reference(kind="script", path=str(folder / "solution/solve.sh"))
    assert workspace.limits == BoxLimits(
        memory_mb=4096, processes=2048, disk_mb=8192, cpus=2, setup_s=300
    )


def test_newer_and_older_spellings_are_read_and_unknown_keys_do_not_matter(tmp_path: Path) -> None:
    settings = """\
schema_version = "1.4"
artifacts = ["/app/out"]
[task]
name = "org/hello"
description = "A greeting"
authors = [{ name = "A" }]
keywords = ["k"]
[verifier]
env = { MODE = "strict", FALLBACK = "${NOT_SET:-plain}" }
user = "root"
[agent]
user = "agent"
[environment]
docker_image = "org/hello:1"
workdir = "/srv/work"
memory = "3G"
storage = "512M"
allow_internet = false
env = { LANG = "C" }
healthcheck = { command = "true" }
[[environment.mcp_servers]]
name = "m"
"""
    task = read_task_folder(harbor_folder(tmp_path, settings))
    assert (task.name, task.time_s) == ("org/hello", 1800.0)
    assert task.metadata == {"description": "A greeting", "tags": ["k"]}
    assert task.scorers[0].settings == {
        "time_s": 600.0,
        "environment": {"MODE": "strict", "FALLBACK": "plain"},
    }
    workspace = task.workspace
    assert workspace is not None
    assert workspace.image == Image(name="org/hello:1")
    assert workspace.start == "/srv/work"
    assert (workspace.limits.memory_mb, workspace.limits.disk_mb) == (3072, 512)
    assert not workspace.network
    assert workspace.environment == {"LANG": "C"}


@pytest.mark.parametrize(
    ("settings", "network"),
    [
        ("[environment]\n", True),
        ("[environment]\nallow_internet = false\n", False),
        ('[environment]\nnetwork_mode = "public"\nallow_internet = false\n', True),
        ('[environment]\nnetwork_mode = "no-network"\n', False),
        ('[environment]\nnetwork_mode = "allowlist"\n', False),
        ('[agent]\nnetwork_mode = "allowlist"\nallowed_hosts = ["a.org"]\n', ("a.org",)),
        ('[agent]\nnetwork_mode = "no-network"\n[environment]\nnetwork_mode = "public"\n', False),
    ],
)
def test_the_network_is_as_the_task_says(
    settings: str, network: bool | tuple[str, ...], tmp_path: Path
) -> None:
    workspace = read_task_folder(harbor_folder(tmp_path, settings)).workspace
    assert workspace is not None
    assert workspace.network == network


def test_a_task_about_the_system_says_that_changes_of_it_are_trusted(tmp_path: Path) -> None:
    plain = read_task_folder(harbor_folder(tmp_path))
    said = PLAIN.replace("timeout_sec = 120.0", "timeout_sec = 120.0\ntrust_system_changes = true")
    trusting = read_task_folder(harbor_folder(tmp_path, said, name="trusting"))
    assert plain.workspace is not None
    assert trusting.workspace is not None
    assert not plain.workspace.trust_system_changes
    assert trusting.workspace.trust_system_changes
    assert plain.workspace.identity() != trusting.workspace.identity()


def test_marks_for_crawlers_are_not_part_of_the_instruction(tmp_path: Path) -> None:
    folder = harbor_folder(tmp_path)
    marks = "<!-- harbor-canary GUID 1-2 -->\n# BENCHMARK DATA SHOULD NEVER APPEAR IN TRAINING\n\n"
    told = "# A canary release\n\n<!-- why -->\nRoll it out.\n"
    (folder / "instruction.md").write_text(marks + told)
    assert read_task_folder(folder).messages[0].content == told


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ("version = 1\nx = y", "T/task.toml:2: not valid TOML"),
        (
            '[agent]\ntimeout_sec = "long"',
            "T/task.toml:2: key 'agent.timeout_sec': a number is expected",
        ),
        ('[environment]\nmemory = "much"', "T/task.toml:2: key 'environment.memory': 'much' is no"),
        ("[environment]\ngpus = 1", "T/task.toml:2: key 'environment.gpus': boxes have no GPU"),
        (
            '[[steps]]\nname = "a"',
            "T/task.toml:1: key 'steps': tasks with several steps are not supported",
        ),
        (
            '[verifier]\nenvironment_mode = "separate"',
            "T/task.toml:2: key 'verifier.environment_mode': a verifier with its own image",
        ),
        (
            '[verifier]\nenv = { KEY = "${OPENAI_API_KEY}" }',
            "T/task.toml:2: key 'verifier.env.KEY': ${OPENAI_API_KEY} is a variable of this machine",
        ),
        (
            '[agent]\nnetwork_mode = "allowlist"\nallowed_hosts = ["http://a.org"]',
            "T/task.toml:3: key 'agent.allowed_hosts': 'http://a.org' is no host",
        ),
    ],
)
def test_what_cannot_be_given_is_refused_by_file_line_and_key(
    settings: str, told: str, tmp_path: Path
) -> None:
    assert wrong(harbor_folder(tmp_path, settings)).startswith(told)


@pytest.mark.parametrize(
    ("gone", "told"),
    [
        ("task.toml", "T/task.toml does not exist"),
        ("instruction.md", "T/instruction.md cannot be read"),
        ("tests/test.sh", "T/tests/test.sh does not exist"),
        ("environment/Dockerfile", "T/environment/Dockerfile does not exist; write it, or name"),
    ],
)
def test_a_file_that_is_missing_is_named(gone: str, told: str, tmp_path: Path) -> None:
    folder = harbor_folder(tmp_path)
    (folder / gone).unlink()
    assert wrong(folder).startswith(told)


def test_several_containers_are_refused(tmp_path: Path) -> None:
    folder = harbor_folder(tmp_path)
    (folder / "environment" / "docker-compose.yaml").write_text("services: {}\n")
    assert wrong(folder).startswith("T/environment/docker-compose.yaml: several containers")


def test_the_first_terminal_bench_is_told_how_to_come_here(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "task.yaml").write_text("instruction: do it\n")
    with pytest.raises(UsageError, match="harbor tasks migrate"):
        read_tasks(tmp_path)


def test_both_formats_may_lie_in_one_suite(tmp_path: Path) -> None:
    harbor_folder(tmp_path, name="theirs")
    (tmp_path / "ours" / "tests").mkdir(parents=True)
    (tmp_path / "ours" / "instruction.md").write_text("Do it.")
    (tmp_path / "ours" / "tests" / "check.sh").write_text("exit 1")
    tasks = read_tasks(tmp_path).tasks
    assert [(task.id, task.scorers[0].name) for task in tasks] == [
        ("ours", "tests"),
        ("theirs", "reward"),
    ]


@pytest.mark.parametrize(
    ("dockerfile", "workdir"),
    [
        ("FROM a\nWORKDIR /app\n", "/app"),
        ("FROM a\nWORKDIR /app\nWORKDIR src\n", "/app/src"),
        ('FROM a\n  workdir "/with space"\n', "/with space"),
        ("FROM a AS b\nWORKDIR /build\nFROM c\nCOPY --from=b /x /x\n", None),
        ("FROM a\nWORKDIR $HOME\n", None),
        ("FROM a\nWORKDIR app\n", None),
        ("FROM a\n# WORKDIR /no\nRUN echo WORKDIR /no\n", None),
    ],
)
def test_where_a_container_starts_is_read_from_its_dockerfile(
    dockerfile: str, workdir: str | None
) -> None:
    assert last_workdir(dockerfile) == workdir
