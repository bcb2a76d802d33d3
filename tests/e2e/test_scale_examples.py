"""The files in examples/scale: what their systems would read and run."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

import bakeoff
from bakeoff.stores.folders import list_runs
from support.loopback import Asked, Loopback, Reply, chat
from support.parts import require

SCALE = Path(__file__).parents[2] / "examples/scale"
ANSWERS = {t["prompt"]: t["expected"] for t in json.loads((SCALE / "suite.json").read_text())["tests"]}  # fmt: skip
SHARDS = 2  # of the eight that the files ask for: what one does, all do


def answer(asked: Asked) -> Reply:
    return chat(ANSWERS[asked.prompt])


def documents(name: str) -> list[Any]:
    return list(yaml.safe_load_all((SCALE / name).read_text()))


def shell(script: str, folder: Path, server: Loopback, **variables: str) -> str:
    """Run *script* as a job would, in *folder*, with the models of *server*."""
    env = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(folder),
        "OPENAI_API_KEY": "sk-test",
        "OPENAI_BASE_URL": server.url,
        **variables,
    }
    done = subprocess.run(
        ["sh", "-c", script], cwd=folder, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def in_container(words: list[str], folder: Path) -> str:
    """The words of a container as a command, with its mounted folders in *folder*."""
    placed = [word.replace("/runs", f"{folder}/runs").replace("/suite/", f"{folder}/") for word in words]  # fmt: skip
    return shlex.join(placed)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The examples where a job finds them."""
    return Path(shutil.copytree(SCALE, tmp_path / "scale"))


def assert_merged(output: Path, server: Loopback) -> None:
    run = bakeoff.load_run("nightly", output=output)
    buckets, manifest = run.summary().buckets, run.manifest
    assert (buckets.planned, buckets.scored) == (40, 40)
    assert len(manifest.merged) == SHARDS
    assert manifest.cap.cost_usd == 20
    assert run.summary().candidates[0].total.score.mean == 1
    assert len(server.requests) == 40  # nothing was asked twice


def test_aws_batch_runs_the_shards_of_an_array_job(folder: Path) -> None:
    definition = json.loads((SCALE / "aws-batch-job-definition.json").read_text())
    job = json.loads((SCALE / "aws-batch-submit.json").read_text())
    assert job["jobDefinition"] == definition["jobDefinitionName"]
    assert job["arrayProperties"]["size"] == 8
    container = definition["containerProperties"]
    entry = (SCALE / "Dockerfile").read_text().partition("ENTRYPOINT ")[2]
    command = in_container([*json.loads(entry), *container["command"]], folder)
    mounted = {mount["containerPath"] for mount in container["mountPoints"]}
    assert container["command"][0].rpartition("/")[0] in mounted
    with Loopback(answer) as server:
        arrays = [
            {"AWS_BATCH_JOB_ARRAY_INDEX": str(index), "AWS_BATCH_JOB_ARRAY_SIZE": str(SHARDS)}
            for index in range(SHARDS)
        ]
        for index, array in enumerate(arrays):
            told = shell(command, folder, server, **array)
            assert f"shard {index}/{SHARDS}: 4 of 8 tasks, $10.0000 of $20.0000" in told
        again = shell(command, folder, server, **arrays[-1])  # a retry of the last child
        assert "already done" in again
        shell("bakeoff merge runs/nightly/shard-*/* --output merged --name nightly", folder, server)
        assert_merged(folder / "merged", server)
    assert [len(list_runs(path)) for path in (folder / "runs/nightly").iterdir()] == [1, 1]


def test_slurm_runs_the_shards_of_a_job_array(folder: Path) -> None:
    script = (SCALE / "slurm.sbatch").read_text()
    assert "#SBATCH --array=0-7" in script
    (merge,) = [line for line in script.splitlines() if "--wrap" in line]
    with Loopback(answer) as server:
        for index in range(SHARDS):
            array = {"SLURM_ARRAY_TASK_ID": str(index), "SLURM_ARRAY_TASK_COUNT": str(SHARDS)}
            shell("bash slurm.sbatch", folder, server, **array)
        shell(merge.partition("--wrap '")[2].rstrip("'"), folder, server)
        assert_merged(folder / "runs", server)


def test_kubernetes_runs_the_shards_of_an_indexed_job(folder: Path) -> None:
    (job,), (merge,) = documents("kubernetes-shards.yaml"), documents("kubernetes-merge.yaml")
    assert (job["apiVersion"], job["kind"], merge["kind"]) == ("batch/v1", "Job", "Job")
    assert job["spec"]["completionMode"] == "Indexed"
    pod = job["spec"]["template"]["spec"]
    (container,), (merging,) = pod["containers"], merge["spec"]["template"]["spec"]["containers"]
    given = {each["name"]: each.get("value") for each in container["env"]}
    assert int(given["SHARDS"]) == job["spec"]["completions"] == 8
    assert pod["volumes"] == merge["spec"]["template"]["spec"]["volumes"]
    command = in_container(["sh", "/suite/shard.sh", *container["args"]], folder)
    with Loopback(answer) as server:
        for index in range(SHARDS):
            shell(command, folder, server, SHARDS=str(SHARDS), JOB_COMPLETION_INDEX=str(index))
        *words, script = merging["command"]
        assert words == ["sh", "-c"]
        shell(script.replace("/runs", f"{folder}/runs"), folder, server)
        assert_merged(folder / "runs", server)


