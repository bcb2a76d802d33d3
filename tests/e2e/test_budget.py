"""A cap on what a run may cost, kept against a server that bills every answer it gives."""

import json
import random
import threading
import time
from argparse import ArgumentTypeError
from pathlib import Path
from typing import Any

import pytest

import bakeoff
from bakeoff import UsageError
from bakeoff.cli.options import dollars
from bakeoff.core.budget import Bill
from bakeoff.core.events import Event, Notice
from support.cli import Ended
from support.cli import bakeoff as command
from support.loopback import Asked, Loopback, Reply, chat

PRICES = """
[[price]]
models = ["openai-compatible/*"]
input = 10
output = 100
"""
RUN_FILE = """
name = "spend"
prices = "prices.toml"
parallel = 64
[parameters]
max_tokens = 50
[[models]]
model = "m"
base_url = "URL"
settings = { retry_delay_s = 0.01, adaptive = false }
[roles.judge]
model = "judge"
base_url = "URL"
parameters = { max_tokens = 60 }
settings = { retry_delay_s = 0.01, adaptive = false }
[limits]
attempts = 3
"""


def cli(folder: Path, *words: str | Path, code: int = 0) -> Ended:
    ended = command(*words, cwd=folder)
    assert "Traceback" not in ended.err
    assert ended.code == code, ended
    return ended


class Biller:
    """Answers candidates and the judge, bills what it answers, and now and then breaks first."""

    def __init__(
        self,
        *,
        tells_cost: bool = True,
        faults: float = 0.0,
        spoils: float = 0.0,
        delay_s: float = 0.01,
    ) -> None:
        self._delay_s = delay_s
        self.cost_usd = 0.0
        self.tokens = 0
        self.answers = 0
        self._tells_cost = tells_cost
        self._faults = faults
        self._spoils = spoils
        self._chance = random.Random(7)
        self._lock = threading.Lock()

    def __call__(self, asked: Asked) -> Reply:
        time.sleep(self._delay_s)
        with self._lock:
            chance = self._chance.random()
            written = self._chance.randint(1, asked.body["max_tokens"])
            if chance < self._faults:
                return Reply(status=429 if chance < self._faults / 10 else 500, body=b"{}")
            read = len(json.dumps(asked.body["messages"])) // 4
            cost = (read * 10 + written * 100) / 1e6
            self.cost_usd += cost
            self.tokens += read + written
            self.answers += 1
            if chance < self._faults + self._spoils:
                return Reply(body=b'{"choices": [', headers={"Content-Type": "application/json"})
        judge = asked.body["model"] == "judge"
        text = '{"reasoning": "fine", "score": 9}' if judge else asked.prompt
        usage = {"prompt_tokens": read, "completion_tokens": written}
        return chat(text, usage={**usage, "cost": cost} if self._tells_cost else usage)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "prices.toml").write_text(PRICES)
    return tmp_path


def run_file(folder: Path, server: Loopback, *, tasks: int, judged: bool = True) -> Path:
    scorers = [{"scorer": "judge", "settings": {"rubric": "Is it said?"}}] if judged else []
    tests = [{"id": f"t{n}", "prompt": f"say number {n}", "scorers": scorers} for n in range(tasks)]
    (folder / "suite.json").write_text(json.dumps({"tests": tests}))
    path = folder / "run.toml"
    text = RUN_FILE.replace("URL", server.url)
    path.write_text('suites = ["suite.json"]\n' + text)
    return path


def billed(folder: Path) -> Bill:
    return bakeoff.load_run(output=folder / "runs").billed()


@pytest.mark.parametrize("tells_cost", [True, False], ids=["its cost", "only tokens"])
def test_the_cap_holds_with_64_in_flight_faults_and_a_judge_and_a_resume_finishes(
    folder: Path, tells_cost: bool
) -> None:
    biller = Biller(tells_cost=tells_cost, faults=0.15)
    with Loopback(biller) as server:
        path = run_file(folder, server, tasks=90)
        ended = cli(folder, "run", path, "--max-cost", "0.5", code=4)
        known = billed(folder)
        assert biller.cost_usd <= 0.5
        assert known.cost_usd == pytest.approx(biller.cost_usd, rel=1e-9)
        assert (known.tokens, known.unsure_usd) == (biller.tokens, 0.0)
        assert biller.cost_usd > 0.43, "what there was, was used"
        assert server.peak_in_flight > 8
        assert "billed in total, including roles, retries and failed attempts: $0.4" in ended.out
        assert "stopped at the budget ($0.4" in ended.err
        assert "cancelled" in ended.out

        cli(folder, *ended.resume_command, code=0)
        known = billed(folder)
        assert 0.5 < biller.cost_usd <= 1.0
        assert known.cost_usd == pytest.approx(biller.cost_usd, rel=1e-9)
    buckets = bakeoff.load_run(output=folder / "runs").summary().buckets
    assert (buckets.scored, buckets.planned) == (90, 90)


