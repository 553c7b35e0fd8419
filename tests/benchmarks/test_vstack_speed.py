"""The vstack beside kerchunk and Icechunk; run with VIRTUALSTACK_BENCHMARK=full for their real sizes."""

import importlib.util
import itertools
import json
import resource
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from tests.benchmarks.icechunk_rival import HAS_ICECHUNK, open_icechunk, write_icechunk
from tests.benchmarks.timing import IS_FULL, interleaved
from tests.data.arrays import referenced_array
from virtualstack.formats.base import ReadOptions
from virtualstack.kerchunk.reader import Kerchunk
from virtualstack.kerchunk.writer import write_kerchunk
from virtualstack.location import Location
from virtualstack.manifests import (
    ENTRY,
    FIRST,
    ChunkAxis,
    ChunkEncoding,
    ChunkGrid,
    ChunkManifest,
    Fill,
    ManifestArray,
    ManifestGroup,
    PagedManifest,
    count_states,
    inline_array,
)
from virtualstack.storage import Storage
from virtualstack.vstack.reader import VStack
from virtualstack.vstack.save import save

FILES, CHUNKS = (1000, 1000) if IS_FULL else (6, 50)
REGULAR = 10**9 if IS_FULL else 10**6
BATCHES, BATCH = (100, 10**6) if IS_FULL else (3, 10**4)
LOOKUPS = 7 if IS_FULL else 1
SERIAL = itertools.count()
HAS_KERCHUNK = all(importlib.util.find_spec(name) for name in ("kerchunk", "fastparquet"))
PREFIX = (
    "s3://archive-of-a-weather-service/reanalysis/hourly/single-levels/1979/january/first-half/surface-variables-of-"
)

pytestmark = pytest.mark.filterwarnings("ignore")  # of kerchunk, fastparquet and icechunk


