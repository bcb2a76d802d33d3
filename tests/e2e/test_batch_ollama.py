"""A batch over every model of an Ollama: a real one, and one whose models change."""

import asyncio
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from bakeoff.frontends.batch.batch import machine_info, ollama_version
from support.batch_scene import BatchScene, write_task
from support.browser import opened
from support.coding_tasks import FIX
from support.parts import require
from support.real_ollama import MODELS, real_ollama
from support.servers import serving

pytestmark = pytest.mark.timeout(900)  # the first run ever installs a server


@pytest.fixture(autouse=True)
def _needs_a_sandbox() -> None:
    require("bubblewrap", shutil.which("bwrap"), "apt-get install bubblewrap")


def test_all_three_real_models_run_to_the_end_and_the_report_opens(tmp_path: Path) -> None:
    with real_ollama() as ollama:
        short = {"max_tokens": 48, "num_ctx": 2048}  # small models go on and on
        config = tmp_path / "models_config.yaml"
        models = [{"name": name, "provider": "ollama", "settings": short} for name in MODELS]
        config.write_text(json.dumps({"models": models}))
        batch = BatchScene(folder=tmp_path, task=write_task(tmp_path), config=config)
        ended = batch.run("--models", "all", "--timeout", "90", env={"OLLAMA_HOST": ollama.url},
                          timeout_s=500)  # fmt: skip
    assert ended.code in {0, 1}, ended.err  # whether they solve it is their affair
    assert set(batch.results) == {f"ollama/{name}" for name in MODELS}
    assert {path.name for path in batch.batch.glob("*_result.json")} == {
        "ollama_smollm2_135m_result.json", "ollama_smollm2_135m-q8_0_result.json",
        "ollama_smollm2_135m-q4_0_result.json",
    }  # fmt: skip
    for result in batch.results.values():
        assert result["status"] in {"success", "failed", "timed out"}, result["error"]
        assert result["prompts_sent"] >= 1
        assert result["tokens"] is None or result["tokens"] > 50
        assert len(result["served"]["digest"]) == 64
    machine = batch.report["machine_info"]
    assert machine["ollama"].startswith("0.")
    assert set(machine["models"]) == set(batch.results)
    assert {path.name for path in batch.batch.glob("comparison_report.*")} == {
        "comparison_report.html", "comparison_report.json", "comparison_report.csv",
    }  # fmt: skip
    path = batch.batch / "comparison_report.html"
    for width in (1280, 390):
        with opened(path, width=width) as page:
            page.open_everything()
            assert len(page.picture(tmp_path / f"real-{width}.png")) > 50_000
            assert page.evaluate("document.documentElement.scrollWidth") == width
            assert (page.said, page.asked) == ([], [path.resolve().as_uri()])


@contextmanager
def ollama_with(models: dict[str, str]) -> Iterator[str]:
    """Serve *models* by name with their digests, as an Ollama does; each of them solves the task."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            tags = [{"name": n, "digest": d, "size": 1, "details": {}} for n, d in models.items()]
            known = {"/api/tags": {"models": tags}, "/api/version": {"version": "0.99"}}
            self._send(known.get(self.path, {}))

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.path == "/api/show":
                self._send({"model_info": {}})
                return
            first = not any(m["role"] == "assistant" for m in asked["messages"])
            message: dict[str, Any] = {"role": "assistant", "content": "Done."}
            if first:
                call = {"function": {"name": "run", "arguments": {"command": FIX}}}
                message = {"role": "assistant", "content": "", "tool_calls": [call]}
            self._send({"model": asked["model"], "message": message, "done": True,
                        "done_reason": "stop", "prompt_eval_count": 9, "eval_count": 4})  # fmt: skip

        def _send(self, data: Any) -> None:
            body = json.dumps(data).encode() + b"\n"
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    with serving(server):
        yield f"127.0.0.1:{server.server_address[1]}"  # as people write OLLAMA_HOST


def test_a_model_that_became_another_is_refused_with_both_digests(tmp_path: Path) -> None:
    models = {"tiny:latest": "a" * 64, "small:1b": "b" * 64}
    with ollama_with(models) as host:
        batch = BatchScene(folder=tmp_path, task=write_task(tmp_path), config=None)
        ended = batch.run(env={"OLLAMA_HOST": host})
        assert ended.code == 0, ended.err
        assert batch.report["successful"] == 2
        models["tiny:latest"] = "c" * 64
        again = batch.run("--resume", batch.batch.name, env={"OLLAMA_HOST": host})
        models["tiny:latest"] = "a" * 64
        whole = batch.run("--resume", batch.batch.name, env={"OLLAMA_HOST": host})
    assert again.code == 1
    assert "'ollama/tiny:latest' is another one now" in again.err
    assert "cccccccccccc" in again.err
    assert "aaaaaaaaaaaa" in again.err
    assert whole.code == 0, whole.err


def test_files_of_models_have_the_names_of_the_documents(tmp_path: Path) -> None:
    with ollama_with({"llama2:latest": "a" * 64, "mistral:7b": "b" * 64}) as host:
        batch = BatchScene(folder=tmp_path, task=write_task(tmp_path), config=None)
        assert batch.run("--parallel", env={"OLLAMA_HOST": host}).code == 0
    names = {path.name for path in batch.batch.glob("*_result.json")}
    assert names == {"ollama_llama2_result.json", "ollama_mistral_7b_result.json"}


def test_the_machine_is_described_with_what_is_known_of_it() -> None:
    with ollama_with({}) as host:
        found = asyncio.run(machine_info(host))
        assert asyncio.run(ollama_version(host)) == "0.99"
    assert found["ollama"] == "0.99"
    assert all(found[key] for key in ("cpu", "cores", "memory_bytes", "os", "python", "bakeoff"))


def test_no_ollama_is_unknown_and_not_an_error() -> None:
    assert asyncio.run(ollama_version("http://127.0.0.1:9")) is None
    assert asyncio.run(ollama_version("ftp://nowhere")) is None
