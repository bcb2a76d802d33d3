"""`--executor ray` on a real cluster of three nodes: the same run, also where nodes come and go."""

import json
import re
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from threading import Event

import pytest

import bakeoff
from support.cli import BAKEOFF, Running, run, started
from support.coding_tasks import write_fix_add
from support.loopback import Asked, Loopback, Reply, chat
from support.parts import require
from support.plans import write_suite
from support.ports import free_port
from support.ray_cluster import RayCluster, ray_cluster

pytestmark = pytest.mark.xdist_group("ray")
TASKS = Path(__file__).parents[2] / "examples/tasks"
_OF_THIS_RUN = re.compile(r'"(run|seconds)": [^,\n]*')


@pytest.fixture(scope="module")
def hidden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of this machine that no node of the cluster sees."""
    return tmp_path_factory.mktemp("hidden")


@pytest.fixture(scope="module")
def cluster(hidden: Path) -> Iterator[RayCluster]:
    require("ray", find_spec("ray"), "uv sync --all-extras")
    with ray_cluster(hidden) as running:
        yield running
    assert running.processes() == []


@pytest.fixture
def folder(hidden: Path, request: pytest.FixtureRequest) -> Path:
    path = hidden / request.node.name
    path.mkdir()
    return path


def summary(words: list[str | Path], folder: Path, env: dict[str, str] | None = None) -> str:
    """Return what `bakeoff run --json` prints, without the id of the run and how long it took."""
    ended = run(
        [*BAKEOFF, "run", *words, "--json", "--output", folder / "runs"], folder=folder, env=env
    )
    assert ended.code == 0, ended.err
    return _OF_THIS_RUN.sub(r'"\1": null', ended.out)


def on(cluster: RayCluster) -> list[str | Path]:
    return ["--executor", "ray", "--ray-address", cluster.address]


def test_prompts_have_the_same_summary_to_the_byte_as_in_one_process(
    cluster: RayCluster, folder: Path
) -> None:
    words: list[str | Path] = [
        write_suite(folder / "suite.json", 40),
        "--model",
        "scripted",
        "--rollouts",
        "3",
    ]
    here = summary(words, folder)
    assert summary([*words, *on(cluster)], folder, cluster.environment) == here
    assert json.loads(here)["buckets"]["scored"] == 120


def test_coding_tasks_in_boxes_have_the_same_summary_to_the_byte(
    cluster: RayCluster, folder: Path
) -> None:
    write_fix_add(folder / "tasks")
    shutil.copytree(
        TASKS / "split-module", folder / "tasks/split-module"
    )  # a script, and files for it
    words: list[str | Path] = [
        *(folder / "tasks", "--agent", "oracle", "--agent", "nop", "--model", "scripted"),
        *("--sandbox", "bubblewrap"),
    ]
    here = summary(words, folder)
    assert summary([*words, *on(cluster)], folder, cluster.environment) == here


def slow_echo(asked: Asked, until: Event | None = None) -> Reply:
    if until is None or not until.is_set():
        time.sleep(0.3)
    return chat(asked.prompt)


def test_nodes_that_die_and_join_in_the_middle_cost_no_trial_and_no_limit(
    cluster: RayCluster, folder: Path
) -> None:
    doomed = cluster.add_node(num_cpus=1, boxes=2)
    joined = Event()
    with Loopback(lambda asked: slow_echo(asked, until=joined)) as server:
        words = limited_run(server, folder, tasks=400)
        with started([*words, *on(cluster)], folder=folder, env=cluster.environment) as running:
            wait_for(lambda: len(cluster.workers()) == 4, running)
            begun = len(server.requests)
            wait_for(lambda: len(server.requests) > begun + 20, running)
            cluster.kill_node(doomed)
            wait_for(lambda: len(cluster.workers()) == 3, running)
            cluster.add_node(num_cpus=1, boxes=2)
            wait_for(lambda: len(cluster.workers()) == 4, running)
            joined.set()
            assert running.process.wait(120) == 0, running.err
        finished = bakeoff.load_run(next((folder / "runs").iterdir()))
        assert finished.summary().buckets.scored == 400
        asked = Counter(each.prompt for each in server.requests)
        assert len(asked) == 400
        assert server.peak_in_flight <= 6
        assert re.search(
            r"worker \d+ on \S+ ended \(its node .*\); \d+ trials? .* run again", running.err
        )
        assert len({record.name for record in finished.trials()}) == 400


def limited_run(server: Loopback, folder: Path, *, tasks: int) -> list[str | Path]:
    """Return the words that ask *server* so many tasks, six at once."""
    write_suite(folder / "suite.json", tasks)
    run_file = folder / "run.toml"
    run_file.write_text(
        'suites = ["suite.json"]\n[[models]]\nmodel = "m"\n'
        f'base_url = "{server.url}"\nsettings = {{ max_concurrency = 6 }}\n'
    )
    return [*BAKEOFF, "run", run_file, "--output", folder / "runs"]


def wait_for(condition: Callable[[], bool], running: Running | None = None) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert running is None or running.process.poll() is None, running.err
        assert time.monotonic() < deadline, running and running.err
        time.sleep(0.02)


@pytest.mark.soak
def test_a_run_whose_driver_was_killed_is_resumed_and_its_workers_are_gone(
    cluster: RayCluster, folder: Path
) -> None:
    with Loopback(slow_echo) as server:
        words = limited_run(server, folder, tasks=80)
        with started([*words, *on(cluster)], folder=folder, env=cluster.environment) as running:
            wait_for(lambda: len(server.requests) > 20, running)
            running.process.send_signal(signal.SIGKILL)
            running.process.wait(10)
        wait_for(lambda: server.in_flight == 0)
        asked = len(server.requests)
        time.sleep(2.0)
        assert len(server.requests) == asked  # nobody goes on without the run
        ended = run(
            [*BAKEOFF, "run", "--resume", "latest", "--output", folder / "runs", *on(cluster)],
            folder=folder, env=cluster.environment,
        )  # fmt: skip
        assert ended.code == 0, ended.err
    finished = bakeoff.load_run(next((folder / "runs").iterdir()))
    assert finished.summary().buckets.scored == 80
    assert len({record.name for record in finished.trials()}) == 80
    assert server.peak_in_flight <= 6
    assert len(server.requests) <= 80 + 6  # at most what was under way is asked again


def test_an_address_at_which_nobody_answers_is_one_line_within_seconds(tmp_path: Path) -> None:
    suite = write_suite(tmp_path / "suite.json", 1)
    began = time.monotonic()
    ended = run(
        [*BAKEOFF, "run", suite, "--model", "scripted", "--output", tmp_path / "runs",
         "--executor", "ray", "--ray-address", f"127.0.0.1:{free_port()}"],
        folder=tmp_path,
    )  # fmt: skip
    assert ended.code == 1
    assert "no Ray cluster answers there" in ended.err
    assert "Traceback" not in ended.err
    assert time.monotonic() - began < 20
    assert not (tmp_path / "runs").exists()
