"""Decide where the credentials of an account are sent: to the places that its user named.

References that come over a network may name any bucket and any public web server. If nobody but such references names
one, it is read as a stranger would read it. The places that a user named are prefixes of URLs. Local references add
`EVERYWHERE`, as they act with the rights of their user. ``None`` stands for what a user opens by name.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from virtualstack.errors import Code, Remedy
from virtualstack.location import is_http, split_url

type Named = tuple[str, ...] | None
"""Prefixes of URLs, each ending in ``/``, or `EVERYWHERE`; ``None``: all."""

EVERYWHERE = ""
"""Prefix of all URLs, which local references have: they are read with the credentials of the environment."""


@dataclass(frozen=True, slots=True)
class UnnamedBucket:
    """A backend for a bucket that only references name: no credentials of this account are looked for."""

    options: Mapping[str, object] = field(default_factory=dict, repr=False)


def place(url: str, /) -> str:
    """Return the bucket or web server of an absolute URL, with its host in lower case.

    >>> place("https://Data.org/a.nc"), place("s3://bucket/a.nc")
    ('https://data.org/', 's3://bucket/')
    """
    root = split_url(url)[0]
    return root.lower() if is_http(root) else root


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
    """Return the places that any of several storages names; those without a choice (``None``) add nothing to others.

    `EVERYWHERE` is kept only if all have it, so that local references widen nothing for others.
    """
    known = [named for named in each if named is not None]
    found = {x for named in known for x in named if x or all(EVERYWHERE in named for named in known)}
    return tuple(sorted(found)) if known else None


def advice(root: str, /) -> Remedy:
    """Return how to let references use the credentials of this account at a place."""
    return Remedy(
        f"only references name '{root}', so no credentials were sent. To send yours, open them with", allow=places(root)
    )


def places(*urls: str) -> list[Code]:
    """Return a value of ``allow=`` for a message."""
    return [Code(f'"{url}"', url) for url in urls]


def options_at(root: str, **options: Any) -> Code:
    """Return a value of ``storage=`` with options for a place, for a message."""
    shown = ", ".join(f'"{key}": {x if isinstance(x, bool) else json.dumps(x)}' for key, x in options.items())
    return Code(f'{{"{root}": {{{shown}}}}}', json.dumps({root: options}))
