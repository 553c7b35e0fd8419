"""Reading over HTTP from a server that behaves, and from one that does not."""

import pickle
import re
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from email.utils import formatdate

import numpy as np
import pytest
from fsspec.implementations.http import HTTPFileSystem
from hypothesis import given, settings
from hypothesis import strategies as st
from obstore.store import HTTPStore

from tests.amount import examples
from tests.servers import Handler, RangeServer
from virtualstack.errors import SourceChangedError, SourceNotFoundError, StorageError
from virtualstack.location import Location
from virtualstack.storage import Storage, UnlistableError, open_source, remote
from virtualstack.storage.obstore import Connection
from virtualstack.storage.remote import RemoteSource

DATA = bytes(np.random.default_rng(0).integers(0, 256, 200_000, dtype=np.uint8))
FILES = {"a/b c.nc": DATA, "empty": b"", "small": DATA[:100], "a//b": b"odd"}
RANGES = [(190_000, 10_000), (3, 0), (100_000, 50), (0, 20_000), (100_040, 60), (200_000, 0)]
QUICK = {"http://": {"max_retries": 2, "retry_timeout": 5}}


def answers(ranges, data=DATA):
    return [data[offset : offset + length] for offset, length in ranges]


@pytest.fixture
def server():
    with RangeServer(FILES) as running:
        yield running


@pytest.mark.parametrize("mode", ["normal", "ignore_ranges", "no_total", "no_head", "redirect"])
def test_ranges_are_right_whatever_the_server_does(server, mode):
    """Servers without ranges, sizes in ranges or HEAD, and ones that redirect, give the bytes of the file."""
    server.mode = mode
    source = open_source(server.url("a/b%20c.nc"))
    assert source.size == len(DATA)
    assert source.read(5, 10) == DATA[5:15]
    assert source.read(150_000, 10) == DATA[150_000:150_010]
    assert [bytes(part) for part in source.read_ranges(RANGES)] == answers(RANGES)
    assert source.read_ranges([]) == []
    assert open_source(server.url("empty")).read_ranges([(0, 0)]) == [b""]
    assert open_source(server.url("small")).read(99, 1) == DATA[99:100]


def test_location_of_a_remote_source(server):
    """Size, etag and time come from the server; the URL stays as it was given."""
    url = server.url("a/b%20c.nc")
    location = open_source(url).location
    assert (location.url, location.size, location.last_modified) == (url, len(DATA), 1_700_000_000)
    assert re.fullmatch('"[0-9a-f]{32}"', location.etag)
    assert repr(open_source(url)) == f"RemoteSource('{url}', 200000 bytes)"


@pytest.mark.parametrize("path", ["a//b", "a/b%20c.nc?token=1%2F2", "a/b c.nc", "a/b%20c%2Enc", "empty?"])
def test_urls_are_sent_as_they_are_given(server, path):
    """Queries, empty segments and any kind of encoding reach the server."""
    source = open_source(server.url(path))
    assert server.log[-1][1] == "/" + path.replace(" ", "%20")
    assert source.location.url == server.url(path)


def test_opening_costs_one_request_and_the_first_bytes_none(server):
    """The size and the first 16 KiB come together."""
    source = open_source(server.url("a/b%20c.nc"))
    source.read(0, 16_000)
    assert (server.n_requests, server.requests["HEAD"]) == (1, 0)


def test_near_ranges_share_a_request_and_far_ones_do_not(server):
    """Gaps of 16 KiB are read over."""
    source = open_source(server.url("a/b%20c.nc"))
    server.reset()
    source.read_ranges([(20_000, 10), (20_020, 10), (100_000, 10)])
    assert sorted(entry[2] for entry in server.log) == ["bytes=100000-100009", "bytes=20000-20029"]


def test_long_ranges_are_cut_and_put_together(server, monkeypatch):
    """Parts of a long range come side by side."""
    monkeypatch.setattr(remote, "MAX_REQUEST_BYTES", 30_000)
    monkeypatch.setattr(remote, "ENOUGH_BYTES", 10_000)
    source = open_source(server.url("a/b%20c.nc"))
    server.reset()
    assert source.read(10, 199_000) == DATA[10:199_010]
    assert server.n_requests == 7
    assert source.read_ranges([(n, 5_000) for n in range(0, 200_000, 5_000)]) == answers(
        [(n, 5_000) for n in range(0, 200_000, 5_000)]
    )
    assert server.n_requests == 7 + 20


