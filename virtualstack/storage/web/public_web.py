"""Note that URLs are read as references of strangers name them: from public web servers alone, at every redirect."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from virtualstack.storage.web.connection import WebConnection


@dataclass(frozen=True, slots=True)
class PublicWeb:
    """A backend of `Storage` for http(s) URLs that references name.

    Each connection goes to an address that was checked for this connection, so a name cannot lead to another one. Each
    redirect is checked in the same way. Nothing identifies the user: no credentials and no cookies are sent.
    If the environment names a proxy, the proxy connects; then the names are checked, and the proxy resolves them again.

    When to use: for URLs that come from somebody else. Alternatives: options, for URLs that the user names.

    Parameters
    ----------
    allowed
        Beginnings of URLs whose hosts may be private: places that the user allowed, and the web server of the
        references themselves. Redirects that leave them are checked.
    waiting
        Options that say how long to wait, such as ``("read_timeout", "60s")``.
    headers
        Headers for the server of a URL, such as an API key. No redirect takes them to another server.

    Examples
    --------
    >>> from virtualstack.storage import PublicWeb, Storage
    >>> Storage.from_option({"https://": PublicWeb()})
    Storage({'https://': PublicWeb})
    """

    allowed: tuple[str, ...] = ()
    waiting: tuple[tuple[str, object], ...] = ()
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def connect(self, url: str, /) -> WebConnection:
        """Return the connection that serves a URL, shared by all URLs of its host; nothing is requested yet."""
        web = importlib.import_module("virtualstack.storage.web.connection")
        return cast("WebConnection", web.connect(url, self.allowed, self.waiting, self.headers))
