"""A sandbox that is named on the command line keeps the settings that the run file gives it."""

import os
from pathlib import Path

import pytest

import bakeoff
from bakeoff.app.workspaces import named
from bakeoff.core.events import Event, Notice
from bakeoff.core.workspace import SandboxSpec
from support.coding_tasks import write_fix_add


def run_file(folder: Path, sandbox: str) -> Path:
    write_fix_add(folder)
    file = folder / "run.toml"
    file.write_text(f'suites = ["fix-add"]\nagents = ["nop"]\n[sandbox]\n{sandbox}\n')
    return file


def test_naming_the_sandbox_of_the_run_file_keeps_its_settings(tmp_path: Path) -> None:
    path = os.environ["PATH"]
    file = run_file(tmp_path, f'name = "local"\nsettings = {{ path = "{path}" }}')
    run = bakeoff.run(file, sandbox="local", output=tmp_path / "runs")
    assert run.manifest.sandbox == SandboxSpec(name="local", settings={"path": path})


def test_settings_of_another_sandbox_are_not_used_and_that_is_said(tmp_path: Path) -> None:
    file = run_file(tmp_path, 'name = "bubblewrap"\nsettings = { network = "host" }')
    events: list[Event] = []
    run = bakeoff.run(file, sandbox="local", output=tmp_path / "runs", listener=events.append)
    assert run.manifest.sandbox == SandboxSpec(name="local")
    notices = [event.text for event in events if isinstance(event, Notice)]
    assert (
        "sandbox 'local': the settings for 'bubblewrap' in the run file are not used: network"
    ) in notices


@pytest.mark.parametrize(
    ("before", "name", "kept"),
    [
        ("docker", "docker", True),
        ("docker", "podman", True),
        ("container", "podman", True),
        (None, "podman", True),
        ("docker", None, True),
        ("docker", "bubblewrap", False),
        ("bubblewrap", "container", False),
    ],
)
def test_docker_and_podman_share_their_settings(
    before: str | None, name: str | None, *, kept: bool
) -> None:
    spec = named(SandboxSpec(name=before, settings={"build_s": 9}), name)
    assert spec.name == (name or before)
    assert spec.settings == ({"build_s": 9} if kept else {})
