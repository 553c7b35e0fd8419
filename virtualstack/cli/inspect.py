"""``virtualstack inspect``: show the variables of files, their chunks, and where the bytes are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from virtualstack.cli import options
from virtualstack.cli.commands import command, complete_files, option
from virtualstack.cli.facts import dry_text, maybe_dry
from virtualstack.cli.output import report, say, short_paths, table, wants_progress
from virtualstack.printable import counted

if TYPE_CHECKING:
    from virtualstack.manifests import ManifestArray, ManifestGroup

_COLUMNS = "variable", "dims", "dtype", "chunk", "codecs", "refs", "INLINE", "EMPTY", "ABSENT", "bytes", "at", "source"
_RIGHT = {"refs", "INLINE", "EMPTY", "ABSENT", "bytes"}
_COUNTS = "refs", "INLINE", "EMPTY", "ABSENT", "bytes"


@command(
    "inspect",
    examples=[
        "virtualstack inspect day.nc",
        "virtualstack inspect 'data/*.nc' --json",
        "virtualstack inspect cube.vstack --group science --html cube.html",
    ],
)
@click.argument(
    "files",
    shell_complete=complete_files,
    metavar="FILE...",
    nargs=-1,
    required=True,
    help="Path, pattern or URL of files, or of references.",
)
@option(
    "--html",
    shell_complete=complete_files,
    metavar="OUTPUT",
    help="Write a page of HTML instead of text; one that exists is replaced.",
)
@options.allow
@options.as_json
@options.dry_run
@options.group
@options.reader
@options.remote_protocol
@options.storage
def inspect(
    files: tuple[str, ...],
    html: str | None,
    allow: tuple[str, ...],
    dry_run: bool,
    group: str | None,
    reader: str | None,
    remote_protocol: str | None,
    storage: Any,
    as_json: bool,
) -> None:
    """Show variables, chunks, and where the bytes are."""
    from virtualstack.dataset.opening import select_group
    from virtualstack.readers import ReadOptions
    from virtualstack.scanning.many import scan
    from virtualstack.storage.listing import find_urls

    urls = find_urls(files, storage=storage)
    found = scan(
        urls,
        reader=options.choose_reader(reader, remote_protocol),
        storage=storage,
        progress=len(urls) > 1 and wants_progress(),
        options=ReadOptions.from_options(group=group, allow=allow),
    )
    starts = [select_group(root, group) for root in found]
    if html is not None:
        with maybe_dry(dry_run) as record:
            _write_page(html, urls, starts)
        say("note", f"'{html}' is written: open it in a browser" if record is None else dry_text(record, html))
    if html is not None and not as_json:
        return
    facts = [_facts(url, start, group) for url, start in zip(urls, starts, strict=True)]

    def text() -> Iterator[str]:
        for i, each in enumerate(facts):
            if len(facts) > 1:
                yield f"{'' if i == 0 else chr(10)}{each['url']}"
            yield from _lines(each)

    report(lambda: {"files": facts}, lambda: "\n".join(text()), as_json=as_json)


def _write_page(path: str, urls: Sequence[str], starts: Sequence[ManifestGroup]) -> None:
    """Write the groups of files as one page of HTML."""
    from virtualstack.drawing.html import text
    from virtualstack.manifests.display import group_html
    from virtualstack.storage.atomic import write_file

    parts = [group_html(start, url) for url, start in zip(urls, starts, strict=True)]
    title = urls[0] if len(urls) == 1 else f"{len(urls)} files"
    head = f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{text(title)}</title></head>'
    write_file(path, f"{head}<body>{''.join(parts)}</body></html>\n".encode())


def _facts(url: str, start: ManifestGroup, group: str | None) -> dict[str, Any]:
    """Return what is known about one file."""
    sources: dict[str, int | None] = {}
    variables = [
        _variable(f"{path}/{name}" if path else name, array, sources)
        for path, node in start.walk("/" + group.strip("/") if group else "")
        for name, array in node.arrays.items()
    ]
    refusals = [refusal for _, node in start.walk() for refusal in node.refusals]
    return {
        "url": url,
        "variables": variables,
        "sources": [{"url": each, "size": size} for each, size in sources.items()],
        "refusals": [{"path": x.path, "kind": x.kind, "reason": x.reason} for x in refusals],
    }


def _variable(name: str, array: ManifestArray, sources: dict[str, int | None]) -> dict[str, Any]:
    """Return the facts of one array, and add its sources to the sources of other arrays."""
    from virtualstack.manifests import FIRST

    manifest = array.in_memory().compact()
    count = manifest.summary()
    dims = array.dimension_names or tuple("?" * array.ndim)
    entries = manifest.entries[manifest.entries["location"] >= FIRST]
    for location in manifest.locations:
        sources.setdefault(location.url, location.size)
    codecs = {" + ".join(x.name.removeprefix("numcodecs.") for x in e.codecs) or "none" for e in manifest.encodings}
    return {
        "variable": name,
        "dims": list(dims),
        "shape": list(array.shape),
        "dtype": str(array.dtype),
        "chunk": [_axis(axis) for axis in array.grid.axes],
        "codecs": sorted(codecs),
        "refs": count.n_references,
        "INLINE": count.n_inline,
        "EMPTY": count.n_empty,
        "ABSENT": count.n_absent,
        "bytes": count.nbytes,
        "first_byte": int(entries["offset"].min()) if entries.size else None,
        "end_byte": int((entries["offset"] + entries["length"]).max()) if entries.size else None,
        "sources": sorted(list(sources).index(location.url) + 1 for location in manifest.locations),
    }


def _axis(axis: Any) -> str:
    if axis.is_regular:
        return str(axis.chunk)
    lengths = axis.lengths()
    return f"{lengths.min()}..{lengths.max()}"


def _lines(facts: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of one file."""
    yield from table([_COLUMNS, *(_row(each) for each in facts["variables"])], right=_RIGHT)
    if facts["sources"]:
        yield "\nsources (the column 'at' gives the first byte, and the one after the last, in them)"
        listed = [
            (str(i), x["url"], "" if x["size"] is None else counted(x["size"], "byte"))
            for i, x in enumerate(facts["sources"], 1)
        ]
        yield from (f"  {line}" for line in table(listed, right=()))
    if facts["refusals"]:
        yield "\nnot taken over as references"
        rows = [(x["path"], x["kind"], short_paths(x["reason"])) for x in facts["refusals"]]
        yield from (f"  {line}" for line in table(rows, right=()))


def _row(facts: dict[str, Any]) -> tuple[str, ...]:
    """Return the row of one array in the table."""
    return (
        facts["variable"],
        " ".join(f"{dim}={n}" for dim, n in zip(facts["dims"], facts["shape"], strict=True)) or "scalar",
        facts["dtype"],
        " x ".join(facts["chunk"]) or "1",
        "; ".join(facts["codecs"]) or "-",
        *(f"{facts[name]:,}" for name in _COUNTS),
        "-" if facts["first_byte"] is None else f"{facts['first_byte']}-{facts['end_byte']}",
        _ranges(facts["sources"]) or "-",
    )


def _ranges(numbers: Sequence[int]) -> str:
    """Return sorted numbers as text, with runs as ranges: ``1-3,7``."""
    runs: list[list[int]] = []
    for n in numbers:
        if runs and runs[-1][-1] == n - 1:
            runs[-1] = [runs[-1][0], n]
        else:
            runs.append([n])
    return ",".join("-".join(map(str, run)) for run in runs)