def as_a_bucket(monkeypatch, in_calls):
    if in_calls:
        monkeypatch.setattr(Connection, "is_web", False)


@pytest.fixture(params=[False, True], ids=["each by itself", "in calls of many"])
def requests_apart(request, monkeypatch):
    """Ranges have a request each, sent as to a web server or as to a bucket."""
    as_a_bucket(monkeypatch, request.param)
    monkeypatch.setattr(remote, "MAX_GAP_BYTES", 0)


@pytest.mark.parametrize("in_calls", [False, True])
@settings(max_examples=examples(20), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 300)), min_size=1, max_size=60), st.integers(1, 200))
def test_any_ranges_from_many_requests(in_calls, ranges, bound):
    """Any mix of ranges comes back right, however it is merged, cut and shared out."""
    with pytest.MonkeyPatch.context() as patch, RangeServer({"x": DATA[:1300]}) as server:
        as_a_bucket(patch, in_calls)
        bounds = {"MAX_GAP_BYTES": 5, "ENOUGH_BYTES": bound, "MAX_REQUEST_BYTES": 2 * bound, "FIRST_BYTES": 1}
        for name, value in bounds.items():
            patch.setattr(remote, name, value)
        assert [bytes(part) for part in open_source(server.url("x")).read_ranges(ranges)] == answers(ranges)


@pytest.mark.usefixtures("requests_apart")
def test_requests_go_side_by_side():
    """A server that answers none of a hundred requests before five are there is read."""
    meeting = threading.Barrier(5)

    class Together(Handler):
        def do_GET(self):
            if not self.headers["Range"].startswith("bytes=0-"):
                meeting.wait(30)
            super().do_GET()

    ranges = [(20_000 + 1000 * n, 10) for n in range(100)]
    with RangeServer({"x": DATA}, handler=Together) as server:
        assert open_source(server.url("x")).read_ranges(ranges) == answers(ranges)


def test_threads_share_a_source(server):
    """Many threads read at once."""
    source = open_source(server.url("a/b%20c.nc"))
    offsets = list(range(0, 200_000, 5000))
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda offset: source.read(offset, 100), offsets)) == answers([(o, 100) for o in offsets])


def test_a_pickled_source_asks_nothing_until_it_is_read(server):
    """The copy checks the version with the first bytes it reads."""
    text = pickle.dumps(open_source(server.url("a/b%20c.nc")))
    server.reset()
    source = pickle.loads(text)
    assert source.size == len(DATA)
    assert server.n_requests == 0
    assert [bytes(part) for part in source.read_ranges(RANGES)] == answers(RANGES)


def test_an_expected_size_saves_the_request_for_it(server):
    """What a manifest recorded is compared with the first answer."""
    url = server.url("a/b%20c.nc")
    found = open_source(url).location
    server.reset()
    source = Storage.from_option().source(url, expected=found)
    assert server.n_requests == 0
    assert source.read(20_000, 5) == DATA[20_000:20_005]
    for expected in (Location(url, 199_999), Location(url, len(DATA), '"other"')):
        changed = Storage.from_option().source(url, expected=expected)
        with pytest.raises(SourceChangedError, match=r"changed after it was indexed: .* instead of"):
            changed.read(10, 5)
    with pytest.raises(SourceChangedError, match=r"its ETag is \w+ instead of other"):
        open_source(url, expected=Location(url, None, "other"))