def test_a_resume_with_the_same_cap_asks_nobody(folder: Path) -> None:
    biller = Biller()
    with Loopback(biller) as server:
        path = run_file(folder, server, tasks=40, judged=False)
        ended = cli(folder, "run", path, "--max-cost", "0.05", "--parallel", "4", code=4)
        assert 0.03 < biller.cost_usd <= 0.05
        assert "not run" in ended.out
        cli(folder, "run", path, "--max-cost", "0.05", "--resume", "latest", code=4)
        cli(folder, "run", "--resume", "latest", code=4)  # the run's own cap is still in force
        assert biller.cost_usd <= 0.05
        cli(folder, "run", "--resume", "latest", "--max-cost", "1")
        assert billed(folder).cost_usd == pytest.approx(biller.cost_usd)


def test_the_cap_also_holds_where_answers_are_billed_and_cannot_be_read(folder: Path) -> None:
    biller = Biller(faults=0.1, spoils=0.2)
    with Loopback(biller) as server:
        path = run_file(folder, server, tasks=90)
        ended = cli(folder, "run", path, "--max-cost", "0.5", code=4)
    known = billed(folder)
    assert biller.cost_usd <= 0.5
    assert known.most_usd <= 0.5 + 1e-9
    assert (known.cost_usd or 0) < biller.cost_usd < known.most_usd
    assert "for answers of unknown cost" in ended.out


def test_a_cap_on_tokens_counts_everybody(folder: Path) -> None:
    biller = Biller(faults=0.1)
    with Loopback(biller) as server:
        path = run_file(folder, server, tasks=70)
        ended = cli(folder, "run", path, "--max-tokens", "15000", code=4)
        assert 8_000 < biller.tokens <= 15_000
        assert billed(folder).tokens == biller.tokens
        assert "of 15,000 tokens" in ended.err
        assert ended.resume_command[-4:-2] == ["--max-tokens", "30000"]


def test_64_are_in_flight_where_the_budget_has_room_for_them(folder: Path) -> None:
    biller = Biller(delay_s=0.25)
    with Loopback(biller) as server:
        path = run_file(folder, server, tasks=128, judged=False)
        bakeoff.run(path, max_cost=5, output=folder / "runs")
        assert server.peak_in_flight == 64
        assert billed(folder).cost_usd == pytest.approx(biller.cost_usd)


def test_a_trial_that_spent_its_own_limit_is_limited(folder: Path) -> None:
    (folder / "insisting.py").write_text(
        "async def insist(task, model):\n"
        "    from bakeoff import Request\n"
        "    while True:\n"
        "        asked = Request(messages=task.messages, parameters=task.parameters)\n"
        "        await model.complete(asked)\n"
    )
    biller = Biller()
    with Loopback(biller) as server:
        path = run_file(folder, server, tasks=3, judged=False)
        words = ("--set", 'agents=["insisting:insist"]', "--set", "limits.cost_usd=0.01")
        cli(folder, "run", path, *words)
    run = bakeoff.load_run(output=folder / "runs")
    for trial in run.trials():
        assert trial.attempt.status == "limited"
        cost = trial.attempt.spent.usage.cost_usd
        assert cost is not None
        assert 0.01 <= cost < 0.016


