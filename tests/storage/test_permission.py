import ipaddress
import json
import os
import pickle
import re
import socket
from pathlib import Path
from unittest.mock import Mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from obstore.exceptions import BaseError
from obstore.store import HTTPStore

import virtualstack as vs
from tests.amount import examples
from virtualstack.errors import ForbiddenLocationError, WriterError
from virtualstack.location import absolute_url
from virtualstack.storage import Storage, hosts
from virtualstack.storage.permission import Listed, Permission, named_in, why_refused

ADDRESSES = {"public.org": "93.184.216.34", "other.org": "93.184.216.35"}
REMOTE = "s3://bucket/deep/x.vstack"


@pytest.fixture(autouse=True, scope="module")
def name_service():
    """Two names are known."""

    def getaddrinfo(host, *args, **options):
        if host not in ADDRESSES:
            raise socket.gaierror(socket.EAI_NONAME, "not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ADDRESSES[host], 0))]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket, "getaddrinfo", getaddrinfo)
        hosts._looked_up.cache_clear()
        yield
        hosts._looked_up.cache_clear()


@pytest.fixture(scope="module")
def disk(tmp_path_factory) -> Path:
    """A store in a folder with its files and with links that lead out; beside it other folders."""
    top = tmp_path_factory.mktemp("disk").resolve()
    for folder in ("in/x.vstack", "in/sub", "in-evil", "allowed", "out"):
        (top / folder).mkdir(parents=True)
    for file in ("in/a.nc", "in/sub/b.nc", "in-evil/c.nc", "allowed/d.nc", "allowed-not.nc", "out/secret"):
        (top / file).write_bytes(b"x")
    (top / "in/link-file").symlink_to(top / "out/secret")
    (top / "in/link-folder").symlink_to("../out")
    (top / "in/link-far").symlink_to("link-folder/secret")
    (top / "in/link-in").symlink_to("sub/b.nc")
    (top / "in/link-allowed").symlink_to(top / "allowed/d.nc")
    (top / "in/link-nothing").symlink_to(top / "out/not-there")
    (top / "in/link-loop").symlink_to("link-loop")
    (top / "alias").symlink_to("allowed")
    (top / "alias-in").symlink_to("in")
    return top


def allows(permission, url):
    try:
        permission.check([url])
    except ForbiddenLocationError as error:
        assert error.url == url
        assert f"'{permission.store.removeprefix('file://')}' refers to" in str(error)
        return False
    return True


@pytest.mark.parametrize(
    "url",
    [
        "s3://bucket/deep/a.nc", "s3://bucket/deep/x.vstack/.vstack/segments/1/heap/0", "s3://bucket/a.nc",
        "s3://other/a b/%41.nc", "S3://bucket/a", "gs://b_u.c/a", "az://container/a",
        "abfss://box@account.dfs.core.windows.net/a", "https://public.org/a.nc?x=1", "HTTPS://Public.org:8443/a.nc",
        "http://8.8.8.8/a", "https://not-known.org/a",
    ],
)  # fmt: skip
def test_what_any_store_may_name(url):
    """Object stores and public hosts; the store is one that came over a network."""
    assert allows(Permission.from_allow(REMOTE), url)


@pytest.mark.parametrize(
    "url",
    ["file:///etc/passwd", "file:///a/../b", "http://127.0.0.1/a", "http://169.254.169.254/", "s3://b/a", "ftp://a/b",
     "memory://x/a", "https://public.org/a"],
)  # fmt: skip
@pytest.mark.parametrize(
    "store", ["/data/x.vstack", "memory://x.json", "bytes://1/x.json", "zip://x::file:///data/a.zip"]
)
def test_local_references_may_name_everything(store, url):
    """They act with the rights of their user, wherever they were copied."""
    assert allows(Permission.from_allow(store), url)
    Permission.from_allow(store).check_prefixes([url])


def test_the_rule_of_other_references_does_not_widen():
    """Where references from a network name a local file, it may not name more than they may."""
    far, near = Permission.from_allow(REMOTE, "/data/x.json"), Permission.from_allow("/data/x.json", "/data/x.json")
    storage = Storage().only(far).only(near)
    assert storage.may_open("file:///data/x.json")
    for url in ("file:///data/y.nc", "http://127.0.0.1/a"):
        assert not storage.may_open(url)
    assert storage.named == ("s3://bucket/",)
    assert Storage().only(near).only(far).named == ("s3://bucket/",)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("file:///etc/passwd", r"is a local file. .* allow=\[\"file:///etc/\"\]"),
        ("FILE:///etc/passwd", "is a local file"),
        ("file:///bucket/deep/a.nc", "is a local file"),
        ("/etc/passwd", "is not an absolute URL"),
        ("local:///etc/passwd", "is not an absolute URL"),
        ("file://etc/passwd", "is not an absolute path"),
        ("s3://other/deep/../../a", "has a segment"),
        ("https://public.org/%2e%2e/a", "has a segment"),
        ("file:////etc/passwd", "has an empty segment"),
        ("https://public.org\\@127.0.0.1/", "has a backslash"),
        ("https://public.org/a\0", "has a backslash or a control character"),
        ("http://127.0.0.1:8000/a", r"whose host is loopback. .* allow=\[\"http://127.0.0.1:8000/\"\]"),
        ("http://169.254.169.254/latest/meta-data", "whose host is link-local"),
        ("http://localhost/a", "whose host has a name of a private network"),
        ("http://2130706433/a", "whose host is not a plain IPv4 address"),
        ("https://public.org@127.0.0.1/a", "whose host is not spelt plainly, or has a user"),
        ("https://user:word@public.org/a", "has a user before it. References should name no such URL"),
        ("http:///127.0.0.1/a", "not spelt plainly"),
        ("https://１２７.0.0.1/a", "not spelt plainly"),
        ("s3:///a", "no plain name of a bucket"),
        ("s3://127.0.0.1:80#/a", "no plain name of a bucket"),
        ("abfss://box@169.254.169.254/a", "no plain name of a bucket"),
        ("memory://x/a", "in this process's memory"),
        ("ftp://public.org/a", "in no object store and on no web server"),
        ("simplecache::file:///etc/passwd", "is not an absolute URL"),
        ("dir://x/a", "in no object store"),
    ],
)
def test_what_no_store_may_name(url, why):
    """The message says what, why and what helps; among others the first one is named."""
    permission = Permission.from_allow(REMOTE)
    with pytest.raises(ForbiddenLocationError, match=f"refers to .*{why}"):
        permission.check([url])
    with pytest.raises(ForbiddenLocationError, match=why.partition(". .*")[0]) as caught:
        permission.check(["s3://bucket/a", "https://public.org/b", url, "http://10.0.0.1/"])
    assert caught.value.url == url


