"""The path of one trial through each front end: the files and functions of Bakeoff that it calls.

The real program runs one trial against a scripted model on loopback, with a profiler that writes
down every function of the package that is called. Only interfaces that users have are named here
(commands, scripts, file formats), so that any version of the project can be walked through.
What runs in processes of its own (boxes, workers) is not seen, nor are functions that only an
import calls.
"""

import json
import os
import runpy
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

TIME_S = 120
_COMPREHENSIONS = frozenset({"<genexpr>", "<listcomp>", "<setcomp>", "<dictcomp>"})
_BEGIN = "TrialStarted"  # the public event by which the engine says that a trial begins
_REPAIR = "sed -i 's/a - b/a + b/' calc.py"
_WRONG = "def add(a, b):\n    return a - b\n"
_RIGHT = _WRONG.replace("-", "+")
_TEST = """\
import unittest

from calc import add


class Adding(unittest.TestCase):
    def test_two_and_three_are_five(self):
        self.assertEqual(add(2, 3), 5)


if __name__ == "__main__":
    unittest.main()
"""
_TEST_RUNNER = """\
import sys
from bakeoff import TestRunner

runner = TestRunner()
assert runner.load_test_suite("suite.json")
runner.configure_api(sys.argv[1] + "/chat/completions", "scripted")
results = runner.execute_sequential()
assert [result.success for result in results] == [True], results
assert runner.save_results(results, "results")
"""


def walk(tree: Path, python: Path) -> dict[str, dict[str, Any]]:
    """Run one trial through each front end of the checkout *tree*; return what each called."""
    with _model_server() as url:
        return {name: _walk_one(tree, python, url, prepare) for name, prepare in FRONT_ENDS.items()}


def _walk_one(
    tree: Path, python: Path, url: str, prepare: Callable[[Path, Path, str], list[str]]
) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        words = prepare(folder, tree, url)
        report = folder / "called.json"
        command = [str(python), __file__, str(report), str(tree / "src" / "bakeoff"), *words]
        done = subprocess.run(
            command,
            cwd=folder,
            env=_environment(folder),
            capture_output=True,
            text=True,
            timeout=TIME_S,
            check=False,
        )
        if done.returncode or not report.exists():
            output = (done.stdout + done.stderr)[-2000:]
            raise SystemExit(f"{tree}: {' '.join(words)} left with {done.returncode}:\n{output}")
        called: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
    if called["before"] is None:
        raise SystemExit(f"{tree}: {' '.join(words)} started no trial")
    return _counts(called["functions"], called["before"])


def _environment(folder: Path) -> dict[str, str]:
    """Return an environment without keys, settings or servers of whoever runs this."""
    kept = {name: value for name, value in os.environ.items() if name in {"PATH", "LANG"}}
    return {
        **kept,
        "HOME": str(folder),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "OLLAMA_HOST": "http://127.0.0.1:9",  # nobody listens there
    }


def _counts(functions: list[list[str]], before: int) -> dict[str, Any]:
    files = list(dict.fromkeys(file for file, _ in functions))
    return {
        "files": len(files),
        "functions": len(functions),
        "files_before": len({file for file, _ in functions[:before]}),
        "functions_before": before,
        "path": files,
    }


# --- the front ends, each with the smallest input that it takes ----------------------------------


def _prompt_suite(folder: Path, _: Path, url: str) -> list[str]:
    _write_suite(folder)
    return ["-m", "bakeoff", "run", "suite.json", "--model", "scripted", "--base-url", url]


def _test_runner(folder: Path, _: Path, url: str) -> list[str]:
    _write_suite(folder)
    _write(folder, {"use_test_runner.py": _TEST_RUNNER})
    return [str(folder / "use_test_runner.py"), url]


def _batch(folder: Path, tree: Path, url: str) -> list[str]:
    model = {"name": "scripted", "provider": "openai-compatible", "base_url": url, "enabled": True}
    _write(
        folder,
        {
            "add.md": "# Task: Repair the addition\n\n## Requirements\n- `add` in calc.py adds\n",
            "add/repo/calc.py": _WRONG,
            "add/tests/test_calc.py": _TEST,
            "add/solution/calc.py": _RIGHT,
            "models.yaml": json.dumps({"models": [model]}),
        },
    )
    script = str(tree / "benchmark" / "batch_runner.py")
    return [script, "--task", "add.md", "--config", "models.yaml", "--output", "results"]


def _rollouts(folder: Path, tree: Path, url: str) -> list[str]:
    rubric = {"id": "adds", "criterion": "add adds", "weight": 1.0}
    meta = {
        "task_id": "add",
        "metadata": {"title": "Repair add"},
        "repo": {"git_url": "source"},
        "lm": {"instructions": "Make `add` in calc.py add."},
        "evaluation": {
            "rubrics": [rubric],
            "test_scripts": [{"path": "evaluation/test_calc.py", "rubric_id": "adds"}],
        },
    }
    _write(
        folder,
        {
            "add/tb_meta.json": json.dumps(meta),
            "add/source/calc.py": _WRONG,
            "add/evaluation/test_calc.py": _TEST,
            "config.toml": 'agent = "shell"\n[models.scripted]\nmodel = "scripted"\n'
            f'base_url = "{url}"\n[[tasks]]\nprepared_dir = "add"\nmodel = "scripted"\n',
        },
    )
    return [str(tree / "scripts" / "eval_rollouts.py"), "run", "config.toml"]


