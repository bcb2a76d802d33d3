"""The gateway as a container without network reaches it: with whatever the image has for a relay."""

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from bakeoff._lib import scratch
from bakeoff.core.errors import SandboxError
from bakeoff.core.sandbox import Command, Mount
from bakeoff.core.workspace import Image, Tree
from support.container_boxes import opened, sandbox, shell, spec
from support.container_engines import PYTHON, Engine, engine
from support.parts import require
from support.unix_http import UnixHttp

IN_PERL = r"""
use IO::Socket::INET;
my $body = 'b' x 300001;
for my $n (1 .. 3) {
    my $s = IO::Socket::INET->new(PeerAddr => $ARGV[0]) or die "no connection: $@";
    print $s "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 300001\r\nConnection: close\r\n\r\n$body";
    local $/; my $answer = <$s>;
    print "$1\n" if $answer =~ /(heard \d+)/;
}
my $s = IO::Socket::INET->new(PeerAddr => $ARGV[0]) or die "no connection: $@";
print $s "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
{ local $/; my $answer = <$s>; $answer =~ s/^.*?\r\n\r\n//s; print length($answer), "\n"; }
exit 9;
"""
IN_NODE = r"""
const post = async () => (await fetch('http://' + process.argv[1], {
  method: 'POST', body: 'b'.repeat(300001) })).text();
(async () => {
  for (const text of await Promise.all([post(), post(), post()])) console.log(text.slice(0, 12));
  console.log((await (await fetch('http://' + process.argv[1])).text()).length);
  process.exit(9);
})();
"""
EXPECTED = "heard 300001\n" * 3 + f"{64 * 65536}\n"


@pytest.fixture
def where() -> Engine:
    return engine("docker")


@pytest.fixture
def gateway() -> Iterator[UnixHttp]:
    folder = scratch.new_folder("socket")
    with UnixHttp(folder) as server:
        yield server
    scratch.remove(folder)


def without(where: Engine, folder: Path, *programs: str) -> str:
    """Return an image that lacks *programs*."""
    where.with_python()
    gone = " ".join(f"/usr/bin/{program}*" for program in programs)
    (folder / "Dockerfile").write_text(f"FROM {PYTHON}\nRUN rm {gone}\n")
    image = Image(context=Tree(path=str(folder), digest="-".join(("without", *programs))))
    return asyncio.run(sandbox(where).image(image))


def ask(where: Engine, folder: Path, gateway: UnixHttp, image: str, *argv: str) -> str:
    node = shutil.which("node")
    mounts = (Mount(source=node, target="/usr/local/bin/node"),) if node else ()

    async def scenario() -> str:
        of = spec(folder, image=image, gateway=gateway.address, mounts=mounts)
        async with opened(sandbox(where), of) as box:
            url = str(box.gateway_url).removeprefix("http://")
            ran = await box.run(Command(argv=(*argv, url), time_s=60))
            assert ran.code == 9, ran.output
            # what the relay is run with can serve the next command as well
            again = await box.run(Command(argv=(*argv, url), time_s=60))
            assert again.output == ran.output
            assert (await shell(box, "no-such-program")).code == 127
            return ran.output

    return asyncio.run(scenario())


def test_an_image_without_python_reaches_it_with_perl(
    where: Engine, gateway: UnixHttp, tmp_path: Path
) -> None:
    image = without(where, tmp_path, "python3")
    assert ask(where, tmp_path, gateway, image, "perl", "-e", IN_PERL) == EXPECTED


def test_an_image_without_python_and_perl_reaches_it_with_a_node_that_is_mounted(
    where: Engine, gateway: UnixHttp, tmp_path: Path
) -> None:
    require("node", shutil.which("node"), "apt install nodejs")
    image = without(where, tmp_path, "python3", "perl")
    assert ask(where, tmp_path, gateway, image, "node", "-e", IN_NODE) == EXPECTED


def test_an_image_with_none_of_them_is_told_what_it_needs(
    where: Engine, gateway: UnixHttp, tmp_path: Path
) -> None:
    of = spec(tmp_path, image=where.with_busybox(), gateway=gateway.address)
    before = set(where.containers())
    with pytest.raises(SandboxError, match="none of python3, perl, node"):
        asyncio.run(sandbox(where).open(of))
    assert set(where.containers()) == before


def test_one_relay_serves_the_whole_box_and_is_started_again_where_it_is_gone(
    where: Engine, gateway: UnixHttp, tmp_path: Path
) -> None:
    ask_once = (
        "import sys, urllib.request\n"
        "print(urllib.request.urlopen(sys.argv[1], data=b'abc', timeout=20).read().decode())"
    )
    relays = "for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline; echo; done | grep -c ^python3"

    async def scenario() -> None:
        of = spec(tmp_path, image=where.with_python(), gateway=gateway.address)
        async with opened(sandbox(where), of) as box:
            command = Command(argv=("python3", "-c", ask_once, str(box.gateway_url)), time_s=60)
            for _ in range(3):
                assert (await box.run(command)).output == "heard 3 abc\n"
            assert (await shell(box, relays)).output.strip() == "1"
            killed = await shell(
                box,
                "for p in /proc/[0-9]*; do grep -aq ^python3 $p/cmdline && kill -9 ${p#/proc/}; done; :",
            )
            assert killed.code == 0
            assert (await box.run(command)).output == "heard 3 abc\n"
            await shell(box, "sleep 600", time_s=1)
            assert (await box.run(command)).output == "heard 3 abc\n"

    asyncio.run(scenario())
