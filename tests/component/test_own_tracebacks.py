"""An error in somebody's own code keeps its traceback: in the ledger, in `show` and with --debug."""

from pathlib import Path

import pytest

import bakeoff
from bakeoff import cli
from bakeoff.core.errors import ProviderError, ScorerError, boundary
from bakeoff.core.record import Fault

OWN = """
from bakeoff import Completion, Outcome, ProviderError, Request, Score

def _deep():
    return {}["missing"]

def model(request):
    return _deep()

async def busy(request):
    raise ProviderError("the endpoint is busy")

async def waits(task, model):
    return _deep()

def blocks(task, model):
    return _deep()

class Solves:
    async def solve(self, task, context):
        return Outcome(answer=_deep())

def grades(answer):
    return _deep()

class Judges:
    async def score(self, task, outcome, context):
        return Score(scorer="judges", value=_deep())

class Asks:
    async def score(self, task, outcome, context):
        return await context.roles["judge"].complete(Request(messages=task.messages))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "own_broken.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _faults(folder: Path, text: str) -> list[Fault]:
    (folder / "run.toml").write_text(text)
    records = list(bakeoff.run(folder / "run.toml", output=folder / "runs").trials())
    faults = [record.attempt.fault for record in records]
    assert all(faults)
    return [fault for fault in faults if fault]


def _is_of_own_code(fault: Fault) -> bool:
    trace = fault.traceback or ""
    lines = trace.splitlines()
    return (
        lines[0] == "Traceback (most recent call last):"
        and "own_broken.py" in lines[1]
        and '    return {}["missing"]' in lines
        and lines[-1] == "KeyError: 'missing'"
    )


def test_a_model_and_agents_of_ones_own_keep_their_tracebacks(folder: Path) -> None:
    faults = _faults(
        folder,
        """
models = ["own_broken:model"]
agents = ["direct", "own_broken:waits", "own_broken:blocks", "own_broken:Solves"]
tasks = [{ id = "a", prompt = "hi" }]
""",
    )
    assert [fault.boundary for fault in faults] == ["provider", "agent", "agent", "agent"]
    assert [_is_of_own_code(fault) for fault in faults] == [True] * 4
    assert all("KeyError: 'missing'" in fault.message for fault in faults)


def test_scorers_of_ones_own_keep_their_tracebacks_from_worker_processes(folder: Path) -> None:
    faults = _faults(
        folder,
        """
models = ["scripted"]
tasks = [
  { id = "a", prompt = "hi", scorers = ["own_broken:grades"] },
  { id = "b", prompt = "hi", scorers = ["own_broken:Judges"] },
  { id = "c", prompt = "hi", scorers = ["own_broken:Asks"] },
]
[roles.judge]
model = "own_broken:model"
""",
    )
    assert [fault.boundary for fault in faults] == ["scorer"] * 3
    assert [_is_of_own_code(fault) for fault in faults] == [True] * 3


def test_an_error_that_is_raised_on_purpose_needs_no_traceback(folder: Path) -> None:
    (fault,) = _faults(folder, 'models = ["own_broken:busy"]\ntasks = [{ id = "a", prompt = "x" }]')
    assert fault.message == "the endpoint is busy"
    assert fault.traceback is None


def test_show_prints_the_traceback_and_debug_puts_it_on_the_screen(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = 'models = ["own_broken:model"]\ntasks = [{ id = "a", prompt = "hi" }]\n'
    (folder / "run.toml").write_text(text)
    assert cli.call(["run", "run.toml"]) == 3
    assert "Traceback" not in capsys.readouterr().err
    assert cli.call(["run", "run.toml", "--debug"]) == 3
    assert '    return {}["missing"]\n' in capsys.readouterr().err
    assert cli.call(["show", "latest", "a"]) == 0
    shown = capsys.readouterr().out
    assert shown.index("fault (provider): ") < shown.index('return {}["missing"]')


def test_a_module_that_cannot_be_imported_shows_where_with_debug(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "own_unimportable.py").write_text("def f(request):\n    pass\n\n1 / 0\n")
    text = 'models = ["own_unimportable:f"]\ntasks = [{ id = "a", prompt = "hi" }]\n'
    (folder / "run.toml").write_text(text)
    assert cli.call(["run", "run.toml"]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert cli.call(["run", "run.toml", "--debug"]) == 1
    printed = capsys.readouterr().err
    assert 'own_unimportable.py", line 4' in printed
    assert "bakeoff: error: " in printed.splitlines()[-1]


def test_a_secret_in_a_traceback_is_taken_out_before_it_is_stored_or_shown(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("A_KEY", "sk-very-secret-value")
    (folder / "own_leaky.py").write_text(
        "def model(request):\n    raise ValueError('sk-very-secret-value')\n"
    )
    (folder / "run.toml").write_text(
        'models = [{ model = "own_leaky:model" }, { model = "x", base_url = "http://127.0.0.1:9",'
        ' api_key = "${A_KEY}" }]\ntasks = [{ id = "a", prompt = "hi" }]\n'
        "limits = { attempts = 1 }\n"
    )
    assert cli.call(["run", "run.toml", "--debug", "--give-up-after", "1s"]) != 0
    assert "very-secret" not in capsys.readouterr().err
    for path in (folder / "runs").rglob("*"):
        assert not path.is_file() or b"very-secret" not in path.read_bytes()


def test_a_very_long_traceback_is_kept_in_part() -> None:
    with pytest.raises(ScorerError) as caught, boundary(ScorerError, "x"):
        raise ValueError("y" * 100_000)
    trace = Fault.of(caught.value).traceback or ""
    assert len(trace) < 20_000
    assert trace.startswith("Traceback")
    assert "is left out" in trace


def test_the_traceback_of_a_cause_is_kept() -> None:
    with pytest.raises(ProviderError) as caught, boundary(ProviderError, "model"):
        raise ValueError("deep")
    wrapped = ScorerError("judge: it broke")
    wrapped.__cause__ = caught.value
    assert (Fault.of(wrapped).traceback or "").endswith("ValueError: deep")
