"""What a box with a network can reach: never what listens on the host, unless the operator says so.

Nothing here talks to another machine: the Internet of these tests is a server on loopback, or a
second network namespace with a public address.
"""

import asyncio
import http.server
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bakeoff._lib import scratch
from bakeoff.core.errors import UsageError
from bakeoff.core.sandbox import Box, BoxSpec, Command, CommandResult, GatewayAddress, Sandbox
from bakeoff.sandboxes.bubblewrap.sandbox import Bubblewrap
from bakeoff.sandboxes.containers.sandbox import Container
from bakeoff.sandboxes.egress import uplink
from bakeoff.sandboxes.egress.proxy import own_addresses
from support.parts import require
from support.sandboxes import container, folders_with
from support.servers import serving
from support.unix_http import UnixHttp

CONNECT = """
import socket, sys
for target in sys.argv[1:]:
    host, port = target.rsplit(":", 1)
    try:
        socket.create_connection((host, int(port)), 3).close()
        print(target, "connected")
    except OSError as error:
        print(target, "refused", error)
"""
GET = """
import sys, urllib.error, urllib.request
for url in sys.argv[1:]:
    try:
        print(urllib.request.urlopen(url, timeout=20).read().decode().strip())
    except urllib.error.HTTPError as error:
        print(error.code, error.read().decode().strip())
    except OSError as error:
        print("failed", error)
"""
TUNNEL = """
import http.client, os, sys
proxy = os.environ["HTTPS_PROXY"].removeprefix("http://")
for target in sys.argv[1:]:
    line = http.client.HTTPConnection(proxy, timeout=20)
    host, port = target.rsplit(":", 1)
    line.set_tunnel(host, int(port))
    try:
        line.request("GET", "/through")
        print(line.getresponse().read().decode().strip())
    except OSError as error:
        print("failed", error)
"""


@pytest.fixture(autouse=True)
def _needs_bubblewrap() -> None:
    why = Bubblewrap.available()
    require("bubblewrap", why is None, why or "")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "files"
    made.mkdir()
    return made


