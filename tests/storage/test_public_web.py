"""Web servers that strangers' references name: each address is checked at the moment of the connection."""

import base64
import contextlib
import http.server
import json
import pickle
import socket
import ssl
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from email.utils import formatdate
from types import SimpleNamespace

import numpy as np
import pytest
import xarray as xr
from cryptography import x509
from cryptography.hazmat.primitives import hashes as digests
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

import virtualstack as vs
from tests.forks import forked, forking
from tests.servers import Handler, RangeServer
from virtualstack.errors import ForbiddenLocationError, SourceChangedError, SourceNotFoundError, StorageError
from virtualstack.location import Location
from virtualstack.storage import (
    PublicWeb,
    Storage,
    UnlistableError,
    hosts,
    open_source,
    remote,
    slow_servers,
)
from virtualstack.storage.web import connection, transfers

DATA = bytes(np.random.default_rng(0).integers(0, 256, 200_000, dtype=np.uint8))
FILES = {"a/b c.nc": DATA, "empty": b"", "small": DATA[:100], "a//b": b"odd"}
RANGES = [(190_000, 10_000), (3, 0), (100_000, 50), (0, 20_000), (100_040, 60), (200_000, 0)]
PUBLIC = "127.0.0.2"  # the address of loopback that counts as public here
WEB = {"http://": PublicWeb(), "https://": PublicWeb()}


@pytest.fixture(autouse=True)
def names(monkeypatch):
    """Names and their addresses, and a list of the names that were looked up; every test has its own connections."""
    known, asked, real, kind = {}, [], socket.getaddrinfo, hosts._kind

    def getaddrinfo(name, port, *args, **options):
        try:
            return real(name, port, *args, **{**options, "flags": socket.AI_NUMERICHOST})
        except socket.gaierror:
            asked.append(name)
        found = known.get(name, [])
        address = found.pop(0) if len(found) > 1 else found[0] if found else None
        if address is None:
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        return real(address, port, type=socket.SOCK_STREAM)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    monkeypatch.setattr(hosts, "_kind", lambda address: None if str(address) == PUBLIC else kind(address))
    transfers.STATE.forget()
    connection._connection.cache_clear()
    monkeypatch.setattr(connection, "_FIRST_PAUSE_SECONDS", 0.01)
    # Answers are kept within a minute of the clock, which ends during no test.
    monkeypatch.setattr(hosts, "time", SimpleNamespace(monotonic=lambda: 0))
    hosts._looked_up.cache_clear()
    yield known, asked
    hosts._looked_up.cache_clear()


@pytest.fixture
def server():
    with RangeServer(FILES, host=PUBLIC) as running:
        yield running


@pytest.fixture
def canary():
    """A server that must not be asked."""
    with RangeServer({"secret": b"secret", "small": b"secret"}) as running:
        yield running


