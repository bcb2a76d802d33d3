"""`runner.py` as a person uses it: files in, a tree of files out, and clear words where it is wrong."""

import json
import os
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from support.agent_benches import Players, write_agent, write_base, write_bench, write_case
from support.cli import Ended, bakeoff, run
from support.loopback import Asked, Loopback, Reply, chat

ROOT = Path(__file__).parents[2]


def runner(*words: str | Path, cwd: Path) -> Ended:
    return run([sys.executable, ROOT / "runner.py", *words], cwd=cwd, timeout_s=150)


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def counts(summary: dict[str, Any]) -> dict[str, int]:
    """Return the counts of a summary, after looking whether they add up."""
    found = {k.removesuffix("_tests"): n for k, n in summary.items() if k.endswith("_tests")}
    held = found["passed"] + found["failed"] + found["unscored"]
    assert found["successful"] == held
    assert found["total"] == held + found["faulted"] + found["cancelled"] + found["not_run"]
    return found


def test_two_agents_and_two_cases_leave_the_whole_tree(tmp_path: Path) -> None:
    write_bench(tmp_path, ["alpha", "beta"])
    with Loopback(Players(2)) as server:
        table = {"results": "results", "log_path": "logs", "checkpoint_path": "checkpoints"}
        write_base(tmp_path, server.url, benchmark={**table, "benchmark_dir": "bench"})
        write_agent(tmp_path, "first", server.url)
        write_agent(tmp_path, "second", server.url, id="the/second:one", temperature=0.9)
        write_agent(tmp_path, "sample_agent_config", server.url, model="never asked")
        done = runner(cwd=tmp_path)  # everything at its default place
        assert done.code == 0, done.err
        models = {asked.body["model"] for asked in server.requests}
        temperatures = Counter(a.body["temperature"] for a in server.requests)
    assert models == {"roles", "candidate"}
    assert temperatures[0.9] == 8  # four turns in two cases
    assert set(temperatures) == {0.4, 0.9}
    (run,) = (tmp_path / "results").iterdir()
    assert run.name.startswith("run_20")
    results = {f.name for f in run.iterdir() if f.is_file()}
    assert {"all_results.json", "summary.json", "results_first.json"} < results
    (second,) = [f for f in results if "second" in f]
    first = read(run / "results_first.json")
    assert [(e["test_case"], e["agent_id"], e["status"]) for e in first] == [
        ("alpha", "first", "completed"),
        ("beta", "first", "completed"),
    ]
    assert [e["agent_id"] for e in read(run / second)] == ["the/second:one"] * 2
    summary = read(run / "summary.json")
    assert counts(summary) == {"total": 4, "successful": 4, "passed": 0, "failed": 0, "unscored": 4,
                               "faulted": 0, "cancelled": 0, "not_run": 0}  # fmt: skip
    assert summary["finished"] is True
    for entry in summary["results"]:
        for key in ("checkpoint_path", "log_path", "result_path"):
            assert (tmp_path / entry[key]).is_file(), entry
    main_log = (tmp_path / "logs" / run.name / "main.log").read_text()
    assert main_log.count(": completed\n") == 4
    assert "agent first, case alpha: turn 4\n" in main_log
    assert "agent first: 2 completed; nothing was scored\n" in main_log
    log = tmp_path / "logs" / run.name / "agent_first" / "alpha" / "alpha.log"
    lines = log.read_text().splitlines()
    assert lines[0] == "turn 1 instructor: this is message 1"
    assert lines[-1] == "ended: completed"


def test_a_checkpoint_tells_the_conversation_from_every_seat(tmp_path: Path) -> None:
    write_bench(tmp_path, ["alpha"])
    with Loopback(Players(2)) as server:
        base = write_base(tmp_path, server.url)
        write_agent(tmp_path, "one", server.url)
        done = runner("--base_config", base, "--agent_config", tmp_path / "agent_configs" / "one.toml",
                      "-l", "debug", cwd=tmp_path)  # fmt: skip
    assert done.code == 0, done.err
    assert "turn 1 agent: reply 1" in done.err
    (entry,) = read(next((tmp_path / "results").glob("*/all_results.json")))
    history = read(Path(entry["checkpoint_path"]))["conversation_history"]
    assert [h["role"] for h in history][:3] == ["user agent", "gatekeeper", "assistant agent"]
    assert [h["party"] for h in history][:3] == ["instructor", "supervisor", "agent"]
    assert history[0]["parsed_response"]["user_response"] == "this is message 1"
    assert history[1]["parsed_response"]["contradictory"] is False
    assert history[2]["prompt_received"] == "this is message 1"
    assert "parsed_response" not in history[2]
    last = next(h for h in reversed(history) if h["role"] == "assistant agent")
    assert [m["content"] for m in last["all_messages"]][:2] == ["this is message 1", "reply 1"]
    assert "insight of alpha" in history[0]["all_messages"][0]["content"]
    assert entry["supervisor_interventions"] == 1  # message 2 is objected to, and ends it no more