@pytest.mark.parametrize("mode", ["normal", "ignore_ranges"])
def test_a_source_that_was_replaced_by_a_shorter_one(server, mode):
    """A range that is gone is an error, and never short."""
    url = server.url("a/b%20c.nc")
    source = open_source(url)
    server.files = {"a/b c.nc": DATA[:1000]}
    with pytest.raises(SourceChangedError, match=r"is shorter than the 200000 bytes that it had"):
        source.read(150_000, 10)
    with pytest.raises(SourceChangedError, match=r"is shorter than the 200000 bytes that it had"):
        source.read_ranges([(150_000, 10), (20_000, 5)])
    server.files = {"a/b c.nc": DATA[:150_005]}
    with pytest.raises(StorageError, match=r"10 bytes were requested, but 5 arrived"):
        source.read(150_000, 10)
    server.mode = "ignore_ranges"
    with pytest.raises(StorageError, match=r"150 kB instead of 200 kB"):
        source.read(150_000, 10)


@pytest.mark.usefixtures("requests_apart")
@pytest.mark.parametrize(("n", "n_before"), [(1, 0), (2, 1), (5, 2), (12, 11), (13, 1), (13, 12), (60, 30), (60, 59)])
def test_a_source_that_is_replaced_while_it_is_read(server, n, n_before):
    """Whichever of the requests are answered with the new version, of the same size: values are never mixed."""
    url = server.url("a/b%20c.nc")
    ranges = [(20_000 + 1000 * i, 10) for i in range(n)]
    source = Storage.from_option().source(url, expected=open_source(url).location)
    server.reset()
    assert source.read_ranges(ranges) == answers(ranges)
    assert server.n_requests == n
    server.reset()

    def replace_in_time(path):
        if server.n_requests > n_before:
            server.files = {"a/b c.nc": DATA[::-1]}

    server.fault = replace_in_time
    with pytest.raises(SourceChangedError, match="its ETag is"):
        source.read_ranges(ranges)


@pytest.mark.usefixtures("requests_apart")
@pytest.mark.parametrize("n", [1, 3, 30])
def test_bodies_that_are_longer_than_what_was_asked_for(server, n):
    """A server that says 206 and sends the whole file is not a source: obstore would take its first bytes."""
    url = server.url("a/b%20c.nc")
    source = Storage.from_option().source(url, expected=open_source(url).location)
    server.mode = "long_body"
    with pytest.raises(StorageError, match=r"10 bytes were requested, (but 200000 arrived|but its server sends more)"):
        source.read_ranges([(20_000 + 1000 * i, 10) for i in range(n)])


@pytest.mark.parametrize("n", [1, 12])
@pytest.mark.parametrize("size", [len(DATA), None])
def test_a_body_that_does_not_end_is_broken_off(server, monkeypatch, size, n):
    """It is of a server that says that it sends what was asked for, and goes on: memory would be used up."""
    monkeypatch.setattr(remote, "MAX_GAP_BYTES", 0)
    sent, most = Counter(), 64  # MiB of one answer: more than sockets hold, which is 36 with usual settings of Linux

    def endless(handler: Handler, _owner, data, etag, range_, **_):
        first, last = (int(x) for x in range_.removeprefix("bytes=").split("-"))
        handler.send_response(206)
        handler.send_header("Content-Range", f"bytes {first}-{last}/{len(data)}")
        handler.send_header("Content-Length", str(1 << 31))
        handler.end_headers()
        for _ in range(most):
            handler.wfile.write(bytes(1 << 20))
            sent[range_] += 1

    monkeypatch.setattr(Handler, "_answer_file", endless)
    url = server.url("a/b c.nc")
    expected = None if size is None else Location(url, size=size)
    with pytest.raises(StorageError, match="but its server sends more"):
        open_source(url, storage=QUICK, expected=expected).read_ranges([(1000 * i, 100) for i in range(n)])
    # What sockets hold was sent as well: no whole MiB may have been taken from a server where it was broken off.
    assert max(sent.values(), default=0) < most - 16


def test_an_object_that_does_not_end_is_broken_off(server, monkeypatch):
    """Its length is said twice, and chunks go on behind it."""
    sent = []

    def endless(handler: Handler, *_, **__):
        handler.send_response(200)
        handler.send_header("Last-Modified", formatdate(0, usegmt=True))
        handler.send_header("Content-Length", "100")
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        while len(sent) < 512:
            handler.wfile.write(b"%x\r\n%b\r\n" % (1 << 20, bytes(1 << 20)))
            sent.append(0)

    monkeypatch.setattr(Handler, "_answer_file", endless)
    with pytest.raises(StorageError, match="but its server sends more"):
        Storage.from_option(QUICK).target(server.root).get("small")
    assert len(sent) < 64