@pytest.mark.parametrize(
    "url",
    ["file:///etc/passwd", "http://127.0.0.1:8000/a", "http://localhost/a", "ftp://public.org/a",
     "http://0x7f.1/a", "memory://x/a", "http://[::1]:80/a"],
)  # fmt: skip
def test_the_remedy_is_one(url):
    """The store that is opened as the message says may name the URL, and no others."""
    permission = Permission.from_allow(REMOTE)
    with pytest.raises(ForbiddenLocationError, match="Open it with") as caught:
        permission.check([url])
    (remedy,) = re.findall(r'allow=\["(.*)"\]', str(caught.value))
    assert allows(Permission.from_allow(REMOTE, [remedy]), url)
    assert not allows(Permission.from_allow(REMOTE, [remedy]), "http://10.1.1.1/a")
    assert not allows(Permission.from_allow(REMOTE, [remedy]), "file:///home/a")


@pytest.mark.parametrize(
    ("name", "is_allowed"),
    [
        ("in/a.nc", True),
        ("in/sub/b.nc", True),
        ("in/x.vstack/heap", True),
        ("in/not-there.nc", True),
        ("in/.hidden", True),
        ("in/link-in", True),
        ("in/link-loop", True),  # it fails by itself
        ("in/link-file", False),
        ("in/link-folder/secret", False),
        ("in/link-far", False),
        ("in/link-allowed", False),
        ("in/link-nothing", False),
        ("in-evil/c.nc", False),
        ("out/secret", False),
        ("alias-in/a.nc", False),  # not by this name
    ],
)
def test_a_listed_store_names_what_is_in_its_folder(disk, name, is_allowed):
    """And nothing that is elsewhere by a link. A store from a network may do so if the folder is allowed."""
    assert allows(Permission.from_allow(disk / "in/x.vstack", Listed()), f"file://{disk}/{name}") == is_allowed
    assert allows(Permission.from_allow(REMOTE, disk / "in"), f"file://{disk}/{name}") == is_allowed
    assert not allows(Permission.from_allow(REMOTE), f"file://{disk}/{name}")


