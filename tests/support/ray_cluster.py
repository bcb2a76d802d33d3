"""A Ray cluster of several nodes on this machine, in processes of its own.

It is led by one process that does what it is told on its standard input, and ends with it. Ray
advertises the address of the machine, so whoever speaks to it must have its token.
"""

import json
import os
import secrets
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_health_check_failure_threshold": "100",  # a busy machine is no dead node; a killed one is seen at once
    "RAY_memory_monitor_refresh_ms": "0",  # what else this machine does may fill its memory
}
_STORE = 78 << 20  # bytes; the least that Ray takes


@dataclass(eq=False)
class RayCluster:
    """A cluster that runs; its first node is the head."""

    process: "subprocess.Popen[str]"
    address: str
    environment: dict[str, str]

    def add_node(self, **resources: float) -> int:
        """Start one more node; return its number."""
        return int(self._tell("add", resources))

    def kill_node(self, number: int) -> None:
        """Kill a node with everything on it, as when a machine loses its power."""
        self._tell("kill", number)

    def processes(self) -> list[int]:
        """Return every process of the cluster that is there: of nodes, and of workers on them."""
        return [pid for pid, _ in self._command_lines()]

    def workers(self) -> list[int]:
        """Return the worker processes of runs that are there, on any node."""
        return [pid for pid, line in self._command_lines() if b"bakeoff.app.run_worker" in line]

    def _command_lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield every process that was started with the token of this cluster."""
        mark = self.environment["RAY_AUTH_TOKEN"].encode()
        for path in Path("/proc").iterdir():
            with suppress(OSError):
                if path.name.isdecimal() and mark in (path / "environ").read_bytes():
                    yield int(path.name), (path / "cmdline").read_bytes()

    def _tell(self, what: str, value: object) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps([what, value]) + "\n")
            self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer, f"the cluster ended when it was told to {what}; what it said is above"
        return json.loads(answer)


@contextmanager
def ray_cluster(hidden: Path, nodes: int = 3) -> Iterator[RayCluster]:
    """Start a cluster while the block lasts, and end every process of it.

    Its nodes see *hidden* empty, as on machines without a shared disk, where we may do that.
    """
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as folder:  # sockets: short paths
        token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        # where Ray writes the address of the newest cluster; it does not make that folder itself
        (Path(folder) / "ray").mkdir()
        environment = os.environ | _SETTINGS | token | {"RAY_TMPDIR": folder}
        environment.pop("RAY_ADDRESS", None)
        process = subprocess.Popen(
            [*_without(hidden), sys.executable, "-m", "support.ray_cluster", folder],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            cwd=Path(__file__).parents[1], env=environment, start_new_session=True,
        )  # fmt: skip
        cluster = RayCluster(process, "", environment)
        try:
            cluster.address = cluster._tell("head", {"num_cpus": 1, "resources": {"boxes": 2}})
            for _ in range(nodes - 1):
                cluster.add_node(num_cpus=1, boxes=2)
            yield cluster
        finally:
            with suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=20)
            for pid in [process.pid, *cluster.processes()]:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.wait()
            deadline = time.monotonic() + 20
            while cluster.processes() and time.monotonic() < deadline:
                time.sleep(0.05)


def _without(folder: Path) -> list[str]:
    """Return what makes a program see nothing in *folder*."""
    hide = f"mount -t tmpfs none {shlex.quote(str(folder))}"
    words = ["unshare", "-m", "sh", "-c", f'{hide} && exec "$@"', "sh"]
    tried = subprocess.run([*words, "true"], capture_output=True, check=False)
    return words if tried.returncode == 0 else []


def main() -> None:
    """Lead a cluster in the folder that is named, until standard input ends."""
    from ray.cluster_utils import Cluster

    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Ray prints what it likes
    cluster = Cluster()
    nodes: list[Any] = []
    common: dict[str, Any] = {
        "object_store_memory": _STORE,
        "include_dashboard": False,
        "temp_dir": sys.argv[1],
    }
    try:
        for line in sys.stdin:
            what, value = json.loads(line)
            if what == "kill":
                cluster.remove_node(nodes[value], allow_graceful=False)
                answer: object = value
            else:
                nodes.append(cluster.add_node(**common, **_split(value)))
                answer = cluster.address if what == "head" else len(nodes) - 1
            out.write(json.dumps(answer) + "\n")
            out.flush()
    finally:
        cluster.shutdown()  # type: ignore[no-untyped-call]


def _split(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a node: what Ray does not know by name is a resource of its own."""
    resources = dict(value.get("resources", {}))
    resources |= {k: v for k, v in value.items() if k not in {"num_cpus", "resources"}}
    return {"num_cpus": value["num_cpus"], "resources": resources}


if __name__ == "__main__":
    main()
