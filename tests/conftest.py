"""What holds for every test, and which of them are for `make soak`."""

import os
import re
import shutil
import sys
import tempfile

import pytest
from hypothesis import settings

# a test must not fail because the machine is busy
settings.register_profile("bakeoff", deadline=None)
settings.load_profile("bakeoff")

# every test of the command line starts a Python: it need not compile all of bakeoff each time
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# the longest first: no worker is left with one of them at the end
_ORDER = ("e2e", "contract", "faults", "component", "golden", "unit")

# the same again on another engine: the contract suite runs on all of them anyway
_SOAK = re.compile(
    r"component/test_container_\w+\.py::.*podman"
    r"|component/test_reward_scorer\.py::.*podman"
    r"|component/test_validation_containers\.py::.*podman"
    r"|component/test_code_session\.py::.*podman"
    r"|e2e/test_rollouts_containers\.py::.*podman"
    r"|e2e/test_batch_tasks\.py::.*\[(write_file|fix_off_by_one|parse_durations|build_order)\]"
    r"|faults/test_hostile_boxes\.py::.*podman"
    r"|component/test_scratch\.py::.*hundred_thousand"
    r"|hundred_thousand.*(docker|podman)"
    r"|hundred_thousand_ignored_files"
    r"|thirty_boxes.*podman"
)


def pytest_configure(config: pytest.Config) -> None:
    """Give each worker a temporary folder of its own: none takes away what another left."""
    if worker := os.environ.get("PYTEST_XDIST_WORKER"):
        place = tempfile.mkdtemp(prefix=f"bakeoff-{worker}-")
        config.add_cleanup(lambda: shutil.rmtree(place, ignore_errors=True))
        os.environ["TMPDIR"] = place
        tempfile.tempdir = None


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what only repeats something at length."""
    if _SOAK.search(item.nodeid):
        item.add_marker(pytest.mark.soak)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest."""
    rank = {name: place for place, name in enumerate(_ORDER)}
    items.sort(key=lambda item: rank.get(item.path.parent.name, 0))