def test_what_a_link_leads_to_is_named(disk):
    """The remedy allows that."""
    permission = Permission.from_allow(REMOTE, disk / "in")
    message = rf"a link to 'file://{disk}/out/secret'. .* allow=\[\"file://{disk}/in\", \"file://{disk}/out/\"\]"
    with pytest.raises(ForbiddenLocationError, match=message):
        permission.check([f"file://{disk}/in/a.nc", f"file://{disk}/in/link-far"])
    assert allows(Permission.from_allow(REMOTE, [disk / "in", disk / "out"]), f"file://{disk}/in/link-far")


def test_a_folder_that_a_link_leads_to_is_named(disk):
    """And not the one that holds it, which would allow more."""
    with pytest.raises(ForbiddenLocationError, match=rf"a link to 'file://{disk}/out'. .*\(\"file://{disk}/out/\"\)"):
        Permission.from_allow(disk / "in/x.vstack", Listed()).check_prefixes([f"file://{disk}/in/link-folder/"])
    listed = Permission.from_allow(disk / "in/x.vstack", Listed(disk / "out"))
    listed.check_prefixes([f"file://{disk}/in/link-folder/"])


@pytest.mark.parametrize("allow", [["/data", "/old b"], Listed("/data", "http://10.0.0.1/")])
def test_a_copied_remedy_keeps_what_was_allowed(allow):
    """Otherwise the next error names the places of the first one."""
    urls = ["file:///data/a.nc", "file:///database/b.nc", "http://10.0.0.2/c.nc"]
    with pytest.raises(ForbiddenLocationError) as caught:
        Permission.from_allow(REMOTE, allow).check(urls)
    copied = str(caught.value).partition("allow=")[2]
    Permission.from_allow(REMOTE, eval(copied, {"vs": vs})).check(urls)


def test_all_missing_places_are_named(disk):
    """In one line that can be pasted; a place within another one is not named twice."""
    permission = Permission.from_allow(disk / "in/x.vstack", Listed())
    urls = [
        "s3://b/a",
        "file:///old/b/c.nc",
        "file:///old/a.nc",
        f"file://{disk}/in/a.nc",
        "file:///new/a.nc",
        "s3://b/c/d",
    ]
    with pytest.raises(ForbiddenLocationError) as caught:
        permission.check(urls)
    given = re.search(r"allow=vs.Listed\((.*)\)$", str(caught.value))[1]
    assert given == '"file:///new/", "file:///old/", "s3://b/"'
    Permission.from_allow(disk / "in/x.vstack", Listed(*json.loads(f"[{given}]"))).check(urls)
    with pytest.raises(ForbiddenLocationError, match=r'allow=\["file:///a/", "http://10.0.0.1/"\]'):
        Permission.from_allow(REMOTE).check(["http://10.0.0.1/x", "s3://other/y", "file:///a/b"])