def _agent_benchmark(folder: Path, tree: Path, url: str) -> list[str]:
    told = "bench/storage/paint/instructions"
    _write(
        folder,
        {
            "bench/meta_info/benchmark_list.json": '["paint"]',
            f"{told}/instructions.md": "**Objective**\nBuy paint\n\n**Your Knowledge**\n48 m2\n",
            f"{told}/reference_insights.md": "Three cans.\n",
            "agents/one.toml": f'model = "scripted"\napi_base = "{url}"\napi_key = "none"\n',
            "base.toml": f'[llm]\nmodel = "scripted"\napi_base = "{url}"\napi_key = "none"\n'
            '[benchmark]\nbenchmark_dir = "bench"\nresults = "results"\nlog_path = "logs"\n'
            'checkpoint_path = "checkpoints"\n',
        },
    )
    script = str(tree / "runner.py")
    return [script, "--base_config", "base.toml", "--agent_config", "agents"]


FRONT_ENDS: Mapping[str, Callable[[Path, Path, str], list[str]]] = {
    "prompt suite (`bakeoff run`)": _prompt_suite,
    "prompt suite (`TestRunner`)": _test_runner,
    "batch": _batch,
    "rollouts": _rollouts,
    "agent benchmark": _agent_benchmark,
}


def _write_suite(folder: Path) -> None:
    test = {"id": "capital", "name": "Capital", "prompt": "The capital of France?"}
    suite = {"tests": [{**test, "expected": "Paris"}]}
    _write(folder, {"suite.json": json.dumps(suite)})


def _write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


# --- the model ----------------------------------------------------------------------------------


class _Model(BaseHTTPRequestHandler):
    """Plays whoever is asked: a shell agent, an instructor, a supervisor, a bare model."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        message = {"role": "assistant", **_reply(body)}
        ending = "tool_calls" if "tool_calls" in message else "stop"
        choice = {"index": 0, "message": message, "finish_reason": ending}
        usage = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
        self._send(200, {"id": "1", "model": "scripted", "choices": [choice], "usage": usage})

    def do_GET(self) -> None:
        self._send(404, {"error": {"message": "there is only /chat/completions"}})

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _send(self, status: int, data: Mapping[str, Any]) -> None:
        content = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def _reply(body: Mapping[str, Any]) -> dict[str, Any]:
    question = json.dumps(body)
    if "follow_up_instruction" in question:
        verdict = {"thought": "", "contradictory": False, "follow_up_instruction": None}
        return {"content": json.dumps(verdict)}
    if "user_response" in question:
        return {"content": json.dumps({"thought": "", "user_response": "48 m2", "end": True})}
    worked = any(message["role"] == "tool" for message in body["messages"])
    if body.get("tools") and not worked:
        tool = body["tools"][0]["function"]
        argument = next(iter(tool["parameters"]["properties"]))
        function = {"name": tool["name"], "arguments": json.dumps({argument: _REPAIR})}
        return {
            "content": None,
            "tool_calls": [{"id": "1", "type": "function", "function": function}],
        }
    return {"content": "Paris. Done."}


@contextmanager
def _model_server() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Model)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()


# --- the profiler: this file, as the main program of the other interpreter ------------------------


class Calls:
    """Writes down which functions of a package are called, in the order of their first call."""

    def __init__(self, package: Path) -> None:
        self._prefix = f"{package.resolve()}{os.sep}"
        self._importing = threading.local()
        self._seen: dict[tuple[str, str, int], None] = {}
        self.before: int | None = None

    @property
    def functions(self) -> list[tuple[str, str]]:
        return [(file.removeprefix(self._prefix), name) for file, name, _ in list(self._seen)]

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if code.co_name == "<module>" and frame.f_globals.get("__name__") != "__main__":
            step = {"call": 1, "return": -1}.get(event, 0)
            self._importing.depth = getattr(self._importing, "depth", 0) + step
        elif event == "call" and not getattr(self._importing, "depth", 0):
            if code.co_filename.startswith(self._prefix):
                self._note(code)
            elif self.before is None and _begins_a_trial(frame):
                self.before = len(self._seen)

    def _note(self, code: CodeType) -> None:
        if code.co_flags & CO_OPTIMIZED and code.co_name not in _COMPREHENSIONS:
            self._seen.setdefault((code.co_filename, code.co_qualname, code.co_firstlineno))


def _begins_a_trial(frame: FrameType) -> bool:
    """Say whether the event is being made; a dataclass's constructor is in no file of the package."""
    if frame.f_code.co_name != "__init__":
        return False
    return type(frame.f_locals.get("self")).__name__ == _BEGIN


def _run_profiled(report: Path, package: Path, words: list[str]) -> None:
    calls = Calls(package)
    module = words[1] if words[0] == "-m" else None
    sys.argv = words[1:] if module else words
    sys.path[0] = str(Path.cwd()) if module else str(Path(words[0]).parent)
    threading.setprofile(calls)
    sys.setprofile(calls)
    try:
        if module:
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(words[0], run_name="__main__")
    finally:
        sys.setprofile(None)
        called = {"functions": calls.functions, "before": calls.before}
        report.write_text(json.dumps(called), encoding="utf-8")


if __name__ == "__main__":
    _run_profiled(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
