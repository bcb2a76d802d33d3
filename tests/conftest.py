"""What holds for every test, and which of them are for `make soak`."""

import atexit
import gc
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from support.alarms import pytest_timeout_set_timer
from support.watchdog import Watchdog

__all__ = ("pytest_timeout_set_timer",)  # a hook of ours

# a test must not fail because the machine is busy
settings.register_profile("bakeoff", deadline=None)
settings.load_profile("bakeoff")

# every test of the command line starts a Python: it need not compile all of bakeoff each time
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# the longest first: no worker is left with one of them at the end
_ORDER = ("e2e", "contract", "faults", "component", "golden", "unit")

# what needs a container engine: one worker does it all, and starts and fills one of each
_IN_CONTAINERS = re.compile(r"test_container_\w+\.py|_containers\.py|[\[-](docker|podman)[\]-]")

# the same again on another engine, in another size or with another example
_SOAK = re.compile(
    r"component/test_container_\w+\.py::.*podman"
    r"|component/test_reward_scorer\.py::.*podman"
    r"|component/test_validation_containers\.py::.*podman"
    r"|component/test_code_session\.py::.*podman"
    r"|component/test_validation_agents\.py::test_the_cheater_plays_each_trick_for_real\[local\]"
    r"|e2e/test_rollouts_containers\.py::.*podman"
    r"|e2e/test_coding_agents\.py::test_it_solves_a_task_in_a_container.*(podman|claude|gemini)"
    r"|e2e/test_rollouts_examples\.py::.*\[model_comparison-15-3\]"
    r"|e2e/test_batch_tasks\.py::.*\[(write_file|fix_off_by_one|parse_durations|build_order)-few\]"
    r"|faults/test_hostile_boxes\.py::.*podman"
    r"|hundred_thousand.*(docker|podman)"
    r"|thirty_boxes.*podman"
)


def pytest_configure(config: pytest.Config) -> None:
    """Watch over every test; give each worker a temporary folder, which no other takes away."""
    config.pluginmanager.register(Watchdog())
    memory = _memory()
    if memory is not None:  # `tmp_path` lies there, too; a worker is told where by the controller
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(memory))
    if worker := os.environ.get("PYTEST_XDIST_WORKER"):
        place = tempfile.mkdtemp(prefix=f"bakeoff-{worker}-", dir=memory)
        # not before: `multiprocessing` takes away what it has there when the process ends
        atexit.register(shutil.rmtree, place, ignore_errors=True)
        os.environ["TMPDIR"] = place
        tempfile.tempdir = None


def _memory() -> Path | None:
    """Return a folder in memory, where there is one with room from which programs may be run.

    Half the time of a test of boxes is the disk's: folders made, filled and removed.
    """
    place = Path("/dev/shm")
    if not place.is_dir() or shutil.disk_usage(place).free < 4 << 30:
        return None
    return None if os.statvfs(place).f_flag & os.ST_NOEXEC else place


@pytest.fixture
def files_in_memory(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Let temporary folders lie in memory, where there is room: for tests that make very many files.

    ext4 without a journal looks at every file that was removed in the last minutes whenever it makes
    one: after a hundred thousand removals this test and all others would crawl.
    """
    memory = _memory()
    if memory is None:
        yield
        return
    tmp_path_factory.getbasetemp()  # pytest's own stays where it is, and outlives this test
    with tempfile.TemporaryDirectory(prefix="bakeoff-", dir=memory) as place:
        monkeypatch.setattr(tempfile, "tempdir", place)
        yield


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what only repeats something at length."""
    if _SOAK.search(item.nodeid):
        item.add_marker(pytest.mark.soak)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest."""
    rank = {name: place for place, name in enumerate(_ORDER)}

    def place(item: pytest.Item) -> tuple[bool, int]:
        return not _IN_CONTAINERS.search(item.nodeid), rank.get(item.path.parent.name, 0)

    items.sort(key=place)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Let the cycle collector pass over what seven thousand tests are made of: a look takes 0.2 s."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Let extension modules see at the end that nobody holds what they made."""
    gc.unfreeze()


class _Scheduling(LoadFileScheduling):
    """A file is one worker's, but for what needs a container engine: that is one worker's, too."""

    def _split_scope(self, nodeid: str) -> str:
        if _IN_CONTAINERS.search(nodeid):
            return "containers"
        return super()._split_scope(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> _Scheduling | None:
    """Share the tests out among the workers."""
    return _Scheduling(config, log) if config.getvalue("dist") == "loadfile" else None
