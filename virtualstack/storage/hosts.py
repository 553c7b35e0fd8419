"""Decide which web hosts are public, and which can be reached only from a private network."""

from __future__ import annotations

import ipaddress
import json
import re
import socket
import time
from functools import cache, lru_cache
from pathlib import Path

type Address = ipaddress.IPv4Address | ipaddress.IPv6Address
"""Type of the address of a host."""

_CACHE_SECONDS = 60.0  # seconds for which an answer of the name service is kept
_AUTHORITY = re.compile(
    r"(?:\[(?P<v6>[0-9a-f:.]+)\]|(?P<name>[a-z0-9_.\-]+))(?::(?P<port>[0-9]{1,5}))?", re.ASCII | re.IGNORECASE
)
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_BY_NAME = "has a name of a private network"
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")  # RFC 6052


def is_host(authority: str, /) -> bool:
    """Return whether a text is a host with an optional port, without a user or text that programs read differently.

    >>> is_host("data.org:8080"), is_host("data.org@127.0.0.1"), is_host("data.org?@127.0.0.1")
    (True, False, False)
    """
    match = _AUTHORITY.fullmatch(authority)
    return match is not None and int(match["port"] or 0) <= 65535


def split_authority(authority: str, /) -> tuple[str, int | None]:
    """Return host and port of a text for which `is_host` is true.

    >>> split_authority("[2606:4700::1111]:443"), split_authority("data.org")
    (('2606:4700::1111', 443), ('data.org', None))
    """
    match = _AUTHORITY.fullmatch(authority)
    if match is None:
        raise ValueError(f"{authority!r} is not a host")
    return match["v6"] or match["name"], int(match["port"]) if match["port"] else None


def why_not_public(authority: str, /) -> str | None:
    """Return why the host of an http(s) URL is not public, as far as its text says; ``None`` if it may be public.

    Names are not looked up: `find_host` does so when a connection is made.

    Examples
    --------
    >>> why_not_public("169.254.169.254"), why_not_public("[::ffff:10.0.0.1]:80"), why_not_public("0x7f.1")
    ('is link-local', 'is private', 'is not a plain IPv4 address')
    """
    found = _read(authority)
    return None if isinstance(found, str) else found[0]


def find_host(authority: str, /) -> tuple[str | None, tuple[Address, ...]]:
    """Return why a host is not public, or ``None``, and the addresses of which this is true.

    Whoever connects to one of these addresses connects to what was checked, which a second look-up might not name.
    The answer of the name service is kept for a minute, unless it does not know the name.

    Examples
    --------
    >>> find_host("127.0.0.1:80")
    ('is loopback', (IPv4Address('127.0.0.1'),))
    """
    found = _read(authority)
    return _judged(_addresses(found)) if isinstance(found, str) else found


def _read(authority: str) -> str | tuple[str | None, tuple[Address, ...]]:
    """Return the name to look up, or what `find_host` returns if the text alone says it."""
    match = _AUTHORITY.fullmatch(authority)
    if match is None:
        return "is not a host", ()
    if match["v6"] is not None:
        try:
            return _judged((ipaddress.IPv6Address(match["v6"]),))
        except ValueError:
            return "is not an IPv6 address", ()
    name = match["name"].lower().removesuffix(".")
    labels = name.split(".")
    if not all(0 < len(label) <= 63 for label in labels) or len(name) > 253:
        return "is not a name of a host", ()
    if _NUMBER.fullmatch(labels[-1]):  # browsers and libraries read this as an IPv4 address: WHATWG URL 3.5
        try:
            return _judged((ipaddress.IPv4Address(name),))
        except ValueError:
            return "is not a plain IPv4 address", ()
    if len(labels) == 1 or labels[-1] in private_hosts()[_BY_NAME]:
        return _BY_NAME, ()
    return name


def _judged(found: tuple[Address, ...]) -> tuple[str | None, tuple[Address, ...]]:
    for address in found:
        if kind := _kind(address):
            return kind, (address, *(x for x in found if x != address))
    return None, found


def _addresses(name: str) -> tuple[Address, ...]:
    try:
        return _looked_up(name, int(time.monotonic() / _CACHE_SECONDS))
    except (OSError, UnicodeError):
        return ()


@lru_cache(maxsize=1024)
def _looked_up(name: str, minute: int) -> tuple[Address, ...]:
    found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    return tuple(ipaddress.ip_address(address[0]) for *_, address in found)


@cache
def private_hosts() -> dict[str, list[str]]:
    """Return the networks and top-level domains that are not public, by what is said of them.

    The reader of JavaScript has the same table: ``serve/js/src/private_hosts.ts``. It is made of the special-purpose
    registries of IANA (RFC 6890); 168.63.129.16 is the only metadata service of a cloud at a public address.
    """
    found: dict[str, list[str]] = json.loads(Path(__file__).with_name("private_hosts.json").read_bytes())
    return found


@cache
def _networks() -> tuple[tuple[str, ipaddress.IPv4Network | ipaddress.IPv6Network], ...]:
    return tuple(
        (kind, ipaddress.ip_network(x)) for kind, all_ in private_hosts().items() if kind != _BY_NAME for x in all_
    )


def _kind(address: Address) -> str | None:
    """Return which kind of non-public address an address is, or ``None`` if it is public."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return _kind(address.ipv4_mapped)
        if address in _NAT64:
            return _kind(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return next((kind for kind, network in _networks() if address in network), None)