def test_github_actions_run_the_shards_of_a_matrix(folder: Path) -> None:
    (workflow,) = documents("github-actions.yml")
    shard, merge = workflow["jobs"]["shard"], workflow["jobs"]["merge"]
    assert shard["strategy"]["matrix"]["shard"] == list(range(8))
    assert (shard["env"]["SHARD"], shard["env"]["SHARDS"]) == (
        "${{ matrix.shard }}",
        "${{ strategy.job-total }}",
    )
    runs = [step["run"] for step in shard["steps"] if "shard.sh" in step.get("run", "")]
    merges = [step["run"] for step in merge["steps"] if step.get("run", "").startswith("bakeoff")]
    with Loopback(answer) as server:
        for index in range(SHARDS):
            (command,) = runs
            shell(command, folder, server, SHARD=str(index), SHARDS=str(SHARDS))
        for command in merges:
            shell(command, folder, server)
        assert_merged(folder / "merged", server)
    assert list(folder.glob("merged/*/report.html"))


def ray_job() -> Any:
    (job,) = documents("ray-kubernetes.yaml")
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    return job["spec"]


def test_a_ray_cluster_on_kubernetes_runs_and_resumes_what_its_file_says(folder: Path) -> None:
    job = ray_job()
    on_cluster = "--executor ray --workers 32"
    assert on_cluster in job["entrypoint"]  # the executor itself: test_ray.py
    here = in_container(shlex.split(job["entrypoint"].replace(on_cluster, "")), folder)
    with Loopback(answer) as server:
        assert "40 planned = 40 scored" in shell(here, folder, server)
        assert "40 already done" in shell(
            here, folder, server
        )  # a new head after one that was lost
    assert len(list_runs(folder / "runs/nightly")) == 1


def test_the_cluster_on_kubernetes_has_one_image_and_the_keys_on_every_node() -> None:
    cluster = ray_job()["rayClusterSpec"]
    head, (workers,) = cluster["headGroupSpec"], cluster["workerGroupSpecs"]
    (driver,), (worker,) = (g["template"]["spec"]["containers"] for g in (head, workers))
    dockerfile = (SCALE / "ray.Dockerfile").read_text()
    assert f"ARG RAY={cluster['rayVersion']}-" in dockerfile
    assert "COPY --chown=ray run-or-resume.sh suite.json /suite/" in dockerfile
    assert driver["image"] == worker["image"]
    assert f"docker build -f ray.Dockerfile -t {driver['image']} ." in dockerfile
    assert driver["env"] == worker["env"]
    assert head["rayStartParams"]["num-cpus"] == "0"
    (resources,) = shlex.split(workers["rayStartParams"]["resources"])  # as the shell of a pod does
    assert json.loads(resources) == {"boxes": 8}


def test_the_cluster_in_a_cloud_is_one_to_ray_and_its_driver_does_the_same() -> None:
    ray = find_spec("ray")
    require("ray", ray, "uv sync --all-extras")
    assert ray is not None
    assert ray.origin is not None
    text, (cluster,) = (SCALE / "ray-aws.yaml").read_text(), documents("ray-aws.yaml")
    schema = json.loads((Path(ray.origin).parent / "autoscaler/ray-schema.json").read_text())
    jsonschema.validate(cluster, schema)
    node_types = cluster["available_node_types"]
    assert cluster["head_node_type"] in node_types
    assert cluster["docker"]["image"] in (SCALE / "ray.Dockerfile").read_text()
    (driver,) = re.findall(r"ray exec \S+ --tmux '(.*)'", text)
    (keys,) = cluster["file_mounts"]
    assert f"--env-file {keys}" in driver
    in_job = set(shlex.split(ray_job()["entrypoint"]))
    assert in_job - {*shlex.split(driver)} == {"/runs/nightly", "32"}


def test_a_job_that_was_cut_off_is_resumed_and_one_that_had_not_begun_is_started(folder: Path) -> None:  # fmt: skip
    script = "sh shard.sh runs suite.json --model scripted/echo"
    with Loopback(answer) as server:
        (folder / "runs/shard-0/20260101-000000-suite").mkdir(
            parents=True
        )  # killed in its first moment
        told = shell(script, folder, server, SHARD="0", SHARDS="2")
        assert "shard 0/2: 4 of 8 tasks" in told
        assert "4 already done" in shell(script, folder, server, SHARD="0", SHARDS="2")
        missing = subprocess.run(["sh", "shard.sh", "runs", "suite.json"], cwd=folder, env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, check=False)  # fmt: skip
    assert missing.returncode != 0
    assert "set SHARD, from 0" in missing.stderr