def test_the_summary_names_the_failures_in_which_a_role_had_a_part(tmp_path: Path) -> None:
    write_bench(tmp_path, ["alpha", "beta"])
    with Loopback(Players(2)) as server:
        base = write_base(tmp_path, server.url, benchmark={"max_turns": 2})
        write_agent(tmp_path, "one", server.url)
        done = runner("--base_config", base, cwd=tmp_path)
    assert done.code == 0, done.err
    (run,) = (tmp_path / "results").iterdir()
    summary = read(run / "summary.json")
    assert {k: n for k, n in counts(summary).items() if n} == {
        "total": 2,
        "successful": 2,
        "failed": 2,
    }
    told = summary["role_fidelity"]
    # both were cut while a follow-up was pending
    assert (told["failures"], told["failures_touched"]) == (2, 2)
    assert told["marked_turns"] == {"contradicted": 2}
    assert [(t["agent_id"], t["test_case_id"], t["marks"]) for t in told["touched"]] == [
        ("one", "alpha", {"contradicted": [2]}),
        ("one", "beta", {"contradicted": [2]}),
    ]
    assert "of 2 failures they touch 2: alpha@one#0, beta@one#0" in done.err
    assert all(e["role_fidelity"]["touches_a_failure"] for e in read(run / "all_results.json"))


def test_four_agents_with_25_cases_keep_eight_busy_and_are_kept_apart(tmp_path: Path) -> None:
    cases = [f"case{number:02}" for number in range(25)]
    write_bench(tmp_path, cases)
    with Loopback(Players(1)) as server:
        base = write_base(tmp_path, server.url, benchmark={"max_workers": 8})
        plain = {"adaptive_rate_limit": False}
        write_agent(tmp_path, "a", server.url, model="x:y", **plain)
        write_agent(tmp_path, "b", server.url, model="x:y", **plain)
        write_agent(tmp_path, "c", server.url, id="ollama/x:y", model="other/x:y", **plain)
        write_agent(tmp_path, "d", server.url, model="x:y", temperature=0.1, **plain)
        text = base.read_text()
        base.write_text(text.replace("[benchmark]", "adaptive_rate_limit = false\n[benchmark]"))
        held = _holding(server, 8)
        done = runner("--base_config", base, "--agent_config", tmp_path / "agent_configs",
                      cwd=tmp_path)  # fmt: skip
        assert done.code == 0, done.err
        assert server.peak_in_flight == 8
        assert held.most == 8
        assert len(server.requests) == 100 * 3
    (run,) = (tmp_path / "results").iterdir()
    entries = read(run / "all_results.json")
    assert len({(e["agent_id"], e["test_case"]) for e in entries}) == 100
    assert {e["status"] for e in entries} == {"completed"}
    files = sorted(run.glob("results_*.json"))
    assert len(files) == 4
    assert {read(f)[0]["agent_id"] for f in files} == {"a", "b", "ollama/x:y", "d"}
    for file in files:
        assert [e["test_case"] for e in read(file)] == cases


BLOCKING = """
import time
from pathlib import Path

def solve(task, model, here):
    Path(here, task.id).touch()
    while len(list(Path(here).iterdir())) < 4:  # nobody goes on before all four are there
        time.sleep(0.01)
    print("all are here")
    return "done"
"""


def test_agents_that_block_have_processes_in_which_they_work_at_the_same_time(
    tmp_path: Path,
) -> None:
    cases = ["a", "b", "c", "d"]
    write_bench(tmp_path, cases)
    (tmp_path / "here").mkdir()
    (tmp_path / "mine.py").write_text(BLOCKING)
    with Loopback(Players(1)) as server:
        base = write_base(tmp_path, server.url, benchmark={"max_workers": 4})
        path = write_agent(tmp_path, "blocking", server.url, framework="mine:solve")
        path.write_text(path.read_text() + f'\n[settings]\nhere = "{tmp_path / "here"}"\n')
        done = runner("--base_config", base, cwd=tmp_path)
    assert done.code == 0, done.err
    (run,) = (tmp_path / "results").iterdir()
    entries = read(run / "all_results.json")
    assert {(e["test_case"], e["status"]) for e in entries} == {(c, "completed") for c in cases}
    for entry in entries:
        assert "all are here" in (tmp_path / entry["log_path"]).read_text()


