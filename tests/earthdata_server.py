"""NASA Earthdata in small: a login server, an archive that sends clients to it, and a server of the data, on loopback.

The login server answers at "localhost", the archive and the data at "127.0.0.1", so that they are different hosts.
"""

from __future__ import annotations

import base64
import json
import threading
from collections import Counter
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self
from urllib.parse import parse_qs, quote, urlsplit

__all__ = ["Earthdata"]


class Earthdata:
    """A context manager with the three servers.

    Parameters
    ----------
    files
        Bytes of each path. Those under "public/" need no login.
    users
        Password of each user.
    tokens
        User of each token.
    knows_tokens
        If true, the archive takes tokens; else it sends clients with one to the login server too.
    page
        If true, the login server answers with a page of status 200 to clients without a login, else with 401.
    host
        Address of loopback of all servers. If it is another one, the login server has no name.

    Attributes
    ----------
    log
        Server, path and headers of each request.
    sessions
        User of each cookie of the archive. Clear it to let all logins expire.
    key_seconds
        How long keys of buckets are valid.
    """

    def __init__(self, files, *, users=None, tokens=None, knows_tokens=True, page=False, host="127.0.0.1") -> None:
        self.host = host
        self.files = files
        self.users = users or {"ann": "pw-ann", "bob": "pw-bob"}
        self.tokens = tokens or {"tok-ann": "ann", "tok-bob": "bob"}
        self.knows_tokens = knows_tokens
        self.page = page
        self.sessions: dict[str, str] = {}
        self.key_seconds = 3600
        self.n_keys = 0
        self.log: list[tuple[str, str, dict[str, str]]] = []
        self.lock = threading.Lock()

    def __enter__(self) -> Self:
        kinds = {"login": _Login, "archive": _Archive, "data": _Data}
        self.servers = {name: ThreadingHTTPServer((self.host, 0), kind) for name, kind in kinds.items()}
        for name, server in self.servers.items():
            server.owner, server.name, server.daemon_threads = self, name, True
            threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        name = "localhost" if self.host == "127.0.0.1" else self.host
        self.login_host = f"{name}:{self.servers['login'].server_port}"
        self.root = f"http://{self.host}:{self.servers['archive'].server_port}/"
        self.data = f"http://{self.host}:{self.servers['data'].server_port}/"
        return self

    def __exit__(self, *_: object) -> None:
        for server in self.servers.values():
            server.shutdown()
            server.server_close()

    def counts(self) -> Counter[str]:
        """Number of requests by server."""
        return Counter(entry[0] for entry in self.log)

    def secrets_at(self, server: str) -> set[str]:
        """Authorization and Cookie headers that a server was sent."""
        return {
            value for name, _, headers in self.log if name == server for key, value in headers.items()
            if key.lower() in ("authorization", "cookie")
        }  # fmt: skip


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        owner = self.server.owner
        with owner.lock:
            owner.log.append((self.server.name, self.path, dict(self.headers)))
        self.reply(owner, urlsplit(self.path).path, parse_qs(urlsplit(self.path).query))

    def send(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def user_of_token(self, owner: Earthdata) -> str | None:
        kind, _, token = self.headers.get("Authorization", "").partition(" ")
        return owner.tokens.get(token) if kind == "Bearer" else None


class _Login(_Handler):
    def reply(self, owner, path, query):
        user = self.user_of_token(owner)
        kind, _, pair = self.headers.get("Authorization", "").partition(" ")
        if kind == "Basic":
            name, _, password = base64.b64decode(pair).decode().partition(":")
            user = name if owner.users.get(name) == password else None
        if user is None and owner.page and not kind:
            self.send(200, b"<html>log in</html>", Content_Type="text/html; charset=utf-8")
        elif user is None:
            self.send(401, b"<html>no</html>", Content_Type="text/html")
        else:
            target = f"{owner.root}login?code={user}&state={quote(query['state'][0], safe='')}"
            self.send(302, Location=target, Set_Cookie=f"urs={user}; Path=/; HttpOnly")


class _Archive(_Handler):
    def reply(self, owner, path, query):
        if path == "/login":
            with owner.lock:
                cookie = f"{query['code'][0]}-{len(owner.sessions)}-{len(owner.log)}"
                owner.sessions[cookie] = query["code"][0]
            self.send(302, Location=query["state"][0], Set_Cookie=f"session={cookie}; Path=/; HttpOnly")
            return
        cookies = dict(part.strip().partition("=")[::2] for part in self.headers.get("Cookie", "").split(";"))
        user = owner.sessions.get(cookies.get("session", ""))
        if user is None and owner.knows_tokens:
            user = self.user_of_token(owner)
        if user is None and not path.startswith("/public/"):
            place = f"http://{owner.login_host}/oauth/authorize?state={quote(path, safe='')}"
            self.send(302, Location=place)
        elif path == "/s3credentials":
            with owner.lock:
                owner.n_keys += 1
            ends = datetime.now(UTC) + timedelta(seconds=owner.key_seconds)
            keys = {"accessKeyId": f"{user}{owner.n_keys}", "secretAccessKey": "s", "sessionToken": "t"}
            self.send(200, json.dumps({**keys, "expiration": ends.strftime("%Y-%m-%d %H:%M:%S+00:00")}).encode())
        elif path.lstrip("/") not in owner.files:
            self.send(404)
        else:
            self.send(303, Location=f"{owner.data}{path.lstrip('/')}?signature=valid")


class _Data(_Handler):
    def reply(self, owner, path, query):
        if query.get("signature") != ["valid"]:
            self.send(403)
            return
        data, asked = owner.files[path.lstrip("/")], self.headers.get("Range")
        if asked is None:
            self.send(200, data, ETag='"e"')
            return
        first, last = asked.removeprefix("bytes=").split("-")
        stop = min(int(last) + 1, len(data))
        span = f"bytes {first}-{stop - 1}/{len(data)}"
        self.send(206, data[int(first) : stop], ETag='"e"', Content_Range=span, Accept_Ranges="bytes")