def test_a_store_that_is_opened_through_a_link(disk):
    """Its folder is the one of the link; what is there is there by both names."""
    permission = Permission.from_allow(disk / "alias-in/x.vstack", Listed())
    assert allows(permission, f"file://{disk}/alias-in/a.nc")
    assert allows(permission, f"file://{disk}/in/a.nc")
    assert not allows(permission, f"file://{disk}/alias-in/link-file")


def test_a_store_at_the_top_of_the_disk():
    """Its folder is not the whole disk."""
    permission = Permission.from_allow("file:///x.vstack", Listed())
    assert allows(permission, "file:///x.vstack/heap")
    assert not allows(permission, "file:///etc/passwd")


@pytest.mark.parametrize(
    ("store", "url"),
    [
        ("http://127.0.0.1:8000/deep/x.vstack", "http://127.0.0.1:8000/deep/a"),
        ("http://127.0.0.1:8000/deep/x.vstack", "http://127.0.0.1:8000/other/a"),
        ("http://LOCALHOST/x.vstack", "http://localhost/a"),
        ("ftp://host/deep/x.vstack", "ftp://host/deep/a"),
        ("s3://bucket", "s3://bucket/a"),
    ],
)
def test_a_store_names_its_own_server(store, url):
    """Wherever it is: the reader has gone there already."""
    assert allows(Permission.from_allow(store), url)


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:8001/deep/a", "http://127.0.0.1/a", "https://127.0.0.1:8000/a", "http://127.0.0.10:8000/"]
)
def test_a_store_does_not_name_another_server_on_the_same_host(url):
    assert not allows(Permission.from_allow("http://127.0.0.1:8000/deep/x.vstack"), url)


@pytest.mark.parametrize(
    ("allow", "allowed", "refused"),
    [
        ("http://10.0.0.1", ["http://10.0.0.1/a"], ["http://10.0.0.10/a", "http://10.0.0.1:80/a", "http://10.0.0.1@127.0.0.1/"]),
        ("http://10.0.0.1/ok/", ["http://10.0.0.1/ok/a", "HTTP://10.0.0.1/ok/a"], ["http://10.0.0.1/okay", "HTTP://10.0.0.1/b"]),
        ("http://10.0.0.1/a.nc", ["http://10.0.0.1/a.nc"], ["http://10.0.0.1/a.nc2", "http://10.0.0.1/"]),
        ("http://LocalHost:80/", ["http://localhost:80/a", "http://LOCALHOST:80/b"], ["http://localhost:8080/a"]),
        ("http://", ["http://10.0.0.1/a", "http://localhost/b"], ["https://10.0.0.1/a", "file:///a"]),
        (["ftp://a/", "ftp://b"], ["ftp://a/x", "ftp://b/x"], ["ftp://c/x", "ftp://bb/x"]),
        ((), ["s3://other/x"], ["http://10.0.0.1/a"]),
    ],
)  # fmt: skip
def test_what_the_reader_allows(allow, allowed, refused):
    """Folders with all below them, and files; what only begins alike is something else."""
    permission = Permission.from_allow(REMOTE, allow)
    permission.check(allowed)
    for url in allowed:
        assert allows(permission, url)
    for url in refused:
        assert not allows(permission, url)
        assert not allows(permission, url.replace("://", "://u@"))


