"""Write a report: one HTML file with the page of the server and facts about one cube; or the facts as JSON."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import quote

from virtualstack.errors import Remedy, VirtualStackError, WriterError
from virtualstack.location import absolute_url
from virtualstack.printable import printable
from virtualstack.serve.content import Content, make_clients
from virtualstack.serve.cubes import Cube, CubeLike, make_cube, name_from_url
from virtualstack.serve.facts import ASSETS, CubeFacts, dump_facts
from virtualstack.serve.verified import VerifiedFile
from virtualstack.storage import Allow, StorageLike
from virtualstack.storage.atomic import write_file
from virtualstack.surveying.picture import Picture

_MAX_BYTES = 32 << 20
"""Size of the facts from which on only some are added: the page says which ones it does not hold."""

_MAX_BOXES = 1024
_MAX_SOURCES = 20_000
_MAX_DIFFERENCES = 50
_PAGE_OF_SOURCES = 100
"""Number of sources on a page, as in ``page/src/panels/sources.tsx``."""

type _Options = Mapping[str, str | int]


def report(
    cube: CubeLike,
    path: str | os.PathLike[str],
    /,
    *,
    name: str | None = None,
    at: int | str | None = None,
    storage: StorageLike = None,
    allow: Allow = (),
    build: Mapping[str, Any] | None = None,
    verified: str | os.PathLike[str] | None = None,
) -> None:
    """Write a report on a cube: one HTML file that shows variables, chunk maps, timeline, sources and snapshots.

    The file needs no server and no other file. No chunk is read, except of the coordinate of the timeline, and of a
    small map of the largest variable if it is cheap.
    With the suffix ``.json``, the file has the same facts as JSON: for the page on a static web server, which cannot
    compute the timeline and the comparison of snapshots.

    When to use: to send facts about an archive to somebody, or to publish them. Alternatives: :func:`app` serves the
    same page with values of the cube.

    Examples
    --------
    >>> import xarray as xr
    >>> import virtualstack as vs
    >>> xr.Dataset({"rain": ("time", [1.0, 2.0])}).virtual.to_vstack("rain.vstack")
    >>> vs.serve.report("rain.vstack", "rain.html")
    >>> vs.serve.report("rain.vstack", "rain.json")
    """
    options = dict(build or {})
    made = make_cube(
        name or _name(cube),
        cube,
        clients=make_clients(),
        storage=storage,
        allow=allow,
        options=options,
        refresh=0,
        n_threads=1,
    )
    try:
        if absolute_url(path) == made.url:
            raise WriterError(f"the report would replace the cube itself: '{made.url}'", Remedy("give it another name"))
        if verified is not None:
            made.verified = VerifiedFile(verified, made.url)
            made.verified.read()
        facts = _facts(made, None if at is None else str(at))
        is_json = Path(path).suffix.lower() == ".json"
        write_file(Path(path), facts if is_json else _page(made.name, facts.decode()).encode())
    finally:
        made.close()


def _name(cube: CubeLike) -> str:
    url = cube if isinstance(cube, str | os.PathLike) else getattr(cube, "url", None)
    return name_from_url(os.fspath(url)) if url else "cube"


def _facts(cube: Cube, at: str | None) -> bytes:
    """Return what the page needs to know, as JSON."""
    content = cube.open(at)
    facts = CubeFacts(cube, content, max_boxes=_MAX_BOXES)
    answers = _answers(facts, content, has_snapshots=cube.open_repository is not None)
    overview = answers["variables?offset=0"]
    if isinstance(overview, dict):
        picture = Picture(lambda: content.group, content.storage).html()
        overview["map"] = re.sub(' style="[^"]*"', "", picture)  # the page allows no styles but its own
    embedded = {
        "cubes": [cube.about],
        "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "answers": answers,
    }
    return dump_facts(embedded)


def _page(name: str, facts: str) -> str:
    """Return the report as HTML."""
    style, script = ((ASSETS / x).read_text("utf-8") for x in ("style.css", "report.js"))
    hashes = {"script-src": script, "style-src": style}
    policy = "; ".join(["default-src 'none'", "img-src data:", *(f"{key} '{_hash(x)}'" for key, x in hashes.items())])
    parts = {
        "title": html.escape(f"{name} · virtualstack report"),
        "policy": policy,
        "style": style,
        "script": script,
        # Text from strangers must not end the element.
        "facts": facts.replace("<", "\\u003c"),
    }
    return re.sub(r"{{(\w+)}}", lambda found: parts[found[1]], (ASSETS / "report.html").read_text("utf-8"))


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _answers(facts: CubeFacts, content: Content, *, has_snapshots: bool) -> dict[str, Any]:
    """Return what the page asks for, by kind and options; the message of the error for what cannot be found."""
    answers: dict[str, Any] = {}
    size = 0
    for kind, options in _questions(content, answers, has_snapshots=has_snapshots):
        if size > _MAX_BYTES and kind in ("map", "sources", "diff"):
            continue
        try:
            found: Any = facts.find(kind, {key: str(x) for key, x in options.items()})
        except VirtualStackError as error:
            found = printable(str(error))
        query = "&".join(f"{key}={quote(str(options[key]), safe=_UNQUOTED)}" for key in sorted(options))
        answers[f"{kind}?{query}"] = found
        size += len(json.dumps(found))
    return answers


_UNQUOTED = "!*'()"
"""Characters that JavaScript's ``encodeURIComponent`` leaves, and Python's ``quote`` does not."""


def _questions(
    content: Content, answers: Mapping[str, Any], /, *, has_snapshots: bool
) -> Iterator[tuple[str, _Options]]:
    """Yield what the page asks for; of lists the following pages, as long as there are any."""
    for kind in ("variables", "counts"):
        offset: int | None = 0
        while offset is not None:
            yield kind, {"offset": offset}
            answer = answers[f"{kind}?offset={offset}"]
            offset = None if isinstance(answer, str) else answer["next"]
    yield "timeline", {}
    yield "verified", {}
    if has_snapshots:
        yield "snapshots", {}
    overview = answers["variables?offset=0"]
    if isinstance(overview, dict) and overview["has_recipe"]:
        yield "health", {}
    offset = 0
    while offset is not None and offset < _MAX_SOURCES:
        yield "sources", {"offset": offset, "limit": _PAGE_OF_SOURCES}
        answer = answers.get(f"sources?limit={_PAGE_OF_SOURCES}&offset={offset}")
        offset = answer["next"] if isinstance(answer, dict) else None
    for variable in content.group.all_arrays():
        yield "map", {"variable": variable}
    snapshots = answers.get("snapshots?")
    if isinstance(snapshots, dict):
        numbers = [x["number"] for x in snapshots["items"]]
        for after, before in pairwise(numbers[:_MAX_DIFFERENCES]):
            yield "diff", {"before": before, "after": after}