class Leads(http.server.BaseHTTPRequestHandler):
    """Redirects of paths, as the server has them."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.server.asked.append((self.path, dict(self.headers)))
        self.send_response(self.server.status)
        self.send_header("Location", self.server.places[self.path])
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_HEAD = do_GET

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def leading(places, status=302, host=PUBLIC, context=None, handler=Leads):
    running = http.server.ThreadingHTTPServer((host, 0), handler)
    running.places, running.status, running.asked = places, status, []
    if context is not None:
        running.socket = context.wrap_socket(running.socket, server_side=True)
    threading.Thread(target=running.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield running
    finally:
        running.shutdown()
        running.server_close()


def opened(url, **options):
    return open_source(url, storage=WEB, **options)


def answers(ranges, data=DATA):
    return [data[offset : offset + length] for offset, length in ranges]


@pytest.mark.parametrize("mode", ["normal", "ignore_ranges", "no_total", "no_head", "redirect"])
def test_ranges_and_versions_are_those_of_obstore(server, mode):
    server.mode = mode
    url = server.url("a/b%20c.nc")
    source, usual = opened(url), open_source(url)
    assert source.location == usual.location
    assert [bytes(part) for part in source.read_ranges(RANGES)] == answers(RANGES)
    assert opened(server.url("empty")).size == 0
    assert opened(server.url("small")).read(99, 1) == DATA[99:100]
    assert opened(server.url("small")).location == open_source(server.url("small")).location
    storage = Storage.from_option(WEB)
    urls = [url, server.url("small"), server.url("empty")]
    assert storage.look_up(urls) == Storage.from_option().look_up(urls)
    assert isinstance(storage.look_up([server.url("nothing")])[0], StorageError)


@pytest.mark.parametrize("path", ["a//b", "a/b%20c.nc?token=1%2F2", "a/b c.nc", "a/b%20c%2Enc", "empty?"])
def test_urls_are_sent_as_they_are_given(server, path):
    source = opened(server.url(path))
    assert server.log[-1][1] == "/" + path.replace(" ", "%20")
    assert source.location.url == server.url(path)


def test_nothing_says_who_asks(server, monkeypatch):
    opened(server.url("small"))
    sent = {name.lower(): value for name, value in server.log[-1][3].items()}
    assert sent == {
        "host": server.root.split("/")[2],
        "accept-encoding": "identity",
        "user-agent": "virtualstack",
        "range": "bytes=0-16383",
    }


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "2130706433", "0x7f.1", "localhost",
                                  "metadata.google.internal", "169.254.169.254", "10.0.0.1"])  # fmt: skip
def test_a_host_that_is_not_public_is_not_asked(canary, host):
    root = f"http://{host}:{canary.root.split(':')[-1]}"
    with pytest.raises(ForbiddenLocationError) as caught:
        opened(f"{root}secret")
    assert f'allow=["{root}"]' in str(caught.value)
    assert canary.n_requests == 0
    with pytest.raises(ForbiddenLocationError):
        Storage.from_option(WEB).target(root).get("secret")
    assert isinstance(Storage.from_option(WEB).look_up([f"{root}secret"])[0], ForbiddenLocationError)
    assert canary.n_requests == 0


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize(
    ("host", "why"),
    [
        ("127.0.0.1", "at 127.0.0.1, which is loopback"),
        ("169.254.169.254", "at 169.254.169.254, which is link-local"),
        ("10.0.0.1", "at 10.0.0.1, which is private"),
        ("[::ffff:127.0.0.1]", f"at {hosts.ipaddress.ip_address('::ffff:127.0.0.1')}, which is loopback"),
        ("[::1]", "at ::1, which is loopback"),
        ("2130706433", "on a host that is not a plain IPv4 address"),
        ("localhost", "on a host that has a name of a private network"),
        ("inside.org", "at 127.0.0.1, which is loopback"),
        ("user:word@127.0.0.1", "which is not the plain URL of a web server"),
        ("127.0.0.1\\@8.8.8.8", "which is not the plain URL of a web server"),
    ],
)
def test_a_redirect_inside_is_not_followed(names, canary, host, why, status):
    """Also as the second redirect of a chain."""
    names[0]["inside.org"] = ["127.0.0.1"]
    port = canary.root.split(":")[-1]
    with leading({"/a": "/b", "/b": f"http://{host}:{port}secret"}, status) as server:
        url = f"http://{PUBLIC}:{server.server_port}/a"
        with pytest.raises(ForbiddenLocationError) as caught:
            opened(url)
        assert why in str(caught.value)
        assert f"'{url}'" in str(caught.value)
        assert caught.value.url == url
        if "plain URL" not in why:
            assert f'allow=["http://{host}:{port}"]' in str(caught.value)
        with pytest.raises(ForbiddenLocationError):
            Storage.from_option(WEB).source(url, expected=Location(url, 6)).read_ranges([(0, 1), (5, 1)])
    assert canary.n_requests == 0


@pytest.mark.parametrize("addresses", [["127.0.0.1"], [PUBLIC, "127.0.0.1"]])
def test_a_name_that_resolves_twice(names, server, canary, addresses, monkeypatch):
    """The check of references saw a public address; each connection looks at its own."""
    known, asked = names
    known["twice.org"] = [PUBLIC, *addresses]
    now = 0
    monkeypatch.setattr(hosts, "time", SimpleNamespace(monotonic=lambda: now))
    assert hosts.find_host("twice.org")[0] is None
    root = f"http://twice.org:{canary.root.split(':')[-1]}"
    with pytest.raises(StorageError, match="the connection was refused"):  # nothing listens there
        opened(f"{root}secret")
    assert asked == ["twice.org"]  # the address that was checked is the one that is connected to
    now += 61
    if addresses == [PUBLIC, "127.0.0.1"]:
        assert hosts.find_host("twice.org")[0] is None
        now += 61
    with pytest.raises(ForbiddenLocationError, match=r"is at 127.0.0.1, which is loopback.*allow=..http://twice.org"):
        opened(f"{root}secret")
    assert canary.n_requests == 0


def test_two_names_in_one_chain(names, server, canary):
    """The second name is public when the first redirect is followed, and the third is not."""
    names[0].update({"one.org": [PUBLIC], "two.org": [PUBLIC], "three.org": ["127.0.0.1"]})
    places = {"/ok": server.url("small").replace(PUBLIC, "two.org")}
    with leading(places) as first:
        url = f"http://one.org:{first.server_port}"
        assert opened(f"{url}/ok").read(0, 100) == DATA[:100]
        places["/bad"] = f"http://two.org:{first.server_port}/worse"
        places["/worse"] = canary.url("small").replace("127.0.0.1", "three.org")
        with pytest.raises(ForbiddenLocationError, match=r"at 127\.0\.0\.1, which is loopback"):
            opened(f"{url}/bad")
    assert canary.n_requests == 0


@pytest.mark.parametrize(
    "place",
    ["file:///etc/passwd", "ftp://8.8.8.8/x", "s3://bucket/x", "//127.0.0.1/x", "http:///x", "gopher:x", "http:"],
)
def test_a_redirect_to_something_else(place):
    with leading({"/a": place}) as server, pytest.raises(StorageError):
        opened(f"http://{PUBLIC}:{server.server_port}/a")


def test_redirects_that_do_not_end():
    with leading({"/a": "/b", "/b": "/a"}) as server:
        with pytest.raises(StorageError, match="its redirects form a loop, or are more than 10"):
            opened(f"http://{PUBLIC}:{server.server_port}/a")
        assert len(server.asked) == 11


def test_a_chain_of_ten_redirects_is_followed(server):
    places = {f"/{n}": f"/{n + 1}" for n in range(9)} | {"/9": server.url("small")}
    with leading(places) as first:
        assert opened(f"http://{PUBLIC}:{first.server_port}/0").size == 100


def test_a_place_that_is_allowed(canary):
    """Its own server may be private; where that one redirects to is checked."""
    own = PublicWeb((canary.root,))
    assert open_source(canary.url("secret"), storage={"http://": own}).read(0, 6) == b"secret"
    with RangeServer({"x": b"other"}) as other, leading({"/x": other.url("x")}, host="127.0.0.1") as server:
        root = f"http://127.0.0.1:{server.server_port}/"
        with pytest.raises(ForbiddenLocationError, match=r"redirects to .* at 127\.0\.0\.1"):
            open_source(f"{root}x", storage={root: PublicWeb((root,))})
        assert other.n_requests == 0
        assert open_source(f"{root}x", storage={root: PublicWeb((root, other.root))}).size == 5


def test_a_part_of_a_server_that_is_allowed(canary):
    """Kept connections to it do not serve its other parts."""
    canary.files = {"data/x": b"1", "data.secret": b"2", "secret": b"3"}
    storage = Storage.from_option({canary.root: PublicWeb((canary.url("data"),))})
    assert storage.source(canary.url("data/x")).size == 1
    for path in ("data.secret", "secret"):
        with pytest.raises(ForbiddenLocationError):
            storage.source(canary.url(path))
    assert canary.n_requests == 1


@pytest.mark.parametrize("path", ["data/../secret", "data/%2E%2e/secret", "data/..%2fsecret", "data/x\\..\\..\\secret"])
def test_redirects_do_not_climb_out_of_the_part_that_is_allowed(canary, path):
    """Servers resolve such paths."""
    with leading({"/x": canary.url(path)}) as server:
        root = f"http://{PUBLIC}:{server.server_port}/"
        with pytest.raises(ForbiddenLocationError, match=r"redirects to .* at 127\.0\.0\.1"):
            open_source(f"{root}x", storage={root: PublicWeb((root, canary.url("data")))})
    assert canary.n_requests == 0


def test_a_connection_that_was_kept_is_checked_again(names, canary, server):
    """It was made where the host may be private; references of strangers do not get it."""
    url = canary.url("secret").replace("127.0.0.1", "inside.org")
    names[0]["inside.org"] = ["127.0.0.1"]
    allowed = {"http://": PublicWeb((url.removesuffix("/secret"),))}
    assert open_source(url, storage=allowed).read(0, 6) == b"secret"
    names[0]["inside.org"] = [PUBLIC]
    hosts._looked_up.cache_clear()
    with pytest.raises(StorageError, match="the connection was refused"):  # nothing listens at the public address
        opened(url)
    assert canary.n_requests == 1


def test_a_server_without_a_port_is_that_with_the_default_port():
    """As in a redirect to itself."""
    for place, hop in [("http://One.org/", "http://one.org:80/x"), ("https://one.org:443", "HTTPS://ONE.org/x/")]:
        assert f"{connection._plain(hop)}/".startswith(f"{connection._plain(place).rstrip('/')}/")
    assert connection._plain("http://one.org:8080/A") == "http://one.org:8080/A"
    assert connection._plain("https://one.org:80/") == "https://one.org:80/"


def test_time_limits_are_those_of_obstore(server):
    """As numbers with units, or durations; another text is refused."""
    for limit, seconds in [("300ms", 0.3), ("1m 30s", 90.0), (timedelta(seconds=2), 2.0), ("2 h", 7200.0)]:
        assert connection._seconds(limit, "timeout") == seconds
        assert open_source(server.url("small"), storage={"http://": PublicWeb((), (("timeout", limit),))}).size == 100
    with pytest.raises(StorageError, match=r"timeout='soon' in storage= is not a duration"):
        open_source(server.url("small"), storage={"http://": PublicWeb((), (("timeout", "soon"),))})


@pytest.mark.parametrize("mode", ["status", "cut"])
def test_ranges_that_fail_are_sent_again(server, monkeypatch, mode):
    """Of many that are sent together, some fail once."""
    monkeypatch.setattr(remote, "MAX_GAP_BYTES", 0)
    url = server.url("a/b%20c.nc")
    source = opened(url)
    seen = set()

    def fault(path):
        asked = server.log[-1][2]
        is_first = asked not in seen
        seen.add(asked)
        return (503 if mode == "status" else "cut") if is_first and len(seen) % 7 == 0 else None

    server.fault = fault
    ranges = [(20_000 + 100 * n, 10) for n in range(100)]
    assert [bytes(x) for x in source.read_ranges(ranges)] == answers(ranges)


@pytest.fixture
def context(tmp_path, monkeypatch):
    """A certificate for one.org, which is trusted."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "one.org")])
    now = datetime.now(UTC)
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, now - timedelta(days=1), now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("one.org")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(identifier, critical=False)
        .add_extension(x509.KeyUsage(True, False, False, False, False, True, False, False, False), critical=True)
        .sign(key, digests.SHA256())
    )
    (tmp_path / "ca.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (tmp_path / "cert.pem").write_bytes(
        made.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    found = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    found.load_cert_chain(tmp_path / "cert.pem")
    return found


class Serves(Leads):
    def do_GET(self):
        if self.path in self.server.places:
            return super().do_GET()
        self.send_response(206)
        self.send_header("Content-Range", "bytes 0-5/6")
        self.send_header("Content-Length", "6")
        self.end_headers()
        self.wfile.write(b"secure")
        return None


def test_the_certificate_is_that_of_the_name(names, context, canary):
    """And not of the address, though that is what is connected to."""
    names[0].update({"one.org": [PUBLIC], "two.org": [PUBLIC]})
    with leading({"/down": canary.url("secret")}, context=context, handler=Serves) as server:
        port = server.server_port
        assert opened(f"https://one.org:{port}/x").read(0, 6) == b"secure"
        for host in ("two.org", PUBLIC):
            with pytest.raises(StorageError, match="its certificate is not accepted"):
                opened(f"https://{host}:{port}/x")
        with pytest.raises(StorageError, match=r"lead to an http:// address.*allow_http"):
            opened(f"https://one.org:{port}/down")
    assert canary.n_requests == 0


def test_a_certificate_that_nobody_has_signed(names, context, monkeypatch):
    monkeypatch.delenv("SSL_CERT_FILE")
    names[0]["one.org"] = [PUBLIC]
    unsigned = pytest.raises(StorageError, match="its certificate is not accepted")
    with leading({}, context=context, handler=Serves) as server, unsigned:
        opened(f"https://one.org:{server.server_port}/x")


class Forwards(http.server.BaseHTTPRequestHandler):
    """A proxy that answers itself."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.server.asked.append((self.path, dict(self.headers)))
        if "/leads" in self.path:
            self.send_response(302)
            self.send_header("Location", self.server.places["/leads"])
            self.send_header("Content-Length", "0")
        else:
            self.send_response(206)
            self.send_header("Content-Range", "bytes 0-4/5")
            self.send_header("Content-Length", "5")
        self.end_headers()
        if "/leads" not in self.path:
            self.wfile.write(b"proxy")

    def do_CONNECT(self):
        self.server.asked.append((self.path, dict(self.headers)))
        self.send_error(403)

    def log_message(self, *_):
        pass


def test_a_proxy_of_the_environment_connects(names, monkeypatch):
    """It resolves the names, which are checked before, at each redirect; it may itself be private."""
    places = {"/leads": "http://10.0.0.1/secret"}
    with leading(places, host="127.0.0.1", handler=Forwards) as proxy:
        address = f"127.0.0.1:{proxy.server_port}"
        monkeypatch.setenv("http_proxy", f"http://me:word@{address}")
        monkeypatch.setenv("https_proxy", address)
        assert opened("http://nowhere.org/x?y=%2F").read(0, 5) == b"proxy"
        path, sent = proxy.asked.pop()
        headers = {name.lower(): value for name, value in sent.items()}
        assert path == "http://nowhere.org/x?y=%2F"
        assert headers["proxy-authorization"] == "Basic " + base64.b64encode(b"me:word").decode()
        with pytest.raises(ForbiddenLocationError, match=r"redirects to 'http://10.0.0.1/secret' on a host that is"):
            opened("http://nowhere.org/leads")
        with pytest.raises(ForbiddenLocationError, match="is on a host that is link-local"):
            opened("http://169.254.169.254/x")
        assert len(proxy.asked) == 1
        with pytest.raises(StorageError, match="the proxy of the environment did not connect to it"):
            opened("https://nowhere.org/x")
        assert proxy.asked[-1][0] == "nowhere.org:443"
        assert "proxy-authorization" not in {name.lower() for name in proxy.asked[-1][1]}
        n_asked = len(proxy.asked)
        monkeypatch.setenv("no_proxy", PUBLIC)
        with RangeServer(FILES, host=PUBLIC) as server:
            assert opened(server.url("small")).size == 100
        assert len(proxy.asked) == n_asked
    monkeypatch.setenv("http_proxy", "socks5://127.0.0.1:1")
    with pytest.raises(StorageError, match="proxy of the kind 'socks5'"):
        opened("http://nowhere.org/x")


class Tunnels(Forwards):
    """A proxy that passes on what comes."""

    def do_CONNECT(self):
        self.server.asked.append((self.path, dict(self.headers)))
        with socket.create_connection((PUBLIC, int(self.path.rpartition(":")[2]))) as there:
            self.send_response(200)
            self.end_headers()
            back = threading.Thread(target=self._pass, args=(there, self.connection))
            back.start()
            self._pass(self.connection, there)
            back.join()
        self.close_connection = True

    @staticmethod
    def _pass(one, other):
        with contextlib.suppress(OSError):
            while part := one.recv(65536):
                other.sendall(part)
        with contextlib.suppress(OSError):
            other.shutdown(socket.SHUT_WR)


@pytest.mark.parametrize("kind", ["http", "https"])
def test_a_tunnel_through_a_proxy(names, context, monkeypatch, kind):
    """Also through one that speaks TLS itself: the certificate is that of the server, and time limits are kept."""
    names[0]["one.org"] = [PUBLIC]

    class Hangs(Serves):
        def do_GET(self):
            if self.path == "/slow":
                time.sleep(1)
            return super().do_GET()

    secure = context if kind == "https" else None
    with leading({}, context=secure, handler=Tunnels) as proxy, leading({}, context=context, handler=Hangs) as server:
        monkeypatch.setenv("https_proxy", f"{kind}://me:word@one.org:{proxy.server_port}")
        port = server.server_port
        source = opened(f"https://one.org:{port}/x")
        assert [source.read(0, 6), source.read(1, 2)] == [b"secure", b"ec"]
        assert [path for path, _ in proxy.asked] == [f"one.org:{port}"]
        names[0]["two.org"] = [PUBLIC]
        with pytest.raises(StorageError, match="its certificate is not accepted"):
            opened(f"https://two.org:{port}/x")
        hasty = {"https://": PublicWeb((), (("read_timeout", "200ms"), ("max_retries", 0)))}
        with pytest.raises(StorageError, match="it gave no answer in time"):
            open_source(f"https://one.org:{port}/slow", storage=hasty)
        with pytest.raises(ForbiddenLocationError, match="is on a host that is link-local"):
            opened("https://169.254.169.254/x")
        transfers.STATE.forget()


def test_it_pickles(server):
    storage = pickle.loads(pickle.dumps(Storage.from_option(WEB)))
    assert storage == Storage.from_option(WEB)
    source = pickle.loads(pickle.dumps(storage.source(server.url("small"))))
    assert source.read(5, 10) == DATA[5:15]


@forking
def test_a_forked_child_reads(server):
    """With connections of its own, also if its parent had used them."""
    source = opened(server.url("a/b%20c.nc"))
    assert source.read(20_000, 5) == DATA[20_000:20_005]

    def child():
        assert transfers.STATE._all == []
        assert source.read(30_000, 5) == DATA[30_000:30_005]

    assert forked(child)
    assert source.read(20_000, 5) == DATA[20_000:20_005]


def test_threads_keep_their_connections(server, monkeypatch):
    """Many ranges are requested at the same time, and connections are used again."""
    monkeypatch.setattr(remote, "MAX_GAP_BYTES", 0)
    made, connect = [], transfers._connect
    monkeypatch.setattr(transfers, "_connect", lambda request: made.append(1) or connect(request))
    source = opened(server.url("a/b%20c.nc"))
    ranges = [(20_000 + 100 * n, 10) for n in range(1000)]
    assert [bytes(x) for x in source.read_ranges(ranges)] == answers(ranges)
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda x: source.read(*x), ranges[:100])) == answers(ranges[:100])
    assert len(made) <= remote._MAX_THREADS + 8
    n_made = len(made)
    assert [bytes(x) for x in source.read_ranges(ranges[:5])] == answers(ranges[:5])
    for path in ("nothing", "nothing", "empty", "small"):
        with contextlib.suppress(SourceNotFoundError):
            opened(server.url(path))
    assert len(made) == n_made


def test_kept_connections_are_bounded(server, monkeypatch):
    """References may name any number of servers."""
    monkeypatch.setattr(transfers, "_MAX_KEPT", 3)
    monkeypatch.setattr(hosts, "_looked_up", lambda name, minute: (hosts.ipaddress.ip_address(PUBLIC),))
    hosts._looked_up.cache_clear = lambda: None
    for n in range(5):
        assert opened(server.url("small").replace(PUBLIC, f"h{n}.example.org")).size == 100
    assert [way[1].partition(".")[0] for way, _ in transfers.STATE._all] == ["h2", "h3", "h4"]


def test_a_connection_that_its_server_closed_is_made_again(server, monkeypatch):
    """Before the request, or when it arrives; without a retry."""
    patient = {"http://": PublicWeb((), (("max_retries", 0),))}
    for is_known in (True, False):
        assert open_source(server.url("small"), storage=patient).size == 100
        ((_, kept),) = transfers.STATE._all
        kept.sock.shutdown(socket.SHUT_RDWR)
        if not is_known:
            monkeypatch.setattr(type(kept), "is_connected", True)
        server.reset()
        assert open_source(server.url("small"), storage=patient).size == 100
        assert server.n_requests == 1


def test_a_source_that_changed(server):
    url = server.url("a/b%20c.nc")
    source = opened(url)
    expected = source.location
    server.files = {"a/b c.nc": DATA[::-1]}
    for changed in (expected, Location(url, len(DATA), "other"), Location(url, 199_999)):
        with pytest.raises(SourceChangedError, match="changed after it was indexed"):
            Storage.from_option(WEB).source(url, expected=changed).read(30_000, 10)
    server.files = {"a/b c.nc": DATA[:1000]}
    with pytest.raises(SourceChangedError, match="is shorter than the 200000 bytes that it had"):
        source.read(150_000, 10)


@pytest.mark.parametrize(
    ("status", "kind", "message", "n_requests"),
    [
        (400, StorageError, "could not be read: the server answered 400 Bad Request: Made: made to fail. Try again", 1),
        (401, StorageError, "access denied: .*the server answered 401 .*no credentials were sent", 1),
        (403, StorageError, "the server answered 403 .* no credentials were sent.*allow=..http", 1),
        (404, SourceNotFoundError, "there is nothing at .*: the server answered 404 Not Found.*. Check the URL", 1),
        (416, StorageError, "does not have the requested bytes: the server answered 416|the server answered 416", 2),
        (500, StorageError, r"the server answered 500 Internal Server Error.* \(after 5 retries\). Try again later", 6),
        (599, StorageError, r"the server answered 599", 6),
        (204, StorageError, "the server answered 204", 1),
        (304, StorageError, "the server answered 304", 1),
    ],
)
def test_refusals_name_url_answer_and_remedy(server, status, kind, message, n_requests):
    server.mode, server.status = "status", status
    if status in (204, 304):
        server.body = b""
    url = server.url("small")
    with pytest.raises(kind, match=message) as caught:
        opened(url)
    assert url in str(caught.value)
    assert caught.value.url == url
    assert server.n_requests == n_requests
    assert type(pickle.loads(pickle.dumps(caught.value))) is type(caught.value)


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_server_that_is_busy_is_asked_again(server, status):
    server.mode, server.status, server.times = "status", status, 2
    assert opened(server.url("small")).read(0, 5) == DATA[:5]
    assert server.n_requests == 3


@pytest.mark.parametrize("form", ["seconds", "date"])
def test_the_server_says_when_it_wants_to_be_asked(server, form, monkeypatch):
    pauses = []
    monkeypatch.setattr(slow_servers, "_pause", pauses.append)
    server.mode, server.status, server.times = "status", 503, 1
    began, date = int(time.time()), int(time.time()) + 50
    server.headers = {"Retry-After": "50" if form == "seconds" else formatdate(date, usegmt=True)}
    assert opened(server.url("small")).size == 100
    assert server.n_requests == 2
    assert pauses == [50] if form == "seconds" else began <= date - pauses[0] <= time.time()


def test_a_time_beyond_the_total_is_not_waited_for(server):
    server.mode, server.status, server.headers = "status", 429, {"Retry-After": "3000"}
    with pytest.raises(StorageError, match=r"answered 429 .* asked to wait 3000 s\."):
        opened(server.url("small"))
    assert server.n_requests == 1


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("short_range", r"could not be read: Requested 0..16384, got 0..16383"),
        ("cut_body", "could not be read: the connection broke off"),
        ("no_length", "could not be read: its server does not report its size. Try again later, or download it first"),
    ],
)
def test_servers_that_cannot_be_read_from(server, mode, message):
    server.mode = mode
    with pytest.raises(StorageError, match=message):
        opened(server.url("a/b%20c.nc"))


def test_short_bodies_are_asked_for_once_more(server):
    server.mode = "short_body"
    source = opened(server.url("a/b%20c.nc"))
    server.reset()
    with pytest.raises(StorageError, match=r"10 bytes were requested, but 9 arrived"):
        source.read(5, 10)
    assert server.n_requests == 2


@pytest.mark.parametrize("n", [1, 30])
def test_bodies_that_are_longer_than_what_was_asked_for(server, monkeypatch, n):
    monkeypatch.setattr(remote, "MAX_GAP_BYTES", 0)
    url = server.url("a/b%20c.nc")
    source = Storage.from_option(WEB).source(url, expected=opened(url).location)
    server.mode = "long_body"
    with pytest.raises(StorageError, match=r"10 bytes were requested, but its server sends more"):
        source.read_ranges([(20_000 + 1000 * i, 10) for i in range(n)])


@pytest.mark.parametrize("status", [206, 200, 404, 302])
def test_a_body_that_does_not_end_is_broken_off(server, monkeypatch, status):
    """Of any answer: memory would be used up."""
    sent = []

    def endless(handler, *_, **__):
        handler.send_response(status)
        handler.send_header("Content-Range", "bytes 0-99/100")
        handler.send_header("Content-Length" if status == 200 else "X-Length", "100")
        handler.send_header("Location", "/next")
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        while len(sent) < 5120:
            handler.wfile.write(b"%x\r\n%b\r\n" % (1 << 20, bytes(1 << 20)))
            sent.append(0)

    monkeypatch.setattr(Handler, "_answer_file", endless)
    with pytest.raises(StorageError):
        opened(server.url("small"))
    if status == 200:
        with pytest.raises(StorageError, match="but its server sends more"):
            Storage.from_option(WEB).target(server.root).get("small")
    assert len(sent) < 200


def test_a_server_of_a_few_bytes_a_second_is_given_up(server, monkeypatch):
    monkeypatch.setattr(slow_servers, "_RATE_SECONDS", 0.5)
    server.mode = "trickle"
    with pytest.raises(StorageError, match=r"bytes arrived in \d s, fewer than 1024 per second"):
        opened(server.url("small"))


def test_headers_that_do_not_end_are_given_up():
    """A byte now and then keeps no thread waiting for ever."""

    class Slow(Leads):
        def do_GET(self):
            self.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
            with contextlib.suppress(OSError):
                for _ in range(200):
                    self.wfile.write(b"x")
                    time.sleep(0.05)

    patient = {"http://": PublicWeb((), (("timeout", "300ms"), ("max_retries", 0)))}
    with leading({}, handler=Slow) as server:
        began = time.monotonic()
        with pytest.raises(StorageError, match="it gave no answer in time"):
            open_source(f"http://{PUBLIC}:{server.server_port}/x", storage=patient)
        assert time.monotonic() - began < 5


def test_a_server_that_never_answers(server):
    storage = {"http://": PublicWeb((), (("read_timeout", "1s"), ("max_retries", 0)))}
    server.mode = "hang"
    began = time.monotonic()
    with pytest.raises(StorageError, match="it gave no answer in time"):
        open_source(server.url("small"), storage=storage)
    assert time.monotonic() - began < 5


def test_whole_files_are_bounded(server, monkeypatch):
    monkeypatch.setattr(remote, "MAX_WHOLE_BYTES", 1000)
    server.mode = "ignore_ranges"
    with pytest.raises(
        StorageError, match="its server ignores byte ranges, and the file has 200000 bytes, more than the 1000"
    ):
        opened(server.url("a/b%20c.nc"))


def test_a_host_that_is_not_known():
    with pytest.raises(StorageError, match="could not be read: its host name is not known"):
        opened("http://nowhere.org/x")


def test_the_next_address_of_a_host_is_tried(names, server, monkeypatch):
    """The first address of many hosts is of IPv6, which some networks do not have."""
    addresses = tuple(map(hosts.ipaddress.ip_address, ("127.0.0.9", PUBLIC)))
    monkeypatch.setattr(hosts, "_kind", lambda address: None)
    monkeypatch.setattr(hosts, "_looked_up", lambda name, minute: addresses)
    hosts._looked_up.cache_clear = lambda: None
    assert opened(server.url("small").replace(PUBLIC, "many.org")).size == 100
    with pytest.raises(StorageError, match="the connection was refused"):
        opened("http://many.org:1/x")


def test_one_address_that_is_not_public_is_enough(monkeypatch, canary):
    addresses = tuple(map(hosts.ipaddress.ip_address, (PUBLIC, "127.0.0.1")))
    monkeypatch.setattr(hosts, "_looked_up", lambda name, minute: addresses)
    hosts._looked_up.cache_clear = lambda: None
    with pytest.raises(ForbiddenLocationError, match=r"is at 127\.0\.0\.1, which is loopback"):
        opened(canary.url("secret").replace("127.0.0.1", "many.org"))
    assert canary.n_requests == 0


def test_nothing_is_written_or_listed(server):
    target = Storage.from_option(WEB).target(server.root)
    assert target.get("small") == DATA[:100]
    assert not target.is_listed
    for ask in (target.list, target.first, target.entries, target.contents):
        with pytest.raises(UnlistableError):
            ask()
    for ask in (lambda: target.put("x", b""), lambda: target.put_if_absent("x", b""), lambda: target.delete("x")):
        with pytest.raises(StorageError, match="comes from references, so it can only be read"):
            ask()


@pytest.fixture
def references():
    """Write kerchunk references of six bytes of a URL to a public server, and return their URL."""

    def write(url):
        metadata = {"zarr_format": 2, "shape": [6], "chunks": [6], "dtype": "|u1", "compressor": None, "filters": None,
                    "fill_value": None, "order": "C"}  # fmt: skip
        refs = {".zgroup": '{"zarr_format": 2}', "x/.zarray": json.dumps(metadata), "x/0": [url, 0, 6],
                "x/.zattrs": '{"_ARRAY_DIMENSIONS": ["i"]}'}  # fmt: skip
        given.files["refs.json"] = json.dumps({"version": 1, "refs": refs}).encode()
        return given.url("refs.json")

    with RangeServer({"refs.json": b""}, host=PUBLIC) as given:
        yield write


def read(path, **options):
    return bytes(xr.open_dataset(path, engine="virtualstack", **options)["x"].values)


def test_references_read_through_it(server, references):
    path = references(server.url("small"))
    assert read(path) == DATA[:6]
    virtual = pickle.loads(pickle.dumps(vs.open_virtual_dataset(path)))
    assert bytes(virtual.virtual.open()["x"].values) == DATA[:6]
    sent = {name.lower() for *_, headers in server.log for name in headers}
    assert "user-agent" in sent
    assert not sent & {"authorization", "cookie"}


def test_references_lead_nowhere_by_redirects(canary, references, monkeypatch):
    with leading({"/x": canary.url("secret")}) as running:
        path = references(f"http://{PUBLIC}:{running.server_port}/x")
        with pytest.raises(ForbiddenLocationError, match=r"redirects to .* is loopback.*allow=\[.http") as caught:
            read(path)
        assert not canary.log
        monkeypatch.setenv("VIRTUALSTACK_ALLOW", str(caught.value).rpartition('allow=["')[2].removesuffix('"]'))
        assert read(path) == b"secret"


def test_references_lead_nowhere_by_names_that_resolve_twice(names, server, canary, references):
    """The name is public when references are checked; the address that was checked is the one that is connected to."""
    port = canary.root.split(":")[2].strip("/")
    names[0]["twice.example.org"] = [PUBLIC, "127.0.0.1"]
    with pytest.raises(StorageError, match="the connection was refused"):  # nothing listens there
        read(references(f"http://twice.example.org:{port}/secret"))
    assert not canary.log


def test_references_lead_nowhere_by_the_name_of_a_private_host(names, canary, references):
    """They open, and nobody gets to the host."""
    names[0]["inside.example.org"] = ["127.0.0.1"]
    path = references(canary.url("secret").replace("127.0.0.1", "inside.example.org"))
    vs.open_virtual_dataset(path)
    with pytest.raises(ForbiddenLocationError, match=r"at 127\.0\.0\.1, which is loopback.*allow=\[.http"):
        read(path)
    assert not canary.log


def test_references_to_many_servers(server, tmp_path):
    """More than one would look up when references are opened."""
    metadata = {"zarr_format": 2, "shape": [600], "chunks": [6], "dtype": "|u1", "compressor": None, "filters": None,
                "fill_value": None, "order": "C"}  # fmt: skip
    refs = {
        ".zgroup": '{"zarr_format": 2}',
        "x/.zarray": json.dumps(metadata),
        "x/.zattrs": '{"_ARRAY_DIMENSIONS": ["i"]}',
    }
    with contextlib.ExitStack() as stack:
        for n in range(100):
            refs[f"x/{n}"] = [server.url("small").replace(PUBLIC, f"h{n}.example.org"), 0, 6]
        (tmp_path / "refs.json").write_text(json.dumps({"version": 1, "refs": refs}))
        stack.enter_context(pytest.MonkeyPatch.context()).setattr(
            socket,
            "getaddrinfo",
            lambda name, port, *_, **__: [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (PUBLIC, port or 0))],
        )
        hosts._looked_up.cache_clear()
        assert read(tmp_path / "refs.json") == DATA[:6] * 100