def test_local_folders_that_the_reader_allows(disk, monkeypatch):
    """As paths or URLs, by their own names or others; links in them do not lead out."""
    monkeypatch.chdir(disk)
    for allow in ("allowed", disk / "allowed", f"file://{disk}/allowed/", [f"{disk}/in", "alias"]):
        permission = Permission.from_allow(REMOTE, allow)
        assert allows(permission, f"file://{disk}/allowed/d.nc")
        assert not allows(permission, f"file://{disk}/allowed-not.nc")
        assert not allows(permission, f"file://{disk}/out/secret")
    assert allows(Permission.from_allow(disk / "in/x.vstack", Listed("allowed")), f"file://{disk}/in/link-allowed")
    assert allows(Permission.from_allow(REMOTE, "alias"), f"file://{disk}/alias/d.nc")
    assert not allows(Permission.from_allow(REMOTE, "in"), f"file://{disk}/in/link-file")
    assert allows(Permission.from_allow(REMOTE, "in/a.nc"), f"file://{disk}/in/a.nc")
    assert not allows(Permission.from_allow(REMOTE, "in/a.nc"), f"file://{disk}/in/sub/b.nc")
    assert allows(Permission.from_allow(REMOTE, "file:///"), f"file://{disk}/in/link-file")


@pytest.mark.parametrize("allow", ["", [""], [None], 7, [b"x"]])
def test_what_cannot_be_allowed(allow):
    """Nothing is not everything."""
    with pytest.raises(TypeError, match=r"allow= takes URLs or paths|not iterable"):
        Permission.from_allow(REMOTE, allow)


@pytest.mark.parametrize("url", ["s3://b/a//b", "https://public.org//a"])
def test_empty_segments(url):
    """Keys in buckets have them, and the stores of their owners name such keys."""
    assert allows(Permission.from_allow(REMOTE), url)
    Permission.from_allow(REMOTE).check_prefixes([f"{url}/"])


def test_listed_places(disk, monkeypatch):
    """Nothing but them and the folder of the references: no environment, no bucket and no public host."""
    monkeypatch.setenv("VIRTUALSTACK_ALLOW", f"{disk}/in-evil")
    for allow in (
        Listed(disk / "allowed"),
        (*Listed(disk / "allowed"), "s3://more/"),
        pickle.loads(pickle.dumps(Listed(disk / "allowed"))),
    ):
        permission = Permission.from_allow(disk / "in/x.vstack", allow)
        assert allows(permission, f"file://{disk}/in/a.nc")
        assert allows(permission, f"file://{disk}/allowed/d.nc")
        assert allows(permission, "s3://more/a") == ("s3://more/" in allow)
        for url in (
            f"file://{disk}/out/secret",
            f"file://{disk}/in-evil/c.nc",
            "s3://other/a",
            "https://public.org/a",
            "memory://x/a",
        ):
            assert not allows(permission, url)
    document = Permission.from_allow("s3://bucket/deep/x.json", Listed())
    document.check(["s3://bucket/deep/a.nc"])
    for url in ("s3://bucket/a.nc", "s3://other/a"):
        with pytest.raises(ForbiddenLocationError, match=r'which is not one of the listed places. .*vs.Listed\("s3://'):
            document.check([url])


@pytest.mark.parametrize(
    "prefix",
    ["", "s", "s3", "s3:", "s3:/", "s3://", "s3://buck", "s3://other/a/pre", "https://pub", "https://public.org", "f",
     "https://public.org/a/.", "http://10.0.0.1/o", "http://10.0.0.1/ok/a/b", "http://10.0.0", "file://", "file:///al",
     "file:///allowed", "file:///allowed/a/b", "FILE:///allowed/", "https://public.org/%2"],
)  # fmt: skip
def test_a_prefix_of_what_could_be_allowed(prefix):
    """Wherever it was cut."""
    Permission.from_allow(REMOTE, ["http://10.0.0.1/ok/", "file:///allowed/a.nc", "file:///allowed/a/"]).check_prefixes(
        [prefix]
    )


@pytest.mark.parametrize(
    "prefix",
    ["file://", "file:///", "file:///etc/", "file:///etc/pass", "/", "/etc/", "etc/", "../", "http://10.0.0.1/", "http://localhost/a",
     "http://10.0.0.1/ok", "s3://other/../", "file:////b//", "https://u@public.org/", "memory://x/",
     "memory://", "ftp://", "ftp://host", "https://public.org/%2e%2e/", "local:///", "s3:///"],
)  # fmt: skip
def test_a_prefix_of_nothing_that_could_be_allowed(prefix):
    """It is refused when the store is opened."""
    with pytest.raises(ForbiddenLocationError, match="refers to") as caught:
        Permission.from_allow(REMOTE).check_prefixes([prefix])
    assert prefix.startswith(caught.value.url)