def archive(seed: int = 0) -> ManifestGroup:
    """Compressed files: chunk lengths with noise, one behind the other, and URLs of 111 characters."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(24_000, 40_000, (FILES, CHUNKS))
    offsets = 20_000 + np.cumsum(lengths, 1) - lengths
    sizes = (offsets[:, -1] + lengths[:, -1] + 1000).tolist()
    urls = [Location(f"{PREFIX}{i:06d}.nc"[:111].ljust(111, "_"), n) for i, n in enumerate(sizes)]
    places = {"urls": urls, "offsets": offsets, "lengths": lengths}
    how = {"fill": np.nan, "dimension_names": ("time", "y", "x")}
    array = referenced_array((FILES, CHUNKS * 100, 100), (1, 100, 100), **places, **how)
    times = inline_array(np.arange(FILES), name="time", dims=("time",), attributes={"units": "hours since 1979-01-01"})
    return ManifestGroup(arrays={"v": array, "time": times})


def nbytes_of(path: Path) -> int:
    files = [path] if path.is_file() else [x for x in path.rglob("*") if x.is_file()]
    return sum(x.stat().st_size for x in files)


def read(path: Path) -> ManifestGroup:
    return VStack().read(path.as_uri(), Storage.from_option(), ReadOptions())


def test_writing_and_reading_references(tmp_path):
    """10^6 references of a compressed archive: time to write, bytes a reference, time to load all, one found cold."""
    group = archive()
    n = FILES * CHUNKS
    last: dict[str, Path] = {}

    def to(name: str, suffix: str):
        def write():
            last[name] = tmp_path / f"{next(SERIAL)}.{suffix}"
            if suffix == "vstack":
                save(group, last[name])
            else:
                write_kerchunk(group, last[name])

        return write

    rivals = {"vstack": to("vstack", "vstack")}
    rivals |= {"our parquet": to("our parquet", "parq"), "our JSON": to("our JSON", "json")}
    if HAS_ICECHUNK:
        rivals["icechunk"] = lambda: last.__setitem__("icechunk", to_icechunk(group, tmp_path / f"{next(SERIAL)}.ice"))
    if HAS_KERCHUNK:
        from kerchunk.df import refs_to_dataframe

        write_kerchunk(group, tmp_path / "refs.json")
        references = json.loads((tmp_path / "refs.json").read_bytes())  # which kerchunk has when it begins

        def to_parquet():
            last["kerchunk"] = tmp_path / f"{next(SERIAL)}.parq"
            refs_to_dataframe(references, str(last["kerchunk"]), record_size=100_000)

        rivals["kerchunk"] = to_parquet
    interleaved(f"write {n} references", rivals, repeats=3)
    for name, path in last.items():
        print(f"  {name:<14} {nbytes_of(path) / n:.2f} bytes a reference")
    stores = iter([archive_copy(last["vstack"], tmp_path) for _ in range(5)])
    tables = iter([archive_copy(last["our parquet"], tmp_path) for _ in range(5)])
    best = interleaved(
        "load all",
        {
            "vstack": lambda: read(next(stores))["v"].in_memory(),
            "our parquet": lambda: (
                Kerchunk().read(next(tables).as_uri(), Storage.from_option(), ReadOptions())["v"].whole()
            ),
        },
        repeats=5,
    )
    assert (best["vstack"].result.entries["offset"] == group["v"].manifest.entries["offset"]).all()
    totals = interleaved(
        "number of references",
        {
            "vstack": lambda: count_states(read(last["vstack"])["v"].manifest).n_references,
            "our parquet": lambda: (
                count_states(
                    Kerchunk().read(last["our parquet"].as_uri(), Storage.from_option(), ReadOptions())["v"].manifest
                ).n_references
            ),
        },
    )
    assert totals["vstack"].result == totals["our parquet"].result == n
    copies = iter([archive_copy(last["vstack"], tmp_path) for _ in range(LOOKUPS)])
    found = interleaved("one reference, cold", {"vstack": lambda: one(read(next(copies)))}, repeats=LOOKUPS)
    wanted = group["v"].manifest.entries[FILES // 2, CHUNKS // 3]
    assert found["vstack"].result.tolist() == wanted["offset"].tolist()


def one(group: ManifestGroup) -> np.ndarray:
    cell = (np.array([FILES // 2]), np.array([CHUNKS // 3]), np.array([0]))
    return group["v"].manifest.pick(cell).entries["offset"]


def archive_copy(store: Path, folder: Path) -> Path:
    """Give a store or references another place, so that nothing of them is kept in memory."""
    copy = folder / f"{next(SERIAL)}{store.suffix}"
    copy.symlink_to(store)
    return copy


def to_icechunk(group: ManifestGroup, path: Path) -> Path:
    return write_icechunk(group["v"], path, "s3://archive-of-a-weather-service/", chunks=(1, 100, 100))


def local_group(folder: Path) -> ManifestGroup:
    """The same number of references into one local file, so that values can be read."""
    values = np.arange(16 * CHUNKS, dtype="<f4")
    (folder / "data.bin").write_bytes(values.tobytes())
    places = {
        "urls": Location((folder / "data.bin").as_uri(), values.nbytes),
        "offsets": np.broadcast_to(np.arange(CHUNKS) * 64, (FILES, CHUNKS)),
        "lengths": 64,
    }
    array = referenced_array((FILES, CHUNKS * 16), (1, 16), **places, fill=np.nan, dimension_names=("t", "x"))
    return ManifestGroup(arrays={"v": array, "t": inline_array(np.arange(FILES), name="t", dims=("t",), attributes={})})


def test_first_time_step(tmp_path):
    """Opening 10^6 references and loading one time step, as a user does it, beside kerchunk's parquet."""
    group = local_group(tmp_path)
    save(group, tmp_path / "x.vstack")
    write_kerchunk(group, tmp_path / "refs.parq")
    copies = iter([archive_copy(tmp_path / "x.vstack", tmp_path) for _ in range(7)])
    allow = tmp_path.as_uri()

    def store():
        with xr.open_dataset(next(copies), engine="virtualstack", allow=allow) as dataset:
            return dataset.v.isel(t=0).load()

    def parquet(engine):
        with xr.open_dataset(str(tmp_path / "refs.parq"), engine=engine) as dataset:
            return dataset.v.isel(t=0).load()

    rivals = {"vstack": store, "our parquet": lambda: parquet("virtualstack")}
    if HAS_KERCHUNK:
        rivals["kerchunk"] = lambda: parquet("kerchunk")
    if HAS_ICECHUNK:
        write_icechunk(group["v"], tmp_path / "x.ice", tmp_path.as_uri() + "/", chunks=(1, 16))

        def icechunk():
            store = open_icechunk(tmp_path / "x.ice", tmp_path.as_uri() + "/")
            return xr.open_zarr(store, consolidated=False).v.isel(t=0).load()

        rivals["icechunk"] = icechunk
    best = interleaved(f"open {FILES * CHUNKS} references, isel(t=0).load()", rivals, repeats=7)
    for timing in best.values():
        np.testing.assert_array_equal(timing.result, np.arange(16 * CHUNKS, dtype="f4"))


