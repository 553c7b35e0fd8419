"""Decide where the credentials of an account are sent: to the places that its user named or granted.

References may name any bucket and any public web server. If nobody but references names one, it is read as a stranger
would read it. The places that a user named are prefixes of URLs; ``None`` stands for all places, as in a storage that
reads what a user opens by name.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from virtualstack.location import Access, split_url

__all__ = ["Named", "UnnamedBucket", "advice", "in_both", "in_either", "is_named", "named_urls", "place"]

type Named = tuple[str, ...] | None
"""Prefixes of URLs, each ending in ``/``; ``None``: all."""

_WEB = "http://", "https://"


@dataclass(frozen=True, slots=True)
class UnnamedBucket:
    """A backend for a bucket that only references name: no credentials of this account are looked for.

    Parameters
    ----------
    options
        Options that the user gave for all URLs.
    """

    options: Mapping[str, object] = field(default_factory=dict, repr=False)


def place(url: str, /) -> str:
    """Return the bucket or web server of an absolute URL, with its host in lower case.

    >>> place("https://Data.org/a.nc"), place("s3://bucket/a.nc")
    ('https://data.org/', 's3://bucket/')
    """
    root = split_url(url)[0]
    return root.lower() if root.startswith(_WEB) else root


def is_named(url: str, named: Named, /) -> bool:
    """Return whether an absolute URL is at a place that the user named.

    >>> is_named("s3://bucket/a.nc", ("s3://bucket/",)), is_named("s3://bucket2/a.nc", ("s3://bucket/",))
    (True, False)
    """
    return named is None or f"{place(url)}{split_url(url)[1]}/".startswith(named)


def in_both(one: Named, other: Named, /) -> Named:
    """Return the places that two storages name.

    >>> in_both(("s3://a/", "s3://b/x/"), ("s3://b/",))
    ('s3://b/x/',)
    """
    if one is None or other is None:
        return other if one is None else one
    return tuple(sorted({*(x for x in one if x.startswith(other)), *(x for x in other if x.startswith(one))}))


def in_either(each: Iterable[Named], /) -> Named:
    """Return the places that any of several storages names; those without a choice (``None``) add nothing to others."""
    known = [named for named in each if named is not None]
    return tuple(sorted({x for named in known for x in named})) if known else None


def named_urls(access: Access | None, urls: Iterable[str], /) -> list[str]:
    """Return those of many absolute URLs whose whole bucket or web server the user named; local files always are."""
    known: dict[str, bool] = {}
    found = []
    for url in urls:
        root = "/".join(url.split("/", 3)[:3])
        if root not in known:
            known[root] = access is None or access.is_named(f"{root}/")
        if known[root]:
            found.append(url)
    return found


def advice(root: str, /) -> str:
    """Return how to let references use the credentials of this account at a place."""
    return (
        f"Only references name '{root}', so no credentials were sent. To send yours, grant the place with the command: "
        f'virtualstack allow {shlex.quote(root)}, or open the references with allow=["{root}"]'
    )