def test_prefixes_of_a_listed_store(disk):
    """What is in its folder, not what is behind a link."""
    permission = Permission.from_allow(disk / "in/x.vstack", Listed())
    for name in ("in/", "in/sub/", "in/su", "in/x.vstack/", "in", "i", ""):
        permission.check_prefixes([f"file://{disk}/{name}"])
    for name in ("out/", "in-evil/", "in/link-folder/"):
        with pytest.raises(ForbiddenLocationError, match="refers to"):
            permission.check_prefixes([f"file://{disk}/{name}"])


def test_a_store_may_name_many_hosts(monkeypatch):
    """None is looked up before it is connected to."""
    monkeypatch.setattr(socket, "getaddrinfo", Mock(side_effect=AssertionError("looked up")))
    urls = [f"https://h{n}.org/a" for n in range(1000)]
    for look in ("check", "check_prefixes"):
        getattr(Permission.from_allow(REMOTE), look)(urls)


def test_permissions_are_values():
    """They pickle, and are equal where they allow the same."""
    permission = Permission.from_allow(REMOTE, ["HTTP://LocalHost/a", "/data"])
    assert (
        permission
        == pickle.loads(pickle.dumps(permission))
        == Permission("s3://bucket/deep/x.vstack", ("http://localhost/a", "file:///data"))
    )
    assert permission != Permission.from_allow(REMOTE, ["HTTP://LocalHost/a"])


def test_long_urls_are_cut_in_messages():
    """The message stays readable, and has no control characters."""
    with pytest.raises(ForbiddenLocationError) as caught:
        Permission.from_allow(REMOTE).check(["https://public.org/\x1b[2J" + "a" * 10_000])
    assert len(str(caught.value)) < 600
    assert str(caught.value).isprintable()


def test_many_urls():
    """Each costs little where a prefix decides."""
    for store, allow, urls in [
        (REMOTE, None, [f"s3://other/deep/files/{n:040}.nc" for n in range(200_000)]),
        (REMOTE, "http://10.0.0.1/", [f"http://10.0.0.1/files/{n:04}.nc" for n in range(1000)]),
    ]:
        Permission.from_allow(store, allow).check(urls)
        with pytest.raises(ForbiddenLocationError, match=r"/files/\.\./x"):
            Permission.from_allow(store, allow).check([*urls, urls[0].rpartition("/")[0] + "/../x"])


PIECES = st.sampled_from(
    ["..", ".", "/", "//", "\\", "%2e", "%2E", "%252e", "%2f", "%5c", "%00", "\0", "\t", "\n", " ", "@", ":", "#", "?",
     ";", "．", "。", "․", "‥", "／", "１", "ſ", "\u212a", "\u200b", "\ud800", "127.0.0.1", "localhost", "out/secret",
     "link-folder", "link-file", "sub", "in", "../out/secret", "0x7f", "u@", "://", "file:", "FILE://", "http://", "a"]
)  # fmt: skip


@st.composite
def mutations(draw, bases):
    """A URL with pieces put in, taken out, or written otherwise."""
    url = draw(st.sampled_from(bases))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(url)))
        n = draw(st.sampled_from([0, 0, 1, 2, 5]))
        url = url[:at] + draw(PIECES) + url[at + n :]
    if draw(st.booleans()) and "://" in url:
        scheme, _, rest = url.partition("://")
        url = f"{draw(st.sampled_from([scheme, scheme.upper(), scheme.title(), 'file', 'local']))}://{rest}"
    return url


