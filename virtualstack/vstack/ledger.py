"""The ledger of a store: what became of each file that its recipe names, in pages of Parquet that grow."""

from __future__ import annotations

import io
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from virtualstack.errors import MalformedFileError, Remedy
from virtualstack.printable import counted
from virtualstack.vstack.format.history import OpenStore
from virtualstack.vstack.format.ledger import Entry, LedgerPage, State
from virtualstack.vstack.format.names import ledger_key, new_id
from virtualstack.vstack.format.snapshot import Snapshot

_WORDS = pa.dictionary(pa.int32(), pa.string())
SCHEMA = pa.schema(
    [
        ("url", pa.string()),
        ("size", pa.int64()),
        ("modified", pa.float64()),
        ("etag", pa.string()),
        ("state", _WORDS),
        ("reason", _WORDS),
        ("since", pa.float64()),
    ]
)
"""Columns of the ledger."""

_GROWTH = 4
"""How many times more rows than the new ones a page must have to stay as it is; a smaller one is written with them."""

_GROUP_ROWS = 1 << 15
"""Rows of a page that are decoded at a time."""

_MAX_GROUPS = 20
"""Number of groups of files that are shown at most."""


@dataclass(frozen=True, eq=False, repr=False)
class Ledger:
    """What became of each file that the recipe of a store names; the result of :meth:`Repository.ledger`.

    Parameters
    ----------
    columns
        Table of Arrow with one row for each file: ``url``, ``size``, ``modified`` and ``etag`` of the version that was
        seen last, its ``state``, the ``reason`` of this state, and ``since`` when it has it. Times are in seconds since
        1970 (UTC). States are ``"placed"``: the store shows the file; ``"quarantined"``: it was opened, but does not
        fit; ``"waiting"``: it only lacks other files; ``"masked"``: it was placed, but its present version does not
        fit, so its cells are ABSENT; ``"pending"``: it may still be written; ``"vanished"``: the store shows it, and it
        does not exist any more.

    Examples
    --------
    >>> import xarray as xr
    >>> import virtualstack as vs
    >>> xr.Dataset({"rain": ("time", [1.0])}, {"time": [0]}).to_netcdf("day0.nc", engine="netcdf4")
    >>> repo = vs.Repository.build("rain.vstack", vs.Recipe(["day*.nc"], dim="time")).repository
    >>> repo.ledger()
    <ledger of 1 file: 1 placed>
    >>> repo.ledger().table["state"].tolist()
    ['placed']
    """

    columns: pa.Table

    def __len__(self) -> int:
        return int(self.columns.num_rows)

    def __repr__(self) -> str:
        told = ", ".join(f"{n:,} {state}" for state, n in self.counts.items())
        return f"<ledger of {counted(len(self), 'file')}: {told}>" if told else "<ledger of no files>"

    @property
    def counts(self) -> dict[str, int]:
        """Number of files by state."""
        found = pc.value_counts(pc.cast(self.columns["state"], pa.string())).to_pylist()
        return {x["values"]: x["counts"] for x in sorted(found, key=lambda x: -x["counts"])}

    @property
    def table(self) -> pd.DataFrame:
        """The same columns as a table of pandas; ``modified`` and ``since`` are times."""
        found: pd.DataFrame = self.columns.to_pandas()
        for name in ("modified", "since"):
            found[name] = pd.to_datetime(found[name], unit="s", utc=True)
        return found

    def entries(self) -> Iterator[Entry]:
        """Yield the entries of all files; not all of them are in memory at once."""
        for batch in self.columns.to_batches(max_chunksize=1 << 14):
            yield from map(Entry._make, zip(*(batch[name].to_pylist() for name in SCHEMA.names), strict=True))

    def where(self, states: Sequence[State], urls: Iterable[str] | None = None, /) -> Ledger:
        """Return the files in some states, or those of them that have some URLs."""
        found = self.columns
        if urls is not None:
            found = found.filter(pc.is_in(found["url"], value_set=pa.array(urls, pa.string())))
        return Ledger(
            found.filter(pc.is_in(pc.cast(found["state"], pa.string()), value_set=pa.array(states, pa.string())))
        )