def test_a_range_past_the_end_is_refused_before_it_is_asked_for(server):
    """Obstore would give short bytes, or panic."""
    source = open_source(server.url("a/b%20c.nc"))
    server.reset()
    with pytest.raises(StorageError, match=r"has 200000 bytes, but 20 bytes from offset 199990 were requested"):
        source.read_ranges([(5, 10), (199_990, 20)])
    assert server.n_requests == 0


def test_short_bodies_are_noticed_and_asked_for_once_more(server):
    """Obstore gives short 206 bodies without an error."""
    url = server.url("a/b%20c.nc")
    server.mode = "short_body"
    source = open_source(url)
    server.reset()
    with pytest.raises(StorageError, match=r"10 bytes were requested, but 9 arrived.*sends wrong lengths"):
        source.read(5, 10)
    assert server.n_requests == 2
    server.mode = "ignore_ranges"
    assert open_source(url).read(5, 10) == DATA[5:15]


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("short_range", r"could not be accessed: Generic HTTP error: Requested 0..16384, got 0..16383"),
        ("cut_body", "could not be accessed: the connection broke off"),
        ("no_length", "could not be accessed: its server does not report its size. Try again later"),
    ],
)
def test_servers_that_cannot_be_read_from(server, mode, message):
    """What cannot be trusted is an error with a remedy."""
    server.mode = mode
    with pytest.raises(StorageError, match=message):
        open_source(server.url("a/b%20c.nc"), storage=QUICK)


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_server_that_is_busy_is_asked_again(server, status, times):
    """Requests are repeated a few times."""
    server.mode, server.status, server.times = "status", status, times
    assert open_source(server.url("small")).read(0, 5) == DATA[:5]
    assert server.n_requests == times + 1


@pytest.mark.parametrize(
    ("status", "kind", "message"),
    [
        (
            400,
            StorageError,
            "could not be accessed: the server answered 400 Bad Request: Made: made to fail. Try again",
        ),
        (401, StorageError, "access denied: .* .tried: no credentials: the server answered 401"),
        (
            403,
            StorageError,
            "no credentials: the server answered 403 .* Give credentials that have access: storage=.*Authorization",
        ),
        (404, SourceNotFoundError, "there is nothing at .*: the server answered 404 Not Found.*. Check the URL"),
        (416, StorageError, "does not have the requested bytes: the server answered 416"),
        (429, StorageError, r"the server answered 429 Too Many Requests.* \(after 2 retries\). Try again later"),
        (500, StorageError, r"the server answered 500 Internal Server Error.* \(after 2 retries\). Try again later"),
        (503, StorageError, r"the server answered 503 Service Unavailable.* \(after 2 retries\)"),
    ],
)
def test_refusals_and_failures_name_url_answer_and_remedy(server, status, kind, message):
    """Each status has its class of error; retries end."""
    server.mode, server.status = "status", status
    url = server.url("small")
    with pytest.raises(kind, match=message) as caught:
        open_source(url, storage=QUICK)
    assert type(caught.value).__mro__[0].__module__.startswith("virtualstack")
    assert url in str(caught.value)
    assert caught.value.url == url
    assert server.n_requests <= 3
    assert type(pickle.loads(pickle.dumps(caught.value))) is type(caught.value)


@pytest.mark.usefixtures("requests_apart")
def test_a_failure_in_one_of_many_requests(server):
    """The error of one request is the error of all; nothing is made up for the rest."""
    source = open_source(server.url("a/b%20c.nc"), storage=QUICK)
    server.mode, server.status = "status", 500
    with pytest.raises(StorageError, match=r"the server answered 500"):
        source.read_ranges([(20_000 + 1000 * n, 10) for n in range(30)])