@settings(max_examples=examples(400), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_no_local_url_leads_out(disk, data):
    """Whatever passes is opened where it may: by the path that storage makes of the URL, with all links resolved."""
    names = [
        "in/a.nc",
        "in/sub/b.nc",
        "in/link-file",
        "in/link-folder/secret",
        "in/x.vstack/../a",
        "out/secret",
        "allowed/d.nc",
    ]
    url = data.draw(mutations([f"file://{disk}/{name}" for name in names]))
    allow = data.draw(st.sampled_from([None, disk / "allowed", disk / "alias"]))
    permission = Permission.from_allow(disk / "in/x.vstack", Listed(*([allow] if allow else [])))
    if allows(permission, url) and absolute_url(url).startswith("file://"):
        opened = Path(os.path.realpath(absolute_url(url).removeprefix("file://")))
        assert opened.is_relative_to(disk / "in") or (allow and opened.is_relative_to(disk / "allowed"))
    assert not allows(Permission.from_allow(REMOTE), url) or not absolute_url(url).startswith("file://")


@settings(max_examples=examples(400), deadline=None)
@given(
    mutations(
        ["https://public.org/ok/a.nc", "http://127.0.0.1:80/ok/a/b", "http://localhost/ok/", "http://other.org:80/a"]
    )
)
def test_no_web_url_leads_to_another_host_or_folder(url):
    """By the parser that makes the requests: public names, or what was allowed."""
    permission = Permission.from_allow(REMOTE, ["http://127.0.0.1:80/ok/", "http://localhost/ok"])
    if not allows(permission, url) or not absolute_url(url).startswith("http"):
        return
    try:
        asked = HTTPStore(absolute_url(url), client_options={"allow_http": True}).url
    except (BaseError, ValueError):
        return
    if f"{asked}/".startswith(("http://127.0.0.1/ok/", "http://localhost/ok/")):
        return
    name = re.fullmatch(r"https?://([^/?#:]*)(?::[0-9]+)?(?:[/?#].*)?", asked, re.DOTALL).group(1)
    assert name.removesuffix(".").rpartition(".")[2] not in ("localhost", "internal")
    if name.rpartition(".")[2].isdigit():
        assert ipaddress.ip_address(name).is_global


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_many_urls_are_judged_as_each_alone(disk, data):
    """Folders are looked at first, and the rule is that for one URL."""
    bases = [
        f"file://{disk}/in/a.nc",
        f"file://{disk}/in/link-file",
        "https://public.org/a",
        "http://10.0.0.1/ok/a",
        "s3://b/a",
    ]
    urls = data.draw(st.lists(mutations(bases), min_size=1, max_size=4))
    permission = data.draw(
        st.sampled_from(
            [
                Permission.from_allow(disk / "in/x.vstack", Listed("http://10.0.0.1/ok")),
                Permission.from_allow(REMOTE, ["http://10.0.0.1/ok", disk / "in"]),
            ]
        )
    )
    slow = {url: why_refused(permission.store, url, permission.allowed, is_listed=permission.is_listed) for url in urls}
    assert permission._refused(urls) == {url: why for url, why in slow.items() if why is not None}


@pytest.mark.parametrize("name", ["a\nb.nc", "a\\b.nc", "a%5Cb.nc", "in/./b.nc", "\x7f.nc"])
def test_writers_refuse_what_readers_refuse(name):
    """References at a remote place may not name it; references on a disk, and in the same bucket, may."""
    url = f"s3://other/{name}"
    with pytest.raises(WriterError, match=r"may not name it\. Rename the source"):
        named_in(REMOTE, url)
    assert why_refused(REMOTE, url, [url]) is not None
    assert named_in("file:///disk/x.vstack", url) == url
    assert named_in(REMOTE, "s3://bucket/deep/a b.nc") == "s3://bucket/deep/a b.nc"
    assert named_in(REMOTE, "file:///data/a.nc") == "file:///data/a.nc"  # readers may allow it