class TestBeforeTheRun:
    def test_an_unknown_price_is_refused(self, folder: Path) -> None:
        with Loopback() as server:
            path = run_file(folder, server, tasks=1)
            (folder / "prices.toml").write_text("")
            ended = cli(folder, "run", path, "--max-cost", "1", code=1)
            assert "--max-cost needs a price for 'openai-compatible/m'" in ended.err
            assert "--prices" in ended.err
            with pytest.raises(UsageError, match=r"limits\.cost_usd needs a price"):
                bakeoff.run(path, overrides={"limits.cost_usd": "1"}, output=folder / "runs")
            assert server.requests == []
        assert not (folder / "runs").exists()

    def test_answers_without_a_limit_are_refused(self, folder: Path) -> None:
        with Loopback() as server:
            path = run_file(folder, server, tasks=1)
            text = path.read_text().replace("parameters = { max_tokens = 60 }\n", "")
            path.write_text(text)
            with pytest.raises(UsageError, match="a limit on the answers of role 'judge'"):
                bakeoff.run(path, max_cost=1)
            path.write_text(text.replace("max_tokens = 50", ""))
            with pytest.raises(UsageError, match="a limit on the answers of candidate 'm'") as told:
                bakeoff.run(path, max_tokens=1)
            assert "--set parameters.max_tokens=1000" in str(told.value)

    def test_a_dry_run_tells_what_it_may_cost(self, folder: Path) -> None:
        with Loopback() as server:
            path = run_file(folder, server, tasks=10)
            plain = cli(folder, "run", path, "--dry-run").out
            data = json.loads(cli(folder, "run", path, "--dry-run", "--json").out)["estimate"]
            assert server.requests == []
        assert data["output_tokens"] == 10 * (50 + 60)
        assert data["cost_usd"] == pytest.approx(
            (data["input_tokens"] * 10 + data["output_tokens"] * 100) / 1e6
        )
        assert f"${data['cost_usd']:.4f}: about" in plain
        assert "at most 1,100 out" in plain

    def test_a_dry_run_says_what_it_cannot_know(self, folder: Path) -> None:
        suite = folder / "suite.json"
        suite.write_text(json.dumps({"tests": [{"id": "a", "prompt": "hi"}]}))
        words = ("run", suite, "-m", "m", "--base-url", "http://127.0.0.1:9/v1", "--dry-run")
        plain = cli(folder, *words).out
        assert "cost unknown" in plain
        assert "m has no known price" in plain
        assert "m has no max_tokens" in plain
        assert "nothing is billed" in cli(folder, "run", suite, "-m", "scripted", "--dry-run").out

    def test_a_dry_run_of_a_dialogue_says_that_it_counts_the_beginning(self, folder: Path) -> None:
        case = {"objective": "o", "max_turns": 7, "roles": {"instructor": "scripted/echo"}}
        (folder / "case.json").write_text(json.dumps(case))
        words = ("run", folder / "case.json", "-m", "scripted/echo", "--dry-run")
        assert (
            "nothing is billed for the first request of each trial, and there are more "
            "(a dialogue takes up to 7 turns): about"
        ) in cli(folder, *words).out
        told = json.loads(cli(folder, *words, "--json").out)["estimate"]
        assert told["more"] == ["a dialogue takes up to 7 turns"]

    def test_a_cap_that_may_end_the_run_is_told_at_its_start(self, folder: Path) -> None:
        with Loopback(Biller()) as server:
            path = run_file(folder, server, tasks=10)
            heard: list[Event] = []
            bakeoff.run(path, max_cost=0.1, output=folder / "runs", listener=heard.append)
        (notice,) = [event.text for event in heard if isinstance(event, Notice)]
        assert notice.startswith("it may cost $0.1")
        assert notice.endswith("more than the $0.1000 of --max-cost")

    def test_a_local_model_needs_no_price(self, folder: Path) -> None:
        suite = folder / "suite.json"
        suite.write_text(json.dumps({"tests": [{"id": "a", "prompt": "hi"}]}))
        bakeoff.run(suite, models=["scripted"], max_cost=0.01, output=folder / "runs")
        assert billed(folder) == Bill(tokens=2)

    @pytest.mark.parametrize("amount", ["0", "-1", "nan", "inf", "much"])
    def test_an_amount_that_is_none_is_refused(self, amount: str) -> None:
        with pytest.raises(ArgumentTypeError):
            dollars(amount)

    @pytest.mark.parametrize("wish", [{"max_cost": 0}, {"max_tokens": -1}])
    def test_a_script_is_told_the_same(self, folder: Path, wish: dict[str, Any]) -> None:
        with pytest.raises(UsageError, match="give more than 0"):
            bakeoff.run([bakeoff.Task(id="t", messages=())], models=["scripted"], **wish)


def test_what_a_judge_costs_in_an_eval_is_added_to_the_runs_total(folder: Path) -> None:
    biller = Biller()
    with Loopback(biller) as server:
        path = run_file(folder, server, tasks=5)
        cli(folder, "run", path)
        first = biller.cost_usd
        assert billed(folder).cost_usd == pytest.approx(first)
        cli(folder, "eval", "latest", "--source", path)
        assert biller.cost_usd > first
        assert billed(folder).cost_usd == pytest.approx(biller.cost_usd)