def grouped(rows: Iterable[tuple[str, str, str]], /) -> list[str]:
    """Return lines about files from their states, URLs and reasons; files of one state and like reasons are one line.

    >>> grouped([("quarantined", "a1.nc", "'a1.nc' has 3"), ("quarantined", "a2.nc", "'a2.nc' has 4")])
    ["2 quarantined, 'a1.nc' to 'a2.nc'; the first: 'a1.nc' has 3"]
    """
    groups: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for state, url, reason in rows:
        groups.setdefault((state, _NAMES.sub("", reason)), []).append((url, reason))
    lines = []
    for (state, _), files in list(groups.items())[:_MAX_GROUPS]:
        (first, reason), last = files[0], files[-1][0]
        one = f"{state}: {first}{': ' if reason else ''}{reason}"
        many = f"{len(files):,} {state}, '{first}' to '{last}'{'; the first: ' if reason else ''}{reason}"
        lines.append(one if len(files) == 1 else many)
    n_more = sum(map(len, list(groups.values())[_MAX_GROUPS:]))
    return lines + [f"... {counted(n_more, 'more file')}"] * (n_more > 0)


_NAMES = re.compile(r"'[^']*'|[\d.]+")
"""Names, labels and numbers in a reason, by which those of like files differ."""


def read_ledger(pages: Sequence[LedgerPage], get: Callable[[LedgerPage], bytes], /) -> Ledger:
    """Read all pages; of the entries of a file, the last one counts."""
    found = SCHEMA.empty_table()
    for page in pages:
        found = _joined(found, _decoded(page, get(page)))
    pa.default_memory_pool().release_unused()  # what decoding took beside the columns
    return Ledger(_remembered(found))


def ledger_of(store: OpenStore, snapshot: Snapshot, /) -> Ledger:
    """Read the ledger of a snapshot."""
    return read_ledger(snapshot.ledger, store.archive(snapshot).ledger_page)


def with_entries(
    pages: Sequence[LedgerPage],
    entries: Iterable[Entry],
    get: Callable[[LedgerPage], bytes],
    put: Callable[[str, bytes], None],
    /,
) -> tuple[LedgerPage, ...]:
    """Write entries as a new page, together with the last pages if they are small, and return all pages."""
    kept, columns = list(pages), zip(*entries, strict=True)
    rows = pa.Table.from_arrays([pa.array(x, y.type) for x, y in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)
    while kept and kept[-1].n <= _GROWTH * rows.num_rows:
        page = kept.pop()
        rows = _joined(_decoded(page, get(page)), rows)
    if not kept:
        rows = _remembered(rows)
    out, name = io.BytesIO(), new_id()
    pq.write_table(
        rows.sort_by("url"),
        out,
        compression="zstd",
        row_group_size=_GROUP_ROWS,
        use_dictionary=["state", "reason", "since"],
        column_encoding={"url": "DELTA_BYTE_ARRAY"},
        store_schema=False,
    )
    data = out.getvalue()
    put(ledger_key(name), data)
    return (*kept, LedgerPage(name, rows.num_rows, len(data), zlib.crc32(data)))


def _remembered(rows: pa.Table) -> pa.Table:
    """Return the rows of a table without those of files that were never placed, and do not exist any more."""
    is_kept = pc.not_equal(pc.cast(rows["state"], pa.string()), "forgotten")
    return rows if pc.all(is_kept).as_py() is not False else rows.filter(is_kept)


def _joined(before: pa.Table, after: pa.Table) -> pa.Table:
    """Return the rows of two tables; of a file that is in both, that of the second."""
    if before.num_rows:
        before = before.filter(pc.invert(pc.is_in(before["url"], value_set=after["url"].combine_chunks())))
        return pa.concat_tables([before, after]).unify_dictionaries()
    return after


def _decoded(page: LedgerPage, data: bytes) -> pa.Table:
    if len(data) != page.size or zlib.crc32(data) != page.crc32:
        raise MalformedFileError(f"the page '{page.name}' of the ledger is damaged", Remedy("restore the store"))
    try:
        page_file = pq.ParquetFile(pa.BufferReader(data), read_dictionary=["state", "reason"])
        found = page_file.read(use_threads=False).cast(SCHEMA)  # threads of a short command may outlive it
    except (pa.ArrowException, ValueError, KeyError) as error:
        raise MalformedFileError(f"the page '{page.name}' of the ledger is damaged: {error}") from error
    return found
