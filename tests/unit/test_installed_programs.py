"""Where a program is found, and what of the host its box is shown: real files in real layouts."""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from bakeoff.agents.programs.catalog import AIDER, CLAUDE_CODE, CODEX, CONTINUE
from bakeoff.agents.programs.command import find_installed
from bakeoff.core.errors import UsageError
from bakeoff.core.sandbox import Mount
from support.parts import require


def executable(path: Path, text: str = "\x7fELF") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def package(folder: Path, name: str, version: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "package.json").write_text(json.dumps({"name": name, "version": version}))
    return folder


def linked(link: Path, target: Path) -> str:
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(os.path.relpath(target, link.parent))
    return str(link)


def test_a_native_program_of_npm_is_shown_with_its_packages(tmp_path: Path) -> None:
    modules = tmp_path / "lib" / "node_modules"
    root = package(modules / "@anthropic-ai" / "claude-code", CLAUDE_CODE.package, "2.1.0")
    program = linked(tmp_path / "bin" / "claude", executable(root / "bin" / "claude.exe"))
    found = find_installed(CLAUDE_CODE, program)
    assert found.argv == ("/opt/bakeoff/agent/@anthropic-ai/claude-code/bin/claude.exe",)
    assert found.mounts == (Mount(source=str(modules), target="/opt/bakeoff/agent"),)
    assert found.version == "2.1.0"


def test_a_script_of_npm_is_started_with_this_machines_node(tmp_path: Path) -> None:
    require("node", shutil.which("node"), "apt install nodejs")
    modules = tmp_path / "node_modules"
    root = package(modules / "@continuedev" / "cli", CONTINUE.package, "1.5.0")
    script = executable(root / "dist" / "cn.js", "#!/usr/bin/env node\n")
    found = find_installed(CONTINUE, linked(modules / ".bin" / "cn", script))
    node, program = found.argv
    assert program == "/opt/bakeoff/agent/@continuedev/cli/dist/cn.js"
    sources = {mount.target: mount.source for mount in found.mounts}
    assert sources[node] == str(Path(str(shutil.which("node"))).resolve())
    assert sources["/opt/bakeoff/agent"] == str(modules)


@pytest.mark.parametrize(
    "other_half", ["@openai", "@openai/codex/node_modules/@openai"], ids=["beside", "inside"]
)
def test_of_codex_only_the_real_program_is_shown(tmp_path: Path, other_half: str) -> None:
    modules = tmp_path / "node_modules"
    root = package(modules / "@openai" / "codex", CODEX.package, "0.166.0")
    script = executable(root / "bin" / "codex.js", "#!/usr/bin/env node\n")
    vendor = modules / other_half / "codex-linux-x64" / "vendor" / "x86_64-unknown-linux-musl"
    executable(vendor / "bin" / "codex")
    found = find_installed(CODEX, linked(modules / ".bin" / "codex", script))
    assert found.argv == ("/opt/bakeoff/agent/bin/codex",)
    assert found.mounts == (Mount(source=str(vendor), target="/opt/bakeoff/agent"),)
    assert found.version == "0.166.0"


def test_a_program_without_a_package_is_shown_alone_and_says_its_own_version(
    tmp_path: Path,
) -> None:
    program = executable(tmp_path / "codex", "#!/bin/sh\necho codex-cli 1.2.3-beta.4\n")
    found = find_installed(CODEX, str(program))
    assert found.argv == ("/opt/bakeoff/agent",)
    assert found.mounts == (Mount(source=str(program), target="/opt/bakeoff/agent"),)
    assert found.version == "1.2.3-beta.4"


@pytest.mark.parametrize("opening", ["#!{python}\n", "#!/bin/sh\n'''exec' '{python}' \"$0\"\n"])
def test_a_program_of_python_stays_where_it_is_with_its_interpreter(
    tmp_path: Path, opening: str
) -> None:
    base = tmp_path / "python" / "3.12"
    executable(base / "bin" / "python3.12")
    home = tmp_path / "tools" / "aider-chat"
    python = Path(linked(home / "bin" / "python", base / "bin" / "python3.12"))
    script = executable(home / "bin" / "aider", opening.format(python=python))
    (home / "lib/python3.12/site-packages/aider_chat-0.86.2.dist-info").mkdir(parents=True)
    found = find_installed(AIDER, linked(tmp_path / "bin" / "aider", script))
    assert found.argv == (str(python), str(script))
    assert {m.source for m in found.mounts} >= {str(home)}
    assert [m for m in found.mounts if Path(m.source).resolve() == base]
    assert all(m.source == m.target and not m.writable for m in found.mounts)
    assert found.version == "0.86.2"


def test_a_script_beside_a_shared_python_is_refused_with_the_install_line(tmp_path: Path) -> None:
    script = executable(tmp_path / "bin" / "aider", f"#!{sys.base_prefix}/bin/python3\n")
    with pytest.raises(UsageError) as told:
        find_installed(AIDER, str(script))
    assert "not in an environment of its own" in str(told.value)
    assert str(told.value).endswith(AIDER.install)


def test_an_executable_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="/codex'"):
        find_installed(CODEX, str(tmp_path / "codex"))


@pytest.mark.parametrize("stated", ["", "[]", "{", '{"name": "@anthropic-ai/claude-code"}'])
def test_a_package_that_states_nothing_readable_is_asked_for_its_version(
    tmp_path: Path, stated: str
) -> None:
    (tmp_path / "package.json").write_text(stated)
    program = executable(tmp_path / "claude", "#!/bin/sh\necho version 1.2.3\n")
    assert find_installed(CLAUDE_CODE, str(program)).version == "1.2.3"
