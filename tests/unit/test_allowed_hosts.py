"""Which hosts a list covers, and which addresses are public."""

import pytest

from bakeoff.core.workspace import parse_allowed_host, plain_host
from bakeoff.sandboxes.egress.proxy import closed_networks, is_public, own_addresses


@pytest.mark.parametrize(
    ("entry", "host", "port", "covered"),
    [
        ("pypi.org", "pypi.org", 443, True),
        ("pypi.org", "pypi.org", 80, True),
        ("PyPI.org.", "pypi.org", 443, True),
        ("pypi.org", "pypi.org", 22, False),
        ("pypi.org", "files.pypi.org", 443, False),
        ("pypi.org", "notpypi.org", 443, False),
        ("*.pypi.org", "files.pypi.org", 443, True),
        ("*.pypi.org", "a.b.pypi.org", 443, True),
        ("*.pypi.org", "pypi.org", 443, False),
        ("*.pypi.org", "evilpypi.org", 443, False),
        ("pypi.org:8443", "pypi.org", 8443, True),
        ("pypi.org:8443", "pypi.org", 443, False),
        ("*", "anything.example", 443, True),
        ("*", "anything.example", 25, False),
        ("*:25", "anything.example", 25, True),
        ("127.0.0.1:80", "127.0.0.1", 80, True),
        ("[::1]:80", "::1", 80, True),
        ("bücher.example", "xn--bcher-kva.example", 443, True),
    ],
)
def test_an_entry_covers_its_host_at_its_ports(
    entry: str, host: str, port: int, covered: bool
) -> None:
    assert parse_allowed_host(entry).covers(host, port) is covered


@pytest.mark.parametrize(
    "entry",
    ["", "https://pypi.org", "pypi.org/simple", "a b", "pypi.org:0", "pypi.org:70000", "a.*.org",
     "*.127.0.0.1", "-a.org", "user@pypi.org", "2130706433", "0x7f.1", "127.1"],
)  # fmt: skip
def test_what_is_no_host_is_refused(entry: str) -> None:
    with pytest.raises(ValueError, match=r"no (host|port)"):
        parse_allowed_host(entry)


def test_hosts_are_compared_in_one_form() -> None:
    assert plain_host("PyPI.ORG.") == "pypi.org"
    assert plain_host("[0:0:0:0:0:0:0:1]") == "::1"
    assert plain_host("0x7f000001") is None  # some resolvers take it for an address


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "127.9.9.9", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254",
     "100.64.0.1", "198.18.0.1", "224.0.0.1", "255.255.255.255", "::1", "::", "fe80::1%eth0",
     "fc00::1", "ff02::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1",
     "64:ff9b::a9fe:a9fe", "2002:7f00:1::", "2002:0a00:0001::1"],
)  # fmt: skip
def test_private_addresses_are_not_public_however_they_are_wrapped(address: str) -> None:
    assert not is_public(address)


def test_public_addresses_are_public() -> None:
    assert is_public("9.9.9.9")
    assert is_public("2620:fe::fe")
    assert is_public("64:ff9b::909:909")


def test_no_address_of_this_machine_is_public() -> None:
    assert "127.0.0.1" in own_addresses()
    assert not any(map(is_public, own_addresses()))


def test_the_networks_closed_to_an_uplink_leave_its_own_open() -> None:
    closed = closed_networks("10.0.2.0/24")
    assert {"10.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "192.168.0.0/16"} <= set(closed)
    assert not [network for network in closed if network.startswith("10.0.2.")]