class _Held:
    """Keeps answers back until *many* wait, as long as that can still happen."""

    def __init__(self, server: Loopback, many: int) -> None:
        self._answer = server.answer
        self._barrier = threading.Barrier(many)
        self._broken = False
        self.most = 0
        self._server = server

    def __call__(self, asked: Asked) -> Reply:
        self.most = max(self.most, self._server.in_flight)
        if asked.number < 64 and not self._broken:
            try:
                self._barrier.wait(timeout=20)
            except threading.BrokenBarrierError:
                self._broken = True
        return self._answer(asked)


def _holding(server: Loopback, many: int) -> _Held:
    held = _Held(server, many)
    server.answer = held
    return held


def test_shards_and_the_other_names_of_the_keys(tmp_path: Path) -> None:
    write_case(tmp_path / "bench", "s", shards="1. use pandas\n\n2) drop the id\n- scale it\n")

    def answer(given: Asked) -> Reply:
        if given.body["model"] != "person":
            return chat("ok")
        left = given.body["messages"][-1]["content"].split("are left:\n")[1].splitlines()
        told = [line.split(". ", 1) for line in left][:2]
        return chat(json.dumps({"thought": "", "user_response": " and ".join(t for _, t in told),
                                "shards": [int(n) for n, _ in told]}))  # fmt: skip

    with Loopback(answer) as server:
        write_agent(tmp_path, "one", server.url)
        base = tmp_path / "base.toml"
        base.write_text(
            f'[user]\nmodel = "person"\napi_base = "{server.url}"\nsystem_prompt = "Be Ann."\n'
            f'[benchmark]\nbenchmark_path = "bench"\nresult_path = "out"\nuser_type = "shard_user"\n'
        )
        done = runner("--base_config", base, cwd=tmp_path)
    assert done.code == 0, done.err
    (entry,) = read(next((tmp_path / "out").glob("*/all_results.json")))
    assert entry["conversation_turns"] == 3
    assert entry["ended"] == "all shards are told"
    history = read(tmp_path / entry["checkpoint_path"])["conversation_history"]
    said = [h["prompt_received"] for h in history if h["role"] == "assistant agent"]
    assert said[:2] == ["use pandas and drop the id", "- scale it"]
    assert history[0]["all_messages"][0]["content"].startswith("Be Ann.")


def test_the_same_through_bakeoff_run(tmp_path: Path) -> None:
    write_bench(tmp_path, ["alpha"])
    with Loopback(Players(1)) as server:
        base = write_base(tmp_path, server.url)
        write_agent(tmp_path, "one", server.url)
        (tmp_path / "agent_configs").rename(tmp_path / "others")
        words = ["run", str(base), "--agents", "others", "--output", "r", "--json"]
        done = bakeoff(*words, cwd=tmp_path)
    assert done.code == 0, done.err
    assert [c["candidate"] for c in json.loads(done.out)["candidates"]] == ["one"]


@pytest.mark.parametrize(
    ("write", "says"),
    [
        (lambda d: (d / "base_config.toml").write_text("[benchmark"), "not valid TOML"),
        (lambda d: (d / "base_config.toml").unlink(), "cannot be read"),
        (lambda d: (d / "agent_configs" / "one.toml").unlink(), "there are no agents in this folder"),
        (lambda d: _edit(d, "benchmark_dir", "benchmark_dirr"), "did you mean 'benchmark_dir'"),
        (lambda d: _edit(d, 'model = "roles"', ""), "no model plays the instructor"),
        (lambda d: _edit(d, "/bench", "/nowhere"), "key 'benchmark.benchmark_dir': "),
        (lambda d: _agent(d, 'model = "openay/x"'), "agent_configs/one.toml:1: model 'openay/x': no provider is called 'openay' (did you mean 'openai'?); write it as provider/name, or say where it is with `api_base`"),
        (lambda d: _agent(d, 'model = "scripted"\nframework = "shel"'), "agent_configs/one.toml:2: no agent is called 'shel'"),
        (lambda d: _agent(d, 'model = "scripted"\napi_key = "${NOBODY_SET_IT}"'), "agent_configs/one.toml:1: model 'scripted/echo': the environment variable NOBODY_SET_IT"),
        (lambda d: _edit(d, "sk-role-key-1234", "${NOBODY_SET_IT}"), "base_config.toml: the model of [llm]: model 'openai-compatible/roles': the environment variable NOBODY_SET_IT"),
        (lambda d: _edit(d, "[benchmark]", '[gatekeeper]\nmodel = "b"\napi_key = "${NOBODY_SET_IT}"\n[benchmark]'), "the model of [gatekeeper]: model"),
        (lambda d: (d / "bench/meta_info/benchmark_list.json").write_text("[]"), "there are no cases in"),
        (lambda d: (d / "bench/meta_info/benchmark_list.json").write_text("{}"), "a list of ids"),
        (lambda d: _edit(d, "[benchmark]", '[benchmark]\ntest_cases = ["alpa"]'), "did you mean"),
        (lambda d: (d / "bench/storage/alpha/instructions/instructions.md").unlink(), "instructions.md"),
        (lambda d: _edit(d, "[benchmark]", '[benchmark]\nmax_workers = 0'), "max_workers"),
        (lambda d: (d / "agent_configs" / "one.toml").write_text("temperatur = 1"), "temperature"),
        (lambda d: (d / "agent_configs" / "one.toml").write_text('framework = "shell"'), "`model` is missing"),
    ],
)  # fmt: skip
def test_what_is_wrong_ends_with_1_and_one_message(tmp_path: Path, write: Any, says: str) -> None:
    write_bench(tmp_path, ["alpha"])
    write_base(tmp_path, "http://127.0.0.1:9/v1")
    write_agent(tmp_path, "one", "http://127.0.0.1:9/v1")
    write(tmp_path)
    done = runner(cwd=tmp_path)
    assert done.code == 1, done.err
    assert says in done.err
    assert done.err.startswith("runner: error: ")
    assert "Traceback" not in done.err
    assert not list(tmp_path.glob("results/*"))


