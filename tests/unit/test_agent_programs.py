"""The declarations of the named coding agents, and what fields in a command may do."""

import json
import tomllib

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from bakeoff.agents.programs.catalog import MODEL, PROGRAMS, AgentProgram
from bakeoff.agents.programs.command import (
    Aider,
    ClaudeCode,
    Codex,
    CommandAgent,
    Continue,
    GeminiCli,
    MiniSweAgent,
    OpenCode,
    QwenCode,
)
from bakeoff.agents.programs.output import FIELDS, fill, final_message
from bakeoff.core.errors import UsageError

VALUES = {
    "gateway": "http://127.0.0.1:8765",
    "token": "t0ken-of-the-trial",
    "model": MODEL,
    "home": "/home/agent",
    "instruction": "Fix it.",
    "instruction_file": "/home/agent/.bakeoff/instruction.md",
}
EVERY = pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
CLASSES = (
    Aider,
    ClaudeCode,
    Codex,
    Continue,
    GeminiCli,
    MiniSweAgent,
    OpenCode,
    QwenCode,
)


def test_there_is_a_class_for_every_declaration() -> None:
    assert {kind.program.name for kind in CLASSES} == set(PROGRAMS)


@EVERY
def test_the_token_is_never_an_argument(program: AgentProgram) -> None:
    for arguments in (program.first, program.again or ()):
        assert not [word for word in arguments if "{token}" in word]


@EVERY
def test_the_only_key_a_program_is_given_is_the_token(program: AgentProgram) -> None:
    keys = {n: v for n, v in program.environment.items() if n.endswith(("_KEY", "_TOKEN"))}
    assert set(keys.values()) <= {"{token}"}
    texts = [*program.environment.values(), *program.files.values(), *program.first]
    assert any("{token}" in text for text in texts)
    assert any("{gateway}" in text for text in texts)


@EVERY
def test_a_program_is_given_its_instruction_once_as_input_file_or_argument(
    program: AgentProgram,
) -> None:
    for arguments in (program.first, program.again or program.first):
        named = [word for word in arguments if "{instruction" in word]
        assert len(named) <= 1
        assert len(named) == (program.name in {"aider", "mini-swe-agent"})


@EVERY
def test_files_are_written_under_the_home_and_can_be_read(program: AgentProgram) -> None:
    readers = {"toml": tomllib.loads, "yaml": yaml.safe_load, "json": json.loads}
    for path, text in program.files.items():
        assert not path.startswith(("/", ".."))
        assert readers[path.rpartition(".")[2]](fill(text, VALUES))


@EVERY
def test_the_install_line_names_the_package(program: AgentProgram) -> None:
    assert program.package in program.install.split()
    assert "\n" not in program.install


@EVERY
def test_an_agent_that_is_not_installed_is_told_with_one_line(
    program: AgentProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    kind = next(kind for kind in CLASSES if kind.program is program)
    with pytest.raises(UsageError) as told:
        kind().mounts()
    assert str(told.value).endswith(program.install)
    assert "\n" not in str(told.value)


# --- fields -----------------------------------------------------------------------------------


@given(st.text())
def test_what_a_field_holds_is_never_read_again(instruction: str) -> None:
    assert fill("{instruction}", {"instruction": instruction}) == instruction


def test_a_field_in_a_field_stays_text() -> None:
    values = dict.fromkeys(FIELDS, "{token}") | {"token": "secret"}
    assert fill("say {instruction}", values) == "say {token}"


@pytest.mark.parametrize(
    "text", ["{}", "{0}", "{instruction.__class__}", "{instruction!r}", "{{model}", "{other}", "{"]
)
def test_only_named_fields_are_replaced(text: str) -> None:
    assert fill(text, VALUES) == text.replace("{model}", MODEL)


# --- any command ------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["", "  ", ()])
def test_an_empty_command_is_a_usage_error(command: str | tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="is empty"):
        CommandAgent(command=command)


@pytest.mark.parametrize("command", ["cd src && ./agent", "agent | tee log", "agent > log"])
def test_a_text_that_needs_a_shell_is_told_how_to_get_one(command: str) -> None:
    with pytest.raises(UsageError, match='"sh", "-c"'):
        CommandAgent(command=command)


def test_a_text_with_an_open_quote_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="No closing quotation"):
        CommandAgent(command="agent 'do it")


def test_a_path_to_mount_must_be_there() -> None:
    with pytest.raises(UsageError, match="/no/such/agent"):
        CommandAgent(command="agent", mounted=("/no/such/agent",)).mounts()


# --- the last message -------------------------------------------------------------------------


def test_the_last_message_of_codex_is_found_among_other_lines() -> None:
    final = PROGRAMS["codex"].final
    assert final is not None
    lines = [
        '{"type":"item.completed","item":{"type":"agent_message","text":"first"}}',
        "WARNING: something",
        '{"type":"item.completed","item":{"type":"agent_message","text":"last"}}',
        '{"type":"item.completed","item":{"type":"command_execution","text":"no"}}',
        '{"type":"turn.completed","usage":{"input_tokens":1}}',
        '{"type":"item.completed","item":[',
        "[]",
    ]
    assert final_message("\n".join(lines), final) == "last"
    assert final_message("nothing of the kind\n{}\n", final) is None
