"""The dialogues in examples/: whoever does the work well passes each, and whoever does nothing fails."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import bakeoff
from bakeoff.core.candidate import AgentSpec, Conditions, ModelSpec
from bakeoff.core.outcome import Completion, Request
from bakeoff.core.record import Attempt, Status
from bakeoff.core.task import ToolCall
from bakeoff.formats.agent_bench import read_bench
from bakeoff.formats.dialogue import read_cases
from support.parts import require

EXAMPLES = Path(__file__).parents[2] / "examples" / "dialogues"
CASES = sorted(path.stem for path in (EXAMPLES / "cases").iterdir())
ROLES = """\
import json
import re


def instructor(request):
    asked = request.messages[-1].content
    if "The shards that are left" in asked:
        left = re.findall(r"^(\\d+)\\. (.*)$", asked.split("are left:")[1], re.MULTILINE)[:2]
        return json.dumps({"thought": "", "user_response": " ".join(text for _, text in left),
                           "shards": [int(number) for number, _ in left]})
    said = sum(m.role == "assistant" for m in request.messages)
    items = re.findall(r"^- (.*)$", request.messages[0].content, re.MULTILINE)
    items = [item for item in items if item in request.messages[0].content.split("**Objective**")[1]]
    return json.dumps({"thought": "", "user_response": "; ".join(items) or "go on", "end": said >= 2})


def supervisor(request):
    return json.dumps({"thought": "", "contradictory": False, "follow_up_instruction": None})
"""
SALES = """
import csv
from collections import Counter
sums = Counter()
for row in csv.DictReader(open('datasets/sales.csv')):
    if row['returned'] == 'no' and row['date'].startswith('2024-03'):
        sums[row['city'].lower()] += int(row['units']) * float(row['price'])
print(sums.most_common(1)[0])
"""
BIKES = """
import csv, os
rows = list(csv.DictReader(open('datasets/train.csv')))
def fit(rain):
    points = [(float(r['temperature']), float(r['rentals'])) for r in rows if r['rain'] == rain]
    n = len(points); mx = sum(x for x, _ in points) / n; my = sum(y for _, y in points) / n
    slope = sum((x - mx) * (y - my) for x, y in points) / sum((x - mx) ** 2 for x, _ in points)
    return lambda x: my + slope * (x - mx)
lines = {rain: fit(rain) for rain in ('yes', 'no')}
with open('submission.csv', 'w') as file:
    file.write('day,rentals\\n')
    for r in csv.DictReader(open('datasets/test.csv')):
        file.write(f"{r['day']},{lines[r['rain']](float(r['temperature']))}\\n")
"""
REPORT = '''
open('report.py', 'w').write("""
import sys

def read_rows(path):
    lines = (line.strip() for line in open(path))
    pairs = (line.split(';') for line in lines if line)
    return [(name, int(amount)) for name, amount in pairs]

def totals(rows):
    sums = {}
    for name, amount in rows:
        sums[name] = sums.get(name, 0) + amount
    return sums

def main(path):
    for name, amount in sorted(totals(read_rows(path)).items()):
        print(f'{name}: {amount}')

if __name__ == '__main__':
    main(sys.argv[1])
""")
'''
CODE = {"shop-sales": SALES, "bike-rentals": BIKES, "refactor-report": REPORT}
SAYS = {
    "shop-sales": "Lyon, with 1287.50 euros.",
    "newsletter-requirements": "Every two weeks on Tuesday; export as CSV; confirm by email; 3,000 euros.",
    "packing-list": "Rain jacket, a suit for the dinner, the charger.",
    "paint-for-a-room": "You need 6 cans.",
    "refund-answer": "That is too late for a refund, but I can offer you a voucher.",
}  # fmt: skip


def model_for(case: str, *, works: bool) -> Callable[[Request], Completion]:
    def played(request: Request) -> Completion:
        boxed = any(tool.name == "run_code" for tool in request.tools)
        ran = any(m.role == "tool" for m in request.messages)
        if works and boxed and not ran:
            arguments = json.dumps({"code": CODE[case]})
            return Completion(
                text="", tool_calls=(ToolCall(id="c", name="run_code", arguments=arguments),)
            )
        return Completion(text=SAYS.get(case, "Done.") if works else "I would rather not.")

    return played


def play(case: str, folder: Path, *, works: bool) -> Attempt:
    (folder / "played_roles.py").write_text(ROLES)
    brief = read_cases(EXAMPLES / "cases" / f"{case}.toml")
    roles = {
        name: ModelSpec(provider="", name=f"played_roles:{name}")
        for name in ("instructor", "supervisor")
    }
    brief = replace(brief, conditions=Conditions(roles=roles))
    boxed = brief.tasks[0].workspace is not None
    if boxed:
        require("bubblewrap", shutil.which("bwrap"), "apt-get install bubblewrap")
    agents = [AgentSpec(name="code-session" if boxed else "direct")]
    run = bakeoff.run(brief, models=[model_for(case, works=works)], agents=agents,
                      output=folder / "runs", sandbox="bubblewrap" if boxed else None)  # fmt: skip
    (record,) = run.trials()
    return record.attempt


@pytest.mark.parametrize("case", CASES)
def test_good_work_passes_and_none_fails(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where the roles lie
    for works in (True, False):
        attempt = play(case, tmp_path, works=works)
        assert attempt.status is Status.COMPLETED, attempt.fault
        assert attempt.passed is works, attempt.scores
        assert attempt.outcome is not None
        assert attempt.outcome.notes["dialogue"]["marks"] == {}


def test_there_are_enough_of_every_kind() -> None:
    tasks = read_cases(EXAMPLES / "cases").tasks
    assert len(tasks) >= 6
    assert {"data analysis", "requirements", "refactoring", "shards"} <= {t.category for t in tasks}


@pytest.mark.parametrize("kind", ["user", "shard_user"])
def test_the_benchmark_folder_is_one_that_the_runner_reads(tmp_path: Path, kind: str) -> None:
    base = tmp_path / "base.toml"
    base.write_text(
        f'[llm]\nmodel = "gpt-5"\n[benchmark]\nbenchmark_dir = "{EXAMPLES / "bench"}"\n'
        f'user_type = "{kind}"\n'
    )
    agent = tmp_path / "one.toml"
    agent.write_text('model = "gpt-5"\nrun_code = true\n')
    (task,) = read_bench(base, agent).run_spec.tasks
    assert task.dialogue is not None
    assert bool(task.dialogue.shards) == (kind == "shard_user")
    assert task.scorers[0].name == "evaluation"
