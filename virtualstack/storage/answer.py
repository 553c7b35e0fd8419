"""What a server answered, in words; and the region that S3 tells."""

from __future__ import annotations

import http.client
import re
import urllib.error
import urllib.request
from collections.abc import Mapping
from datetime import UTC, datetime
from email.message import Message
from email.utils import parsedate_to_datetime

__all__ = ["find_region", "is_short_answer", "named_region", "read_status", "seconds_to_wait", "what_was_answered"]

_REGION = "[a-z0-9-]{1,64}"
_SIGNS = (
    ("dns error", "its host name is not known"),
    ("kind: Connect", "the connection was refused"),
    ("kind: Timeout", "it gave no answer in time"),
    ("IncompleteBody", "the connection broke off"),
    ("Content-Length Header missing", "its server does not tell its size"),
)


def what_was_answered(text: str, /) -> str:
    """Say what the server answered, from obstore's long message.

    >>> what_was_answered("Generic S3 error: Error performing GET http://h/k in 1ms - Server returned non-2xx "
    ...                   "status code: 403 Forbidden: <Error><Code>AccessDenied</Code></Error>")
    'the server answered 403 Forbidden: AccessDenied'
    """
    head = text.partition("\n\nDebug source")[0]
    retries = re.search(r"after (\d+) retries", head)
    suffix = f" (after {retries.group(1)} retries)" if retries else ""
    status = re.search(r"status code: (\d+ [^:\n]*)(?:: (.*))?", head, re.DOTALL)
    if status is not None:
        body = status.group(2) or ""
        words = re.findall(r"<(?:Code|Message)>([^<]*)<", body) or ([] if "<" in body else [body.strip()[:200]])
        return f"the server answered {': '.join([status.group(1), *filter(None, words)])}{suffix}"
    for sign, meaning in _SIGNS:
        if sign in text:
            return meaning + suffix
    return head.strip().partition("\n")[0][:300].rstrip(".") + suffix


def read_status(text: str, /) -> int | None:
    """Return the HTTP status in obstore's message, which alone tells it.

    >>> read_status("Error performing GET http://h/k in 1ms - Server returned non-2xx status code: 503 : busy")
    503
    """
    status = re.search(r"status(?: code)?: (\d{3})\b", text.partition("\n\nDebug source")[0])
    return None if status is None else int(status.group(1))


def is_short_answer(text: str, /) -> bool:
    """Return whether obstore's message is about an answer whose range is not the one that was asked for."""
    return "Requested " in text and ", got " in text


def named_region(text: str, /) -> str | None:
    """Find the region that an S3 error names as the right one, or ``None``."""
    found = re.search(rf"<Region>({_REGION})</Region>|expecting '({_REGION})'", text)
    return None if found is None else found.group(1) or found.group(2)


def find_region(root: str, endpoint: str | None, /) -> str | None:
    """Ask a bucket for its region, which S3 tells everyone in a header, whatever the status; ``None``: it did not.

    One request, of at most 5 s.
    """
    bucket = root.partition("://")[2].rstrip("/")
    address = f"{endpoint.rstrip('/')}/{bucket}" if endpoint else f"https://s3.amazonaws.com/{bucket}"
    try:
        with urllib.request.urlopen(urllib.request.Request(address, method="HEAD"), timeout=5) as response:
            region = response.headers.get("x-amz-bucket-region")
    except urllib.error.HTTPError as error:
        with error:
            region = error.headers.get("x-amz-bucket-region")
    except (OSError, http.client.HTTPException, ValueError):  # the last ones: what is no URL, or no answer
        return None
    return region if isinstance(region, str) and re.fullmatch(_REGION, region) else None


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


def seconds_to_wait(url: str, headers: Mapping[str, str], /) -> float | None:
    """Ask a busy web server for how many seconds it wants to be left alone; ``None``: it does not say.

    One request, of at most 5 s: obstore does not hand over the headers of refusals. 0 where it is not busy any more.
    """
    request = urllib.request.Request(url, headers={**headers, "Range": "bytes=0-0"})
    try:
        with urllib.request.build_opener(_NoRedirects).open(request, timeout=5):
            return 0.0
    except urllib.error.HTTPError as error:
        with error:
            return _retry_after(error.headers) if error.code in (429, 503) else 0.0
    except (OSError, http.client.HTTPException, ValueError):
        return None


def _retry_after(headers: Message) -> float | None:
    """Read seconds, or a date (RFC 9110, 10.2.3) by the clock of the server."""
    text = headers.get("Retry-After", "").strip()
    if re.fullmatch("[0-9]{1,9}", text):
        return float(text)
    try:
        now = parsedate_to_datetime(headers["Date"]) if "Date" in headers else datetime.now(UTC)
        return max(0.0, (parsedate_to_datetime(text) - now).total_seconds())
    except (ValueError, TypeError):  # the latter: one has a time zone
        return None
