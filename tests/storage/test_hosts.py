import ipaddress
import json
import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import virtualstack
from virtualstack.storage import hosts
from virtualstack.storage.hosts import find_host, is_host, why_not_public


@pytest.fixture
def names(monkeypatch):
    """A name service: addresses by name; and which names were asked for."""
    known, asked = {}, []

    def getaddrinfo(host, port, *args, **options):
        asked.append(host)
        if host not in known:
            raise socket.gaierror(socket.EAI_NONAME, "not known")
        return [
            (socket.AF_INET6 if ":" in x else socket.AF_INET, socket.SOCK_STREAM, 6, "", (x, 0)) for x in known[host]
        ]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    hosts._looked_up.cache_clear()
    yield known, asked
    hosts._looked_up.cache_clear()


@pytest.mark.parametrize(
    ("authority", "why"),
    [
        ("127.0.0.1", "is loopback"),
        ("127.9.9.9:80", "is loopback"),
        ("[::1]", "is loopback"),
        ("[::ffff:127.0.0.1]", "is loopback"),
        ("[::ffff:7f00:1]:443", "is loopback"),
        ("[64:ff9b::7f00:1]", "is loopback"),
        ("[2002:7f00:1::]", "is private"),
        ("169.254.169.254", "is link-local"),
        ("[fe80::1]", "is link-local"),
        ("[64:ff9b::169.254.169.254]", "is link-local"),
        ("224.0.0.1", "is multicast"),
        ("[ff02::1]", "is multicast"),
        ("[ff0e::1]", "is multicast"),
        ("168.63.129.16", "is the metadata service of a cloud"),
        ("0.0.0.0", "is private"),
        ("[::]", "is private"),
        ("10.1.2.3", "is private"),
        ("172.16.0.1", "is private"),
        ("192.168.1.1", "is private"),
        ("100.100.100.200", "is private"),
        ("192.0.0.192", "is private"),
        ("198.18.0.1", "is private"),
        ("255.255.255.255", "is private"),
        ("[fd00:ec2::254]", "is private"),
        ("[fec0::1]", "is private"),
        ("[2001:db8::1]", "is private"),
        ("[3fff::1]", "is private"),
        ("[::127.0.0.1]", "is private"),
        ("[100::1]", "is private"),
        ("127.0.0.1.", "is loopback"),
        ("2130706433", "is not a plain IPv4 address"),
        ("0x7f000001", "is not a plain IPv4 address"),
        ("0X7F.1", "is not a plain IPv4 address"),
        ("0177.0.0.1", "is not a plain IPv4 address"),
        ("127.1", "is not a plain IPv4 address"),
        ("127.0.0.0x", "is not a plain IPv4 address"),
        ("1.2.3.4.5", "is not a plain IPv4 address"),
        ("a.org.1", "is not a plain IPv4 address"),
        ("256.0.0.1", "is not a plain IPv4 address"),
        ("[1:2]", "is not an IPv6 address"),
        ("[127.0.0.1]", "is not an IPv6 address"),
        ("localhost", "has a name of a private network"),
        ("LocalHost.:8080", "has a name of a private network"),
        ("a.localhost", "has a name of a private network"),
        ("printer.local", "has a name of a private network"),
        ("metadata.google.internal", "has a name of a private network"),
        ("metadata", "has a name of a private network"),
        ("router.home.arpa", "has a name of a private network"),
        ("a..org", "is not a name of a host"),
        (".org", "is not a name of a host"),
        (".", "is not a name of a host"),
        ("a" * 64 + ".org", "is not a name of a host"),
        ("a.org@127.0.0.1", "is not a host"),
    ],
)
def test_a_host_that_is_not_public(names, authority, why):
    """By its address, or its name alone; nobody is asked for it."""
    assert why_not_public(authority) == why
    assert names[1] == []


@pytest.mark.parametrize("authority", ["8.8.8.8", "8.8.8.8:8080", "[2606:4700::1111]", "[64:ff9b::808:808]"])
def test_a_public_address(names, authority):
    """It needs no name."""
    assert why_not_public(authority) is None
    assert names[1] == []


@pytest.mark.parametrize(
    "authority", ["a.org", "A.org.:443", "xn--dt-xla.org", "under_score.org", "[::1]", "10.0.0.1:65535", "a-b.c"]
)
def test_a_plain_host(authority):
    """With a port, perhaps."""
    assert is_host(authority)


@pytest.mark.parametrize(
    "authority",
    ["", "user@a.org", "user:word@a.org", "a.org:", "a.org:65536", "a.org:8o", "a.org?x", "a.org#x", "a.org\\@b.org",
     "dätä.org", "１２７.0.0.1", "localho\u017ft", "a\u3002org", "a.org%2f", "%31", "a.org ", "[::1", "::1",
     "[fe80::1%25eth0]", "a,b", "a.org:1:2", "\u212a.org"],
)  # fmt: skip
def test_what_some_programs_read_as_another_host(authority):
    """Users, letters of other alphabets, what is encoded."""
    assert not is_host(authority)


def test_a_name_leads_to_all_its_addresses(names):
    """One that is not public is enough."""
    known, asked = names
    known.update({
        "public.org": ["93.184.216.34", "2606:2800:220:1::1"],
        "rebound.org": ["93.184.216.34", "10.0.0.7"],
        "near.org": ["fe80::1%eth0"],
    })  # fmt: skip
    assert find_host("public.org")[0] is None
    assert find_host("rebound.org:8080")[0] == "is private"
    assert find_host("near.org")[0] == "is link-local"
    assert asked == ["public.org", "rebound.org", "near.org"]


def test_a_name_that_is_not_known_fails_by_itself(names):
    """It is not refused: behind a proxy no name is known."""
    assert find_host("nowhere.org") == (None, ())
    assert find_host("xn--" + "a" * 59 + ".org") == (None, ())


def test_a_name_is_looked_up_once_a_minute(names, monkeypatch):
    """However it is written; after that it may lead elsewhere."""
    known, asked = names
    known["a.org"] = ["8.8.8.8"]
    now = 1000.0
    monkeypatch.setattr(hosts.time, "monotonic", lambda: now)
    assert [find_host(x)[0] for x in ("a.org", "A.ORG", "a.org.:80")] == [None] * 3
    assert asked == ["a.org"]
    assert find_host("b.org") == find_host("b.org") == (None, ())
    assert asked == ["a.org", "b.org", "b.org"]
    known["a.org"] = ["127.0.0.1"]
    now += 61
    assert find_host("a.org")[0] == "is loopback"


def test_a_name_is_not_looked_up_for_its_text(names):
    """References may name many hosts, and opening them asks nobody."""
    names[0]["rebound.org"] = ["10.0.0.7"]
    assert why_not_public("rebound.org") is None
    assert names[1] == []


def test_javascript_has_the_same_table():
    """Its reader has a copy, as a package of its own."""
    text = (Path(virtualstack.__file__).parent / "serve/js/src/private_hosts.ts").read_text()
    assert json.loads(text.partition(" = ")[2].rstrip().removesuffix(";")) == hosts.private_hosts()


@given(st.ip_addresses())
def test_the_table_calls_no_address_public_that_python_calls_private(address):
    if hosts._kind(address) is None:
        assert (getattr(address, "ipv4_mapped", None) or address).is_global or address in hosts._NAT64


@pytest.mark.parametrize("network", ipaddress.IPv4Address._constants._private_networks)
def test_the_table_has_the_private_networks_of_python(network):
    assert None not in {hosts._kind(network[0]), hosts._kind(network[-1])}
