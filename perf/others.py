"""The same prompts through other runners that are installed: trials per second, and CPU.

python -m perf.others                 all that are on the PATH, one after another
python -m perf.others --count 500

Each runs as its users run it, as a whole process: 64 requests at once, no cache, the same questions
to the same server on loopback, which answers at once. They are installed by one command each, best
in environments of their own; those that are missing are left out, and the reason is shown.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from perf.fast_server import serving
from perf.measure import PARALLEL, ROOT, Reading, report, trials
from perf.workload import MODEL, write_suite

TESTS = 2000
_LONGEST_S = 900.0


@dataclass(frozen=True, kw_only=True)
class Runner:
    """Another runner: the program, how it is installed, and its command for a suite."""

    program: str
    install: str
    prepare: Callable[[str, list[dict[str, str]], Path], Sequence[str]]


def measure(count: int | None = None) -> list[Reading]:
    """Run Bakeoff and each runner that is installed."""
    count = count or trials(TESTS)
    readings: list[Reading] = []
    with serving() as url, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        suite = write_suite(folder, count)
        tests = json.loads(suite.read_text(encoding="utf-8"))["tests"]
        asked = ["--model", MODEL, "--base-url", url, "--parallel", str(PARALLEL)]
        ours = [sys.executable, "-m", "bakeoff", "run", str(suite), *asked]
        own_s, own_cpu_s = _run([*ours, "--output", str(folder / "runs")], url, folder)
        readings.append(_rate("bakeoff", count, own_s, own_cpu_s))
        for label, runner in RUNNERS.items():
            if shutil.which(runner.program) is None:
                note = f"not installed: {runner.install}"
                readings.append(Reading(name=f"{label}: left out", value=0, note=note))
                continue
            place = folder / label
            place.mkdir()
            took_s, cpu_s = _run(runner.prepare(url, tests, place), url, place)
            readings.append(_rate(label, count, took_s, cpu_s))
            readings.append(
                Reading(name=f"{label}: time / bakeoff", value=took_s / own_s, unit="×")
            )
    return readings


def _rate(label: str, count: int, took_s: float, cpu_s: float) -> Reading:
    note = f"{count:,} prompts in {took_s:.1f} s, {1e6 * cpu_s / count:,.0f} µs of CPU each; "
    note += f"load {os.getloadavg()[0]:.0f}"
    return Reading(name=f"{label}: prompts per second", value=count / took_s, unit="/s", note=note)


def _run(command: Sequence[str], url: str, folder: Path) -> tuple[float, float]:
    """Run a command; return how long it took, and its CPU and that of its children."""
    settings = {
        "OPENAI_API_KEY": "none",
        "OPENAI_BASE_URL": url,
        "PROMPTFOO_DISABLE_TELEMETRY": "1",
        "PROMPTFOO_DISABLE_UPDATE": "1",
        "PROMPTFOO_CONFIG_DIR": str(folder / "promptfoo"),
        "INSPECT_LOG_DIR": str(folder / "logs"),
        "HF_HOME": str(folder / "huggingface"),
    }
    began = time.monotonic()
    with (folder / "output.txt").open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=ROOT if "bakeoff" in command else folder,
            env={**os.environ, **settings},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in _FINE:
        text = (folder / "output.txt").read_text(encoding="utf-8", errors="replace")
        raise SystemExit(f"{' '.join(command)} failed:\n{text[-2000:]}")
    return time.monotonic() - began, used.ru_utime + used.ru_stime


_FINE = (0, 100)  # promptfoo leaves with 100 where a test fails, and a quarter of these do

# --- what each is given ---------------------------------------------------------------------------


def _lm_eval(url: str, tests: list[dict[str, str]], folder: Path) -> Sequence[str]:
    data = folder / "tests.jsonl"
    data.write_text("".join(json.dumps(test) + "\n" for test in tests), encoding="utf-8")
    task = {
        "task": "capitals",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(data)}},
        "test_split": "test",
        "output_type": "generate_until",
        "doc_to_text": "{{prompt}}",
        "doc_to_target": "{{expected}}",
        "generation_kwargs": {"until": ["\n\n"], "max_gen_toks": 64},
        "metric_list": [{"metric": "exact_match"}],
    }
    (folder / "capitals.yaml").write_text(json.dumps(task), encoding="utf-8")
    arguments = {
        "model": MODEL,
        "base_url": f"{url}/chat/completions",
        "num_concurrent": PARALLEL,
        "max_retries": 3,
        "tokenized_requests": False,
    }
    given = ",".join(f"{name}={value}" for name, value in arguments.items())
    model = ["--model", "local-chat-completions", "--model_args", given, "--apply_chat_template"]
    where = ["--include_path", str(folder), "--output_path", str(folder / "out"), "--log_samples"]
    return ["lm_eval", *model, "--tasks", "capitals", *where]


_INSPECT_TASK = """\
from inspect_ai import Task, task
from inspect_ai.dataset import json_dataset
from inspect_ai.scorer import includes


@task
def capitals():
    return Task(dataset=json_dataset("tests.jsonl"), scorer=includes())
"""


def _inspect(url: str, tests: list[dict[str, str]], folder: Path) -> Sequence[str]:
    samples = [
        {"id": test["id"], "input": test["prompt"], "target": test["expected"]} for test in tests
    ]
    lines = "".join(json.dumps(sample) + "\n" for sample in samples)
    (folder / "tests.jsonl").write_text(lines, encoding="utf-8")
    (folder / "capitals.py").write_text(_INSPECT_TASK, encoding="utf-8")
    limits = ["--max-connections", str(PARALLEL), "--max-samples", str(PARALLEL)]
    model = ["--model", f"openai/{MODEL}", "--model-base-url", url]
    return ["inspect", "eval", "capitals.py", *model, *limits, "--display", "none"]


def _promptfoo(url: str, tests: list[dict[str, str]], folder: Path) -> Sequence[str]:
    config = {
        "prompts": ["{{question}}"],
        "providers": [{"id": f"openai:chat:{MODEL}", "config": {"apiBaseUrl": url}}],
        "tests": [
            {
                "vars": {"question": test["prompt"]},
                "assert": [{"type": "contains", "value": test["expected"]}],
            }
            for test in tests
        ],
    }
    (folder / "promptfooconfig.json").write_text(json.dumps(config), encoding="utf-8")
    how = ["-j", str(PARALLEL), "--no-cache", "--no-table", "--no-progress-bar"]
    return ["promptfoo", "eval", "-c", "promptfooconfig.json", *how, "-o", "out.json"]


RUNNERS = {
    "lm-eval": Runner(
        program="lm_eval", install="uv tool install 'lm-eval[api]'", prepare=_lm_eval
    ),
    "inspect": Runner(
        program="inspect", install="uv tool install --with openai inspect-ai", prepare=_inspect
    ),
    "promptfoo": Runner(
        program="promptfoo", install="npm install -g promptfoo", prepare=_promptfoo
    ),
}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int)
    report(measure(parser.parse_args().count))
