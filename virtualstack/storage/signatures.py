"""Split the signature of a signed URL from the URL, and sign URLs again when they are read."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import cast

from virtualstack.errors import Remedy, StorageError, advised
from virtualstack.location import is_http, split_url
from virtualstack.storage.named import options_at
from virtualstack.warning import warn

QUERY = "query"
"""Option of a web server: the signature of its URLs, as text or as a function of the URL."""

_SIGNED = re.compile(r"[?&](?:x-amz-signature|x-goog-signature|sig|signature)=", re.IGNORECASE)
# S3 and Google Cloud Storage (versions 4 and 2), shared access signatures of Azure, CloudFront
_NAMES = re.compile(
    r"x-(?:amz|goog)-.*|awsaccesskeyid|googleaccessid|key-pair-id|policy|signature|expires|hash-algorithm"
    r"|s[a-z]{1,2}|sk[a-z]{1,3}|saoid|suoid|scid|sduoid|spr|sig",
    re.IGNORECASE,
)


def split_signature(url: str, /) -> tuple[str, str]:
    """Return the URL without the parameters of its signature, and these; empty if the URL is not signed.

    >>> split_signature("https://host/a.nc?versionId=1&X-Amz-Signature=0f&X-Amz-Expires=60")
    ('https://host/a.nc?versionId=1', 'X-Amz-Signature=0f&X-Amz-Expires=60')
    """
    if not is_http(url) or _SIGNED.search(url) is None:
        return url, ""
    plain, _, query = url.partition("?")
    parts = query.split("&")
    kept = [x for x in parts if _NAMES.fullmatch(x.partition("=")[0]) is None]
    return "?".join([plain, *(["&".join(kept)] if kept else [])]), "&".join(x for x in parts if x not in kept)


def without_signature(url: str, /) -> str:
    """Return a URL as references name it; a warning tells what has a signature."""
    plain, query = split_signature(url)
    if query:
        root = split_url(plain)[0]
        warn_unsigned(f"signatures of URLs at {root}", root)
    return plain


def warn_unsigned(which: str, root: str, /) -> None:
    """Warn that signatures are not kept in references, and say how these are read."""
    sign = Remedy("readers of these sign with", storage=options_at(root, **{QUERY: "..."}))
    warn(advised(f"{which} are not kept in references", sign, Remedy("with a function of the URL")))


def login_remedies(root: str, *, is_signed: bool) -> tuple[Remedy, ...]:
    """Return how a web server that refused a request gets credentials, or other signatures."""
    sign = Remedy("sign its URLs:", storage=options_at(root, **{QUERY: "..."}))
    login = Remedy("give credentials that have access:", storage=options_at(root, headers={"Authorization": "..."}))
    return (sign,) if is_signed else (login, sign)


def signed(url: str, options: Mapping[str, object], /) -> str:
    """Return the URL with the signature that the options of a web server have for it."""
    query = options.get(QUERY)
    if callable(query):
        query = cast(Callable[[str], object], query)(url)
    if query is None:
        return url
    if not isinstance(query, str):
        raise StorageError(f"query= of storage= for '{url}' is {query!r:.100}, and no text such as 'sig=...'", url=url)
    return f"{url}{'&' if '?' in url else '?'}{query.lstrip('?')}" if query else url