def _agent(folder: Path, text: str) -> None:
    (folder / "agent_configs" / "one.toml").write_text(text)


def _edit(folder: Path, old: str, new: str) -> None:
    path = folder / "base_config.toml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_help_names_every_option(tmp_path: Path) -> None:
    done = runner("--help", cwd=tmp_path)
    assert done.code == 0
    for word in ("--base_config", "--agent_config", "--log_level", "-l", "--resume"):
        assert word in done.out


def test_rpm_holds_for_all_agents_together(tmp_path: Path) -> None:
    write_bench(tmp_path, ["a", "b", "c"])
    with Loopback(Players(1)) as server:
        base = write_base(tmp_path, server.url)
        base.write_text(base.read_text() + "\n[rpm_per_model]\ncandidate = 60\n")
        write_agent(tmp_path, "one", server.url)
        write_agent(tmp_path, "two", server.url)
        times: list[float] = []
        before = server.answer

        def answer(asked: Asked) -> Reply:
            if asked.body["model"] == "candidate":
                times.append(os.times().elapsed)
            return before(asked)

        server.answer = answer
        done = runner("--base_config", base, cwd=tmp_path)
        assert done.code == 0, done.err
    assert len(times) == 6
    assert max(times) - min(times) > 3.5  # six at one a second


def test_an_endpoint_that_stays_down_is_given_up_after_the_time_that_was_set(
    tmp_path: Path,
) -> None:
    write_bench(tmp_path, ["alpha"])
    base = write_base(tmp_path, "http://127.0.0.1:9/v1")
    write_agent(tmp_path, "one", "http://127.0.0.1:9/v1")
    done = runner("--base_config", base, "--give_up_after", "0.1s", cwd=tmp_path)
    assert done.code == 6, done.err
    *_, why, step = done.err.splitlines()
    assert "ERROR given up: http://127.0.0.1:9: no answer for " in why
    assert f"continue with: python {ROOT / 'runner.py'} --base_config {base} --give_up_after 0.1s --resume run_" in step  # fmt: skip


def test_a_fault_is_told_and_ends_with_3(tmp_path: Path) -> None:
    write_bench(tmp_path, ["alpha"])
    with Loopback(
        lambda _: Reply(status=401, body=b'{"error": "no such key sk-agent-key-1234"}')
    ) as server:
        base = write_base(tmp_path, server.url)
        write_agent(tmp_path, "one", server.url)
        done = runner("--base_config", base, cwd=tmp_path)
    assert done.code == 3
    (run,) = (tmp_path / "results").iterdir()
    *_, agents, again, where = done.err.splitlines()
    assert agents.endswith("agent one: 1 faulted; nothing was scored")
    assert f"run those again with: python {ROOT / 'runner.py'} --base_config {base} --resume {run.name}" in again  # fmt: skip
    assert where.endswith(f"the conversations: bakeoff show {run / 'run'}")
    (entry,) = read(run / "all_results.json")
    assert entry["status"] == "faulted"
    assert (entry["score"], entry["conversation_turns"]) == (None, 0)
    assert Path(entry["checkpoint_path"]).is_file()
    assert "role 'instructor'" in Path(entry["log_path"]).read_text()
    assert "role 'instructor'" in entry["error"]
    summary = read(run / "summary.json")
    assert {k: n for k, n in counts(summary).items() if n} == {"total": 1, "faulted": 1}
    assert summary["results"][0]["error"] == entry["error"]
    everything = "".join(
        f.read_bytes().decode(errors="replace")
        for place in ("results", "logs", "checkpoints")
        for f in (tmp_path / place).rglob("*")
        if f.is_file()
    )
    assert "sk-agent-key-1234" not in everything + done.err
    assert "sk-role-key-1234" not in everything + done.err