class _Page(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = f"{self.path} at {self.headers['Host']}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def site() -> Iterator[int]:
    """The port of a web server on loopback."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Page)
    with serving(server):
        yield server.server_address[1]


def ran(sandbox: Sandbox, folder: Path, *argv: str, **spec: Any) -> tuple[CommandResult, Box]:
    async def work() -> tuple[CommandResult, Box]:
        box = await sandbox.open(BoxSpec(label="t", folder=folder, **spec))
        try:
            return await box.run(Command(argv=argv, time_s=60)), box
        finally:
            await box.close()
            await sandbox.close()

    return asyncio.run(work())


# ---- the whole network


def _needs_an_uplink() -> None:
    why = uplink.unavailable_reason()
    require("an uplink for boxes", why is None, why or "")


def test_a_box_with_a_network_reaches_nothing_that_listens_on_the_host(folder: Path) -> None:
    _needs_an_uplink()
    with socket.create_server(("0.0.0.0", 0)) as server:
        port = server.getsockname()[1]
        addresses = {"127.0.0.1", "10.0.2.2", "10.0.2.3"}
        addresses |= {address for address in own_addresses() if ":" not in address}
        targets = [f"{address}:{port}" for address in sorted(addresses)]
        result, _ = ran(Bubblewrap(), folder, "python3", "-c", CONNECT, *targets, network=True)
    assert len(result.output.splitlines()) == len(targets)
    assert "connected" not in result.output


def test_the_routes_of_a_box_cannot_be_changed_by_it(folder: Path) -> None:
    _needs_an_uplink()
    script = "ip route del unreachable 10.0.0.0/8; ip route add 10.9.9.9 via 10.0.2.2; ip route"
    result, _ = ran(Bubblewrap(), folder, "sh", "-c", script, network=True)
    assert result.output.count("Operation not permitted") == 2
    assert "unreachable 169.254.0.0/16" in result.output
    assert "default via 10.0.2.2" in result.output


def test_a_box_with_a_network_has_its_gateway_and_its_uplink_ends_with_the_command(
    folder: Path,
) -> None:
    _needs_an_uplink()
    with UnixHttp(at := scratch.new_folder("socket")) as server:

        async def work() -> str:
            sandbox = Bubblewrap()
            spec = BoxSpec(label="t", folder=folder, network=True, gateway=server.address)
            box = await sandbox.open(spec)
            ask = "import sys, urllib.request as u; print(u.urlopen(sys.argv[1], b'abc').read())"
            command = Command(argv=("python3", "-c", ask, str(box.gateway_url)), time_s=60)
            running = asyncio.create_task(box.run(Command(argv=("sleep", "60"), time_s=60)))
            while not _uplinks(os.getpid()):
                await asyncio.sleep(0.01)
            result = await box.run(command)
            await box.close()
            await running
            await sandbox.close()
            return result.output

        output = asyncio.run(work())
    scratch.remove(at)
    assert output == "b'heard 3 abc'\n"
    assert _uplinks(os.getpid()) == []


_SLEEPS = """
import asyncio
from bakeoff.core.sandbox import BoxSpec, Command
from bakeoff.sandboxes.bubblewrap.sandbox import Bubblewrap

async def main():
    box = await Bubblewrap().open(BoxSpec(label="t", folder=None, network=True))
    await box.run(Command(argv=("sleep", "600")))

asyncio.run(main())
"""


def test_the_uplink_of_a_killed_runner_ends_too() -> None:
    _needs_an_uplink()
    runner = subprocess.Popen([sys.executable, "-c", _SLEEPS])
    uplinks: list[str] = []
    until = time.monotonic() + 60
    while not uplinks and time.monotonic() < until:
        time.sleep(0.02)
        uplinks = _uplinks(runner.pid)
    runner.kill()
    runner.wait(60)
    assert len(uplinks) == 1
    until = time.monotonic() + 30
    while _words(uplinks[0]) and time.monotonic() < until:
        time.sleep(0.02)
    assert _words(uplinks[0]) == b""


def _words(pid: str) -> bytes:
    """The arguments of a process; nothing where it has ended."""
    try:
        return Path("/proc", pid, "cmdline").read_bytes()
    except OSError:
        return b""


def _uplinks(parent_pid: int) -> list[str]:
    """The uplinks that a process has started."""
    started = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if parent == parent_pid and b"slirp4netns" in _words(entry.name).split(b"\0")[0]:
            started.append(entry.name)
    return started


# Its own network, in which a second namespace has a public address and the name server another.
_INTERNET = """
set -e
ip link set lo up
unshare --net sleep 60 & internet=$!
until [ "$(readlink /proc/$internet/ns/net)" != "$(readlink /proc/$$/ns/net)" ]; do sleep 0.01; done
ip link add out type veth peer name in netns $internet
ip addr add 5.0.0.1/24 dev out
ip link set out up
nsenter -t $internet -n ip link set lo up
nsenter -t $internet -n ip addr add 5.0.0.2/24 dev in
nsenter -t $internet -n ip link set in up
nsenter -t $internet -n ip addr add 192.168.77.1/32 dev in
ip route add 192.168.77.0/24 dev out
nsenter -t $internet -n "$0" -m http.server 80 --directory "$1" --bind 0.0.0.0 >/dev/null 2>&1 & server=$!
trap 'kill $server $internet' EXIT
"$0" -c "
import socket, time
for address in ('5.0.0.2', '192.168.77.1'):
    for _ in range(500):
        try: socket.create_connection((address, 80), 1).close(); break
        except OSError: time.sleep(0.02)
    else: raise SystemExit('no server at ' + address)
"
"$0" "$2"
"""
_IN_A_BOX = """
import asyncio, sys
from bakeoff.core.sandbox import BoxSpec, Command
from bakeoff.sandboxes.bubblewrap.sandbox import Bubblewrap

async def main():
    sandbox = Bubblewrap()
    box = await sandbox.open(BoxSpec(label="t", folder=None, network=True))
    argv = ("python3", "-c", CODE, "http://5.0.0.2/page", "http://5.0.0.1/", "http://192.168.77.1/page")
    print((await box.run(Command(argv=argv, time_s=60))).output)
    await box.close()
    await sandbox.close()

asyncio.run(main())
"""


def test_a_box_with_a_network_reaches_public_addresses_only(tmp_path: Path) -> None:
    _needs_an_uplink()
    require("root and ip", os.getuid() == 0 and shutil.which("ip"), "apt install iproute2, as root")
    (tmp_path / "www").mkdir()
    (tmp_path / "www" / "page").write_text("out on the Internet")
    program = tmp_path / "in_a_box.py"
    program.write_text(f"CODE = {GET!r}\n{_IN_A_BOX}")
    done = subprocess.run(
        ["unshare", "--net", "sh", "-c", _INTERNET, sys.executable, tmp_path / "www", program],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    page, own, private = done.stdout.split("\n", 2)
    assert page == "out on the Internet"
    assert "unreachable" in own or "No route" in own
    assert "unreachable" in private or "No route" in private


def test_without_an_uplink_a_network_is_refused_with_what_can_be_done(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "bwrap").symlink_to(shutil.which("bwrap") or "")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(UsageError, match="apt install slirp4netns") as refused:
        ran(Bubblewrap(), folder, "true", network=True)
    for remedy in ('network = ["pypi.org", ...]', "--sandbox docker", 'network = "host"'):
        assert remedy in str(refused.value)
    assert ran(Bubblewrap(), folder, "true", network=False)[0].code == 0


def test_the_operator_may_share_the_host_s_network(folder: Path, site: int) -> None:
    gateway = GatewayAddress(socket="/nonexistent.sock", url=f"http://127.0.0.1:{site}")
    sandbox = Bubblewrap(network="host")
    argv = ("python3", "-c", GET, f"{gateway.url}/here")
    result, box = ran(sandbox, folder, *argv, network=True, gateway=gateway)
    assert box.gateway_url == gateway.url
    assert result.output == f"/here at 127.0.0.1:{site}\n"
    # and a task that asks for none has none
    assert ran(Bubblewrap(network="host"), folder, *argv)[0].output.startswith("failed")


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"network": "all"}, "'all'"),
        ({"private_hosts": "localhost"}, "private_hosts"),
        ({"private_hosts": ["http://localhost"]}, "is no host"),
    ],
)
def test_settings_of_the_network_that_mean_nothing_are_refused(
    settings: dict[str, Any], why: str
) -> None:
    with pytest.raises(UsageError, match=why):
        Bubblewrap(**settings)


# ---- a list of hosts


def test_a_box_reaches_the_hosts_of_its_list_and_no_others(folder: Path, site: int) -> None:
    urls = [f"http://localhost:{site}/a?b=c", f"http://other.example:{site}/", "http://localhost/"]
    hosts = (f"localhost:{site}",)
    sandbox = Bubblewrap(private_hosts=hosts)
    # the environment keeps loopback out of proxies; here loopback stands for the Internet
    environment = {"NO_PROXY": "", "no_proxy": ""}
    result, box = ran(
        sandbox, folder, "python3", "-c", GET, *urls, network=hosts, environment=environment
    )
    page, other, port = result.output.splitlines()
    assert page == f"/a?b=c at localhost:{site}"
    assert other.startswith(f"403 bakeoff: other.example:{site} is not among the hosts")
    assert port.startswith("403 bakeoff: localhost:80 is not among")
    assert [line.split()[0] for line in box.refused_traffic] == [
        f"other.example:{site}",
        "localhost:80",
    ]


def test_https_goes_through_a_tunnel_to_the_hosts_of_the_list_alone(
    folder: Path, site: int
) -> None:
    hosts = (f"127.0.0.1:{site}",)
    targets = (f"127.0.0.1:{site}", "127.0.0.1:22", "127.0.0.1:22", "pypi.org:443")
    argv = ("python3", "-c", TUNNEL, *targets)
    result, box = ran(Bubblewrap(private_hosts=hosts), folder, *argv, network=hosts)
    first, *others = result.output.splitlines()
    assert first.startswith("/through at 127.0.0.1")
    assert len(others) == 3
    assert all("403" in line for line in others)
    assert box.refused_traffic[0].endswith("(2 times)")


def test_a_private_address_is_refused_though_the_task_lists_it(folder: Path, site: int) -> None:
    hosts = (f"localhost:{site}", f"127.0.0.1:{site}", f"*:{site}")
    urls = [f"http://localhost:{site}/", f"http://127.0.0.1:{site}/", f"http://[::1]:{site}/",
            f"http://[::ffff:127.0.0.1]:{site}/", f"http://0.0.0.0:{site}/"]  # fmt: skip
    result, box = ran(
        Bubblewrap(),
        folder,
        *("python3", "-c", GET, *urls),
        network=hosts,
        environment={"NO_PROXY": "", "no_proxy": ""},
    )
    assert result.output.count("the operator has not allowed it") == len(urls)
    assert len(box.refused_traffic) == len(urls)


def test_past_the_proxy_there_is_no_way_out(folder: Path, site: int) -> None:
    hosts = (f"127.0.0.1:{site}",)
    argv = ("python3", "-c", CONNECT, f"127.0.0.1:{site}", "127.0.0.1:8643")
    result, _ = ran(Bubblewrap(private_hosts=hosts), folder, *argv, network=hosts)
    direct, proxy = result.output.splitlines()
    assert "refused" in direct
    assert "connected" in proxy


def test_what_is_no_request_to_a_proxy_is_refused(folder: Path) -> None:
    script = """
import socket
for head in (b"GET / HTTP/1.1", b"GET ftp://a.example/ HTTP/1.1", b"CONNECT a.example HTTP/1.1",
             b"x", b"CONNECT a.example:99999 HTTP/1.1", b"GET http://a.example/ " + b"x" * 100000):
    line = socket.create_connection(("127.0.0.1", 8643))
    line.sendall(head + b"\\r\\n\\r\\n")
    print(line.recv(1000).split(b"\\r\\n")[0].decode())
"""
    result, _ = ran(Bubblewrap(), folder, "python3", "-c", script, network=("a.example",))
    assert result.output.splitlines() == [
        *["HTTP/1.1 400 Bad Request"] * 5,
        "HTTP/1.1 431 Request Header Fields Too Large",
    ]


def test_a_box_with_a_list_has_its_gateway_too_and_leaves_nothing(folder: Path, site: int) -> None:
    hosts = (f"127.0.0.1:{site}",)
    with UnixHttp(at := scratch.new_folder("socket")) as server:

        async def work() -> CommandResult:
            sandbox = Bubblewrap(private_hosts=hosts)
            spec = BoxSpec(label="t", folder=folder, network=hosts, gateway=server.address)
            box = await sandbox.open(spec)
            ask = "import sys, urllib.request as u; print(u.urlopen(sys.argv.pop(), b'a').read())"
            argv = ("python3", "-c", f"{ask}{TUNNEL}", *hosts, str(box.gateway_url))
            result = await box.run(Command(argv=argv, time_s=60))
            await box.close()
            await sandbox.close()
            return result

        result = asyncio.run(work())
    scratch.remove(at)
    assert result.output == f"b'heard 1 a'\n/through at 127.0.0.1:{site}\n"
    assert not [path for path in folders_with(str(os.getpid())) if "proxy" in path.name]


@pytest.mark.parametrize("name", ["docker", "podman"])
def test_a_container_is_held_to_its_list_as_well(name: str, folder: Path, site: int) -> None:
    backend = container(name)
    backend.require()
    hosts = (f"127.0.0.1:{site}",)
    targets = (f"127.0.0.1:{site}", "127.0.0.1:22")

    async def work() -> tuple[CommandResult, tuple[str, ...]]:
        made = backend.make()
        assert isinstance(made, Container)
        made.private_hosts = hosts
        spec = BoxSpec(label="t", folder=folder, network=hosts, image=await backend.image(made))
        box = await made.open(spec)
        try:
            command = Command(argv=("python3", "-c", TUNNEL, *targets), time_s=60)
            return await box.run(command), box.refused_traffic
        finally:
            await box.close()

    result, refused = asyncio.run(work())
    allowed, other = result.output.splitlines()
    assert allowed.startswith("/through at 127.0.0.1")
    assert "403" in other
    assert len(refused) == 1


_IN_A_CONTAINER = """
import asyncio, socket, sys
from pathlib import Path
from bakeoff.core.sandbox import BoxSpec, Command
from support.sandboxes import container

async def main(folder):
    backend = container("podman")
    made = backend.make()
    spec = BoxSpec(label="t", folder=Path(folder), network=True, image=await backend.image(made))
    box = await made.open(spec)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        targets = (f"127.0.0.1:{port}", f"10.88.0.1:{port}")
        print((await box.run(Command(argv=("python3", "-c", CODE, *targets), time_s=60))).output)
    await box.close()

asyncio.run(main(sys.argv[1]))
"""


def test_a_container_with_a_network_does_not_reach_the_loopback_of_its_host(
    folder: Path, tmp_path: Path
) -> None:
    backend = container("podman")
    backend.require()
    plugins = Path("/usr/lib/cni/bridge")
    require("podman's bridge", plugins.exists(), "apt install containernetworking-plugins")
    asyncio.run(backend.image(backend.make()))  # here: its image is fetched over the network
    program = tmp_path / "in_a_container.py"
    program.write_text(f"CODE = {CONNECT!r}\n{_IN_A_CONTAINER}")
    words = (sys.executable, str(program), str(folder))
    done = subprocess.run(
        # in a network of its own: a bridge changes that of the machine
        ["unshare", "--net", "sh", "-c", 'ip link set lo up; exec "$@"', "sh", *words],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(" refused [") == 2
    assert "connected" not in done.stdout
