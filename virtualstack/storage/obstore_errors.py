"""Translate the errors and messages of obstore into errors of storage."""

from __future__ import annotations

import re
from collections.abc import Callable
from http import HTTPStatus
from typing import NoReturn

import obstore

from virtualstack.errors import SourceNotFoundError, StorageError
from virtualstack.location import split_url
from virtualstack.storage.source import RequestRefusedError

REGION = "[a-z0-9-]{1,64}"
"""Regular expression for names of regions."""

_SIGNS = (
    ("dns error", "its host name is not known"),
    ("kind: ConnectionReset", "the connection was reset"),
    ("kind: Connect", "the connection was refused"),
    ("kind: Timeout", "it gave no answer in time"),
    ("Incomplete", "the connection broke off"),
    ("Content-Length Header missing", "its server does not report its size"),
)
_EXPIRED = "ExpiredToken", "InvalidToken", "TokenRefreshRequired"  # S3 answers 400 to these


class RangesIgnoredError(StorageError):
    """The server does not support byte ranges; it can only send whole objects."""


class UnsatisfiableError(StorageError):
    """Status 416: the range begins past the end, as any range of an empty object does."""


class WrongRegionError(StorageError):
    """S3 answered that the bucket is in another region; the answer may name it."""

    region: str | None = None


def what_was_answered(text: str, /) -> str:
    """Return the server's answer, taken from obstore's long message.

    >>> what_was_answered("Generic S3 error: Error performing GET http://h/k in 1ms - Server returned non-2xx "
    ...                   "status code: 403 Forbidden: <Error><Code>AccessDenied</Code></Error>")
    'the server answered 403 Forbidden: AccessDenied'
    """
    head = text.partition("\n\nDebug source")[0]
    retries = re.search(r"after (\d+) retries", head)
    suffix = f" (after {retries.group(1)} retries)" if retries else ""
    provider = re.search(r"External \w+ credential provider: (?:StorageError: )?(.*)", head)
    if provider is not None:
        return f"no credentials were found: {provider.group(1).rstrip('.')[:300]}"
    status = re.search(r"status code: (\d+ [^:\n]*)(?:: (.*))?", head, re.DOTALL)
    if status is not None:
        body = status.group(2) or ""
        words = re.findall(r"<(?:Code|Message)>([^<]*)<", body) or ([] if "<" in body else [body.strip()[:200]])
        return f"the server answered {': '.join([status.group(1), *filter(None, words)])}{suffix}"
    for sign, meaning in _SIGNS:
        if sign in text:
            return meaning + suffix
    return head.strip().partition("\n")[0][:300].rstrip(".") + suffix


def _read_status(text: str, /) -> int | None:
    """Return the HTTP status from obstore's message, the only place that has it.

    >>> _read_status("Error performing GET http://h/k in 1ms - Server returned non-2xx status code: 503 : busy")
    503
    """
    status = re.search(r"status(?: code)?: (\d{3})\b", text.partition("\n\nDebug source")[0])
    return None if status is None else int(status.group(1))


def _is_short_answer(text: str, /) -> bool:
    """Return whether obstore's message is about an answer with another range than the requested one."""
    return "Requested " in text and ", got " in text


def named_region(text: str, /) -> str | None:
    """Return the region that an S3 error names as the right one, or ``None``."""
    found = re.search(rf"<Region>({REGION})</Region>|expecting '({REGION})'", text)
    return None if found is None else found.group(1) or found.group(2)


def missing_at(url: str, status: int | None, answer: str, /) -> StorageError | None:
    """Return the error of a status that says that an object, or a range of it, does not exist."""
    if status == HTTPStatus.NOT_FOUND:
        message = f"there is nothing at '{url}': {answer}. Check the URL, and that the object was not moved"
        return SourceNotFoundError(message, url=url)
    if status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
        return UnsatisfiableError(f"'{url}' does not have the requested bytes: {answer}. Scan it again", url=url)
    return None


def call_obstore[T](url: str, ask: Callable[[], T], /) -> T:
    """Run a call of obstore; every failure becomes a `StorageError`."""
    try:
        return ask()
    except StorageError:
        raise
    except (obstore.exceptions.BaseError, OSError, ValueError, TypeError, NotImplementedError) as error:
        _translate(error, url)
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # pyo3's class, which cannot be imported
            raise
        if any(sign in str(error) for sign in ("InvalidUri", "RelativeUrl")):
            raise StorageError(
                f"'{url}' cannot be requested, because its endpoint is not a URL. A URL begins with https:// "
                "or http://, such as http://localhost:9000; see storage= and AWS_ENDPOINT_URL",
                url=url,
            ) from error
        raise StorageError(f"'{url}': obstore failed unexpectedly ({error}). Please report this", url=url) from error


def is_option_error(error: Exception, /) -> bool:
    """Return whether obstore refused an option before it sent a request."""
    kinds = obstore.exceptions.UnknownConfigurationKeyError, TypeError, ValueError
    return isinstance(error, kinds) or "Config error" in str(error)


def _translate(error: Exception, url: str) -> NoReturn:
    text, exceptions = str(error), obstore.exceptions
    answer = what_was_answered(text)
    status = HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE if "status: 416" in text else None
    if isinstance(error, FileNotFoundError | exceptions.NotFoundError):  # not if a bucket is missing
        status = HTTPStatus.NOT_FOUND
    if missing := missing_at(url, status, answer):
        raise missing from error
    refusals = exceptions.PermissionDeniedError, exceptions.UnauthenticatedError, PermissionError
    is_refused = re.search(r"status code: 40[13] ", text.partition("\n\nDebug source")[0])  # refusals of listings
    is_expired = any(f"<Code>{code}<" in text for code in _EXPIRED)
    if isinstance(error, refusals) or is_refused or is_expired:
        refused = RequestRefusedError(answer, url=url)
        refused.is_expired = is_expired
        raise refused from error
    if isinstance(error, exceptions.NotSupportedError) or any(x in text for x in ("CONTENT_RANGE", "non-partial")):
        raise RangesIgnoredError(
            f"'{url}': its server does not support this request: {answer}. Use another server", url=url
        ) from error
    region = named_region(text)
    if region is not None or "redirect without LOCATION" in text:
        wrong = WrongRegionError(answer, url=url)
        wrong.region = region
        raise wrong from error
    remedy = "Try again later"
    if isinstance(error, exceptions.InvalidPathError) or (isinstance(error, ValueError) and "parse path" in text):
        remedy = "obstore has no such keys: give an fsspec filesystem in storage="
    elif url.startswith("https://") and "error following redirect" in text:
        remedy = (
            "The redirects form a loop, or lead to an http:// address, which is not followed from https://. "
            f'To allow it, give storage={{"{split_url(url)[0]}": {{"allow_http": True}}}}'
        )
    elif "code: 404 " in text:
        remedy = "Check the name of the bucket, and the endpoint if one is given"
    elif isinstance(error, NotImplementedError) or "code: 405 " in text or "code: 501 " in text:
        remedy = "Use another kind of store"
    elif is_option_error(error):
        remedy = "Check the options in storage="
    message = f"'{url}' could not be accessed: {answer}. {remedy}"
    raise StorageError(message, url=url, status=_read_status(text), is_short=_is_short_answer(text)) from error
