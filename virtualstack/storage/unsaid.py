"""Ask servers for headers that obstore does not return."""

from __future__ import annotations

import re
from collections.abc import Mapping
from email.message import Message
from urllib.parse import urlsplit

from virtualstack.errors import StorageError
from virtualstack.storage.obstore_errors import REGION
from virtualstack.storage.slow_servers import BUSY_STATUSES, read_retry_after


def find_region(root: str, endpoint: str | None, /) -> str | None:
    """Return the region of a bucket, which S3 states in a header with any status; ``None`` if the header is missing."""
    bucket = root.partition("://")[2].rstrip("/")
    address = f"{endpoint.rstrip('/')}/{bucket}" if endpoint else f"https://s3.amazonaws.com/{bucket}"
    region = _ask("HEAD", address, {})[1].get("x-amz-bucket-region", "")
    return region if re.fullmatch(REGION, region) else None


def seconds_to_wait(url: str, headers: Mapping[str, str], /) -> float | None:
    """Return how many seconds a busy web server asks clients to wait; ``None`` if its answer does not contain this.

    The result 0 means that the server is no longer busy; ``None`` also means that the request failed.
    """
    status, told = _ask("GET", url, {**headers, "Range": "bytes=0-0"})
    if status is None:
        return None
    return read_retry_after(told) if status in BUSY_STATUSES else 0.0


def _ask(method: str, url: str, headers: Mapping[str, str]) -> tuple[int | None, Message]:
    """Return status and headers of an answer; no status if there is none within 5 s."""
    from virtualstack.storage.web.transfers import FailedError, Limits, Request, find_proxy, proxies, sent  # 30 ms

    parts = urlsplit(url)
    target = parts._replace(scheme="", netloc="", fragment="").geturl() or "/"
    try:
        proxy = find_proxy(parts.scheme, parts.netloc, proxies())
        limits = Limits(5.0, 5.0, 5.0)
        request = Request(method, parts.scheme, parts.netloc, target, headers, limits, proxy, is_checked=False)
        with sent(request) as answer:
            return answer.status, answer.headers
    except (FailedError, StorageError, ValueError, KeyError):  # ValueError, KeyError: not the URL of a web server
        return None, Message()
