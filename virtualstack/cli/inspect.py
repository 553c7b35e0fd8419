"""``virtualstack inspect``: show the variables of one file, their chunks, and where the bytes are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from virtualstack.cli import options
from virtualstack.cli.commands import command
from virtualstack.cli.output import show, table

if TYPE_CHECKING:
    from virtualstack.manifests import ManifestArray, ManifestGroup

__all__ = ["inspect"]

_COLUMNS = "variable", "dims", "dtype", "chunk", "codecs", "refs", "INLINE", "EMPTY", "ABSENT", "bytes", "at", "source"
_RIGHT = {"refs", "INLINE", "EMPTY", "ABSENT", "bytes"}


@command("inspect", examples=["virtualstack inspect day.nc", "virtualstack inspect cube.vstack --group science"])
@click.argument("file", metavar="FILE", help="Path or URL of a file, or of references.")
@options.allow
@options.group
@options.reader
@options.remote_protocol
def inspect(
    file: str, group: str | None, reader: str | None, remote_protocol: str | None, allow: tuple[str, ...]
) -> None:
    """Show variables, chunks, and where the bytes are."""
    from virtualstack.dataset.opening import select_group
    from virtualstack.readers import ReadOptions
    from virtualstack.scanning import scan

    read = ReadOptions.from_options(group=group, allow=allow)
    (root,) = scan([file], reader=options.choose_reader(reader, remote_protocol), options=read)
    start = select_group(root, group)
    sources: dict[str, int | None] = {}
    rows: list[tuple[str, ...]] = [_COLUMNS]
    for path, node in start.walk("/" + group.strip("/") if group else ""):
        rows += [_row(f"{path}/{name}" if path else name, array, sources) for name, array in node.arrays.items()]
    show("\n".join(table(rows, right=_RIGHT)))
    _print_sources(sources)
    _print_refusals(start)


def _row(name: str, array: ManifestArray, sources: dict[str, int | None]) -> tuple[str, ...]:
    """Return the row of one array in the table, and add its sources to the sources of other arrays."""
    from virtualstack.manifests import FIRST

    manifest = array.in_memory().compact()
    count = manifest.summary()
    dims = array.dimension_names or tuple("?" * array.ndim)
    entries = manifest.entries[manifest.entries["location"] >= FIRST]
    span = f"{entries['offset'].min()}-{(entries['offset'] + entries['length']).max()}" if entries.size else "-"
    for location in manifest.locations:
        sources.setdefault(location.url, location.size)
    numbers = sorted(list(sources).index(location.url) + 1 for location in manifest.locations)
    codecs = {" + ".join(x.name.removeprefix("numcodecs.") for x in e.codecs) or "none" for e in manifest.encodings}
    return (
        name,
        " ".join(f"{dim}={n}" for dim, n in zip(dims, array.shape, strict=True)) or "scalar",
        str(array.dtype),
        " x ".join(map(_axis, array.grid.axes)) or "1",
        "; ".join(sorted(codecs)) or "-",
        *(f"{n:,}" for n in (count.n_references, count.n_inline, count.n_empty, count.n_absent, count.nbytes)),
        span,
        _ranges(numbers) or "-",
    )


def _axis(axis: Any) -> str:
    if axis.is_regular:
        return str(axis.chunk)
    lengths = axis.lengths()
    return f"{lengths.min()}..{lengths.max()}"


def _ranges(numbers: Sequence[int]) -> str:
    """Return sorted numbers as text, with runs as ranges: ``1-3,7``."""
    runs: list[list[int]] = []
    for n in numbers:
        if runs and runs[-1][-1] == n - 1:
            runs[-1] = [runs[-1][0], n]
        else:
            runs.append([n])
    return ",".join("-".join(map(str, run)) for run in runs)


def _print_sources(sources: dict[str, int | None]) -> None:
    if sources:
        show("\nsources (the column 'at' gives the first byte, and the one after the last, in them)")
        listed = [(str(i), url, "" if n is None else f"{n:,} bytes") for i, (url, n) in enumerate(sources.items(), 1)]
        show("\n".join(f"  {line}" for line in table(listed, right=())))


def _print_refusals(start: ManifestGroup) -> None:
    refusals = [refusal for _, group in start.walk() for refusal in group.refusals]
    if refusals:
        show("\nnot taken over as references")
        show("\n".join(f"  {line}" for line in table([(x.path, x.kind, x.reason) for x in refusals], right=())))