class Sequence:
    """Pages of an uncompressed archive: chunks of one length behind each other in files of 10^5 chunks."""

    def __init__(self, n: int, first: int = 0) -> None:
        self.n, self.first = n, first

    def __reduce__(self):
        return type(self), (self.n, self.first)

    def read(self, page: int, /) -> ChunkManifest:
        rows = np.arange(page * 10**5, min((page + 1) * 10**5, self.n))
        entries = np.zeros(len(rows), ENTRY)
        entries["location"] = FIRST
        entries["offset"], entries["length"] = 4096 + (rows % 10**5) * 4000, 4000
        location = Location(f"s3://archive/of/uncompressed/files/{self.first + page:08d}.nc", 4096 + 10**5 * 4000)
        tables = sequence_tables()
        return ChunkManifest(entries=entries, fills=tables.fills, encodings=tables.encodings, locations=(location,))

    def complete(self, rows: ChunkManifest, numbers: np.ndarray, /) -> ChunkManifest:
        return rows


def sequence_tables() -> ChunkManifest:
    encoding = ChunkEncoding.c_order("<f4", (1, 1000))
    return ChunkManifest(entries=np.zeros(0, ENTRY), fills=(Fill.from_value(0, "f4"),), encodings=(encoding,))


def sequence(n: int, first: int = 0) -> ManifestArray:
    shape = (n // 1000, 1000)
    manifest = PagedManifest(
        source=Sequence(n, first), shape=shape, page_size=10**5, tables=sequence_tables(), url="memory://sequence"
    )
    axes = (ChunkAxis.regular(shape[0], 1), ChunkAxis.regular(1000 * 1000, 1000))
    return ManifestArray(
        manifest=manifest, grid=ChunkGrid(axes), dtype=np.dtype("f4"), name="v", dimension_names=("time", "x")
    )


def test_regular_references(tmp_path):
    """10^9 references of an uncompressed archive: bytes, memory, and opening."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    group = ManifestGroup(arrays={"v": sequence(REGULAR)})
    interleaved(
        f"write {REGULAR} regular references",
        {"vstack": lambda: save(group, tmp_path / "x.vstack", mode="w")},
        repeats=1,
    )
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    size = nbytes_of(tmp_path / "x.vstack")
    print(f"  {size / 1e6:.1f} MB, {size / REGULAR:.4f} bytes a reference; memory grew by {grown / 1024:.0f} MiB")
    best = interleaved("open them", {"vstack": lambda: read(tmp_path / "x.vstack")}, repeats=5)
    found = best["vstack"].result["v"].manifest.read((slice(7, 8), slice(3, 5)))
    assert found.entries["offset"].tolist() == [[4096 + 7003 * 4000, 4096 + 7004 * 4000]]


def test_batches(tmp_path):
    """10^8 references written in batches, each a snapshot: memory and time."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    save(ManifestGroup(arrays={"v": sequence(BATCH)}), tmp_path / "x.vstack")

    def append(i: int) -> None:
        joined = np.concatenate([read(tmp_path / "x.vstack")["v"], sequence(BATCH, i * 1000)])
        named = replace(joined, name="v", dimension_names=("time", "x"))
        save(ManifestGroup(arrays={"v": named}), tmp_path / "x.vstack", mode="w")

    batches = iter(range(1, BATCHES))
    interleaved(
        f"write {BATCHES * BATCH} references in batches of {BATCH}",
        {"vstack": lambda: [append(i) for i in batches]},
        repeats=1,
    )
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(f"  {nbytes_of(tmp_path / 'x.vstack') / 1e6:.1f} MB; memory grew by {grown / 1024:.0f} MiB")
    assert read(tmp_path / "x.vstack")["v"].shape == (BATCHES * BATCH // 1000, 10**6)
