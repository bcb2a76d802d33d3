"""`bakeoff top` and the live view of a run that another process runs, over a real server."""

import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from bakeoff.stores.live_status import LIVE, read_live_status
from support.cli import BAKEOFF, Running, bakeoff, only_run, started, until
from support.loopback import Asked, Loopback, Reply, chat
from support.reports import write_run
from support.viewed_runs import mostly, squares
from support.viewers import viewing

pytestmark = pytest.mark.timeout(180)


def slowly(asked: Asked) -> Reply:
    time.sleep(0.3)
    return Reply(status=400) if asked.prompt == "7" else chat("done")


@dataclass(frozen=True, kw_only=True)
class Going:
    """A run that goes on in another process."""

    folder: Path
    url: str
    process: Running


@pytest.fixture
def going(tmp_path: Path) -> Iterator[Going]:
    tasks = "".join(
        f"[[tasks]]\nid = 't{n}'\nprompt = '{n}'\nexpected = 'done'\n" for n in range(400)
    )
    with Loopback(slowly) as server:
        model = f"[[models]]\nmodel = 'openai/m'\napi_key = 'x'\nbase_url = '{server.url}/v1'\nsettings = {{max_concurrency = 2}}\n"
        (tmp_path / "slow.toml").write_text(f"{model}{tasks}")
        runs = tmp_path / "runs"
        words: list[str | Path] = [*BAKEOFF, "run", tmp_path / "slow.toml", "--output", runs]
        with started(words, folder=tmp_path / "said") as process:
            until(lambda: list(runs.glob(f"*/{LIVE}")))
            yield Going(folder=only_run(runs), url=server.url, process=process)


def test_what_the_endpoints_of_a_run_do_can_be_seen_from_another_process(
    going: Going, tmp_path: Path
) -> None:
    until(
        lambda: (
            bakeoff("top", going.folder, "--once", folder=tmp_path / "t").out.count("answers") > 0
        )
    )
    ended = bakeoff("top", going.folder, "--once", folder=tmp_path / "top")
    assert ended.code == 0
    assert "running" in ended.out
    assert "of 400 trials" in ended.out
    assert "in flight" in ended.out
    status = read_live_status(going.folder)
    (endpoint,) = status.endpoints
    assert 0 < endpoint.under_way <= 2
    assert endpoint.endpoint in ended.out
    with viewing(going.folder.parent) as viewer:
        _, _, page = viewer.get(f"/run/{going.folder.name}/live")
    assert "Allowed at once" in page
    assert endpoint.endpoint in page
    going.process.process.send_signal(signal.SIGINT)
    going.process.process.wait(60)
    assert not (going.folder / LIVE).exists(), "it says nothing once it has ended"
    assert "not running" in bakeoff("top", going.folder, folder=tmp_path / "after").out


def test_what_a_killed_run_said_of_itself_is_not_believed_for_long(
    going: Going, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    going.process.process.kill()
    going.process.process.wait(60)
    assert (going.folder / LIVE).exists()
    assert "not running" in bakeoff("top", going.folder, folder=tmp_path / "top").out
    monkeypatch.setattr("bakeoff.stores.live_status.timestamp", lambda: time.time() + 60)
    assert read_live_status(going.folder) is None


def test_of_a_run_that_has_ended_it_prints_how_it_is(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "r1", squares(), mostly)
    ended = bakeoff("top", folder, folder=tmp_path / "top")
    assert "not running" in ended.out
    assert "48 of 48 trials" in ended.out
    assert "2 trials of bad broke: provider" in ended.out
    (folder / LIVE).write_text("{")
    assert bakeoff("top", folder, folder=tmp_path / "again").code == 0