def test_a_server_that_is_not_there():
    """Refused connections and unknown hosts end soon."""
    with RangeServer({}) as server:
        url = server.url("x")
    with pytest.raises(StorageError, match=r"could not be accessed: the connection was refused \(after 2 retries\)"):
        open_source(url, storage=QUICK)
    with pytest.raises(
        StorageError, match=r"'http://host.invalid/x' could not be accessed: its host name is not known"
    ):
        open_source("http://host.invalid/x", storage=QUICK)


def test_a_server_that_never_answers(server):
    """Waiting ends; the limits can be given."""
    server.mode = "hang"
    limits = {server.root: {"read_timeout": "300ms", "retry_timeout": 0.1}}
    start = time.perf_counter()
    with pytest.raises(StorageError, match=r"could not be accessed: it gave no answer in time"):
        open_source(server.url("small"), storage=limits)
    assert time.perf_counter() - start < 5


def test_whole_files_are_bounded(server, monkeypatch):
    """A large file is not fetched whole only because its server ignores ranges."""
    monkeypatch.setattr(remote, "MAX_WHOLE_BYTES", 1000)
    server.mode = "ignore_ranges"
    message = "its server ignores byte ranges, and the file has 200000 bytes, more than the 1000 that are fetched whole"
    with pytest.raises(StorageError, match=message):
        open_source(server.url("a/b%20c.nc"))


def test_a_server_that_ignores_ranges_sends_the_file_once(server):
    """The whole file is kept."""
    server.mode = "ignore_ranges"
    source = open_source(server.url("a/b%20c.nc"))
    server.reset()
    for offset in range(0, 200_000, 10_000):
        source.read(offset, 10)
    assert server.n_requests == 0


def test_one_connection_pool_serves_a_host(server):
    """URLs of one host share their store."""
    from virtualstack.storage.obstore import connect

    one, key = connect(server.url("a/b%20c.nc"), None, "")
    assert key == "a/b c.nc"
    assert connect(server.url("small"), None, "")[0] is one
    assert connect(server.url("small?x"), None, "")[0] is not one
    assert connect(server.url("small?x"), None, "")[0] is connect(server.url("small?x"), None, "")[0]
    assert connect(server.url("small"), {"user_agent": "me"}, "")[0] is not one


def test_options_reach_the_server(server):
    """Headers are sent; what means nothing to a web server is named."""
    storage = {server.root: {"headers": {"Authorization": "Bearer me"}}}
    open_source(server.url("small"), storage=storage)
    assert server.log[-1][3]["authorization"] == "Bearer me"
    with pytest.raises(
        StorageError, match=r"access_key_id have no effect on a web server; the known ones are allow_http"
    ):
        open_source(server.url("small"), storage={server.root: {"key": "x"}})
    with pytest.raises(StorageError, match=r"could not be accessed: .*Check the options in storage="):
        open_source(server.url("small"), storage={server.root: {"timeout": "soon"}})


def test_writing_to_a_web_server_that_does_not_allow_it(server):
    """The error says so."""
    target = Storage.from_option(QUICK).target(server.url("a"))
    with pytest.raises(
        StorageError, match=r"could not be accessed: the server answered 501 .*Use another kind of store"
    ):
        target.put("x", b"1")
    with pytest.raises(
        StorageError, match=r"could not be accessed: .*not yet implemented by HttpStore. Use another kind"
    ):
        target.put_if_absent("x", b"1")


@pytest.mark.parametrize("kind", ["options", "obstore", "fsspec"])
def test_a_web_server_has_no_first_key(server, kind):
    """It is not asked, and that nothing is known is not taken for nothing being there."""
    backends = {"options": {}, "obstore": HTTPStore(server.root), "fsspec": HTTPFileSystem(skip_instance_cache=True)}
    target = Storage.from_option({server.root: backends[kind]}).target(server.url("a"))
    with pytest.raises(UnlistableError, match=r"'http://.*/a/': a web server cannot list its files") as caught:
        target.first("x")
    assert caught.value.url == target.url
    assert server.n_requests == 0


def test_a_location_without_size():
    """A remote source is made by opening it."""
    with pytest.raises(ValueError, match=r"the size of 'http://host/x' is not known"):
        RemoteSource(Location("http://host/x"), None, "")
