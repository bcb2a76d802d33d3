"""Options that were mixed up are answered with what was typed and what was meant."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from bakeoff.cli import call
from bakeoff.frontends.agent_bench import command
from bakeoff.frontends.rollouts import command as rollouts

BASE = '[benchmark]\nbenchmark_dir = "cases"\n'


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("suite.json").write_text(json.dumps({"tests": [{"id": "a", "prompt": "hi"}]}))
    Path("run.toml").write_text('suites = ["suite.json"]\nmodels = ["scripted"]\n')
    Path("base.toml").write_text(BASE)
    Path("agent_configs").mkdir()
    Path("empty.json").touch()
    Path("misspelt.toml").write_text('suites = ["suit.json"]\nmodels = ["scripted"]\n')
    Path("parts.py").write_text("def echo(request):\n    return 'x'\n")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("run suite.json -m scripted --agents shell", "suite.json is not one; did you mean --agent shell?"),
        ("run run.toml --agents codx", "run.toml is not one; did you mean --agent codex?"),
        ("run suite.json -m scripted --agents mine:solve", "did you mean --agent mine:solve?"),
        ("run agent_configs -m scripted --agents agent_configs", "agent_configs is not one; the name of an agent goes to --agent"),
        ("run base.toml --agents shell", '--agents shell: there is no such file or folder of agents; an agent file with framework = "shell"'),
        ("run base.toml --agents nowhere/x", "--agents nowhere/x: there is no such file or folder of agents"),
        ("run base.toml --agent agent_configs", "write --agents agent_configs"),
        ("run base.toml --agent one.toml", "write --agents one.toml"),
        ("run suite.json -m scripted --agent shel", "no agent is called 'shel': did you mean 'shell'?"),
        ("run --resume latest -m x --agents y --limit 1", "--model, --limit, --agents: a run that is resumed without its source"),
        ("run --resume latest --set rollouts=2", "--set: a run that is resumed without its source"),
        ("run suit.json -m scripted", "suit.json cannot be read: there is no such file; did you mean suite.json?"),
        ("run rum.toml", "did you mean run.toml?"),
        ("run agent_config -m scripted", "did you mean agent_configs?"),
        ("run suite.json -m scripted --only", "--only runs a part of an earlier run: add --resume RUN"),
        ("run misspelt.toml", "misspelt.toml:1: key 'suites': suit.json does not exist; did you mean 'suite.json'?"),
        ("run suite.json -m parts:echoo", "module 'parts' has no 'echoo'; did you mean 'echo'?"),
        ("run suite.json -m scripted --agent prts:echo", "No module named 'prts'; did you mean parts:echo?"),
        ("run nowhere/x.json -m scripted", "nowhere/x.json cannot be read: No such file or directory"),
        ("run . -m scripted", "there is no task in this folder; a task is a folder with an instruction.md; to run a file that is in it, name the file: base.toml"),
        ("run empty.json -m scripted", "empty.json is empty; it must hold JSON"),
    ],
)  # fmt: skip
def test_a_mixed_up_option_is_told_as_it_was_typed(
    words: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(words.split()) == 1
    said = capsys.readouterr().err
    assert says in said
    assert "benchmark.agent_config" not in said
    assert "overrides" not in said
    assert not Path("runs").exists()


def test_a_model_that_is_named_twice_is_told_of_before_it_costs_anything(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["run", "suite.json", "-m", "scripted/echo", "-m", "scripted/echo", "--dry-run"]
    assert call(words) == 0
    said = capsys.readouterr()
    assert "note: model 'scripted/echo' is named 2 times and runs once" in said.err
    assert call([*words, "--json"]) == 0
    assert "runs once" in json.loads(capsys.readouterr().out)["notices"][0]


def test_a_part_of_a_run_is_selected_with_the_options_that_would_change_a_plan(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert call(["run", "suite.json", "-m", "scripted"]) == 0
    assert call(["run", "--resume", "latest", "--only", "-m", "scripted/echo", "--test", "a"]) == 0
    capsys.readouterr()
    assert call(["run", "--resume", "latest", "--only", "--set", "rollouts=2"]) == 1
    assert "--set: a run that is resumed without its source" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("list modls", "argument KIND: invalid choice: 'modls'; did you mean 'models'?"),
        ("list", "missing: KIND (one of: runs, tasks, models, agents, scorers, sandboxes)"),
        ("power", "missing: DIFFERENCE (see bakeoff power --help)"),
        ("run a.json b.json", "unexpected argument: b.json"),
        ("run a.json --resume", "--resume needs a value: --resume RUN"),
        ("run a.json --model", "--model needs a value: --model M"),
    ],
)
def test_a_word_that_is_missing_or_wrong_is_told_in_one_line(
    words: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        call(words.split())
    said = capsys.readouterr().err
    assert says in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("program", "words", "says"),
    [
        (rollouts.main, "rnu", "invalid choice: 'rnu'; did you mean 'run'?"),
        (rollouts.main, "run x.toml --resum", "no option is called '--resum'; did you mean '--resume'?"),
        (command.main, "--base_confg x", "no option is called '--base_confg'; did you mean '--base_config'?"),
    ],
)  # fmt: skip
def test_the_other_doors_answer_a_typing_mistake_in_the_same_way(
    program: Callable[[list[str]], int], words: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        program(words.split())
    said = capsys.readouterr().err
    assert says in said
    assert said.count("\n") == 1


def test_the_runner_says_which_file_is_missing_and_which_is_of_another_kind(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert command.main([]) == 1
    assert "copy sample_base_config.toml to base_config.toml" in capsys.readouterr().err
    Path("mine.toml").write_text('model = "scripted"\n')
    assert command.main(["--base_config", "mine.toml"]) == 1
    assert "this is an agent, not a base file" in capsys.readouterr().err


def test_scoring_again_does_not_pretend_to_generate_tokens(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert call(["run", "suite.json", "-m", "scripted"]) == 0
    assert "tok/s" in capsys.readouterr().err
    assert call(["eval"]) == 0
    said = capsys.readouterr().err
    assert "scoring again" in said
    assert "tok/s" not in said


def test_a_dry_run_refuses_what_the_run_would_refuse(capsys: pytest.CaptureFixture[str]) -> None:
    test = {"id": "a", "prompt": "2 + 2?", "expected": "four", "scorers": ["numeric"]}
    Path("odd.json").write_text(json.dumps({"tests": [test]}))
    said = []
    for words in (["--dry-run"], []):
        assert call(["run", "odd.json", "-m", "scripted", *words]) == 1
        said.append(capsys.readouterr().err)
    assert "scorer 'numeric' needs a number as `expected`, not 'four'" in said[0]
    assert said[0] == said[1]
