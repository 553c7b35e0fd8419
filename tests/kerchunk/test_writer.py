import gzip
import json
import os
from pathlib import Path

import numcodecs
import numpy as np
import pytest

from tests.data.arrays import array_of, referenced
from tests.data.watching import memory_below
from virtualstack.errors import SourceNotFoundError, StorageError, WriterError
from virtualstack.kerchunk.writer import write_kerchunk
from virtualstack.location import Location
from virtualstack.manifests import FIRST, ChunkEncoding, ChunkManifest, Fill, ManifestGroup
from virtualstack.storage import Storage


def group(n=3, url="file:///data/a.nc", name="v"):
    return ManifestGroup(arrays={name: referenced(np.arange(n) * 10, np.full(n, 4), (1,), "i4", location=url)})


def test_suffix_decides(tmp_path):
    """JSON is one file, parquet a directory, and no target a dict, all of the same references."""
    references = write_kerchunk(group(), None)
    assert write_kerchunk(group(), tmp_path / "refs.json") is None
    assert json.loads((tmp_path / "refs.json").read_bytes()) == references
    for suffix in ("parq", "parquet"):
        write_kerchunk(group(), tmp_path / f"refs.{suffix}")
        assert sorted(x.name for x in (tmp_path / f"refs.{suffix}").iterdir()) == [".zmetadata", "v"]
    assert sorted(x.name for x in tmp_path.iterdir()) == ["refs.json", "refs.parq", "refs.parquet"]


def test_json_is_compressed(tmp_path):
    """By its suffix; equal references give equal bytes."""
    write_kerchunk(group(), tmp_path / "refs.json")
    text = (tmp_path / "refs.json").read_bytes()
    for suffix, decode in ((".json.gz", gzip.decompress), (".json.zst", numcodecs.Zstd().decode)):
        written = []
        for _ in range(2):
            write_kerchunk(group(), tmp_path / f"refs{suffix}")
            written.append((tmp_path / f"refs{suffix}").read_bytes())
        assert written[0] == written[1]
        assert bytes(decode(written[0])) == text


def test_parquet_is_compact(tmp_path):
    """Offsets that repeat from file to file take a few bits, and such as have noise less than five bytes."""
    rng, n = np.random.default_rng(0), (100, 1000)
    for lengths, most in ((np.full(n, 40_000), 0.06), (rng.integers(40_000, 60_000, n), 4.8)):
        manifest = ChunkManifest.from_arrays(
            20_000 + lengths.cumsum(1) - lengths,
            lengths,
            location=[Location(f"s3://bucket/archive/precipitation/{i:08d}.nc") for i in range(n[0])],
            encoding=ChunkEncoding.c_order("i4", (1, 1)),
            fill=Fill.zero("i4"),
            location_codes=np.broadcast_to(np.arange(n[0])[:, None] + FIRST, n),
        )
        write_kerchunk(ManifestGroup(arrays={"v": array_of(manifest, (1, 1))}), tmp_path / "refs.parq")
        assert sum(x.stat().st_size for x in tmp_path.rglob("*.parq") if x.is_file()) / lengths.size < most


def test_other_suffixes_are_refused(tmp_path):
    """A name that does not say the form is refused with those that do."""
    with pytest.raises(WriterError, match=r"'.*refs' has no suffix of references. Use '.json'"):
        write_kerchunk(group(), tmp_path / "refs")


@pytest.mark.parametrize("suffix", ["json", "parq"])
def test_references_are_replaced_whole(tmp_path, suffix):
    """Writing again leaves nothing of what was there before, and no temporary file."""
    target = tmp_path / f"refs.{suffix}"
    write_kerchunk(group(name="old"), target)
    write_kerchunk(group(name="new"), target)
    assert [x.name for x in tmp_path.iterdir()] == [target.name]
    if suffix == "parq":
        assert sorted(x.name for x in target.iterdir()) == [".zmetadata", "new"]


def test_what_is_no_reference_set_is_not_replaced(tmp_path):
    """Directories of other things, and files in the place of a directory, stay."""
    (tmp_path / "a.parq").mkdir()
    (tmp_path / "a.parq" / "photo").write_bytes(b"precious")
    (tmp_path / "zarr.parq").mkdir()
    (tmp_path / "zarr.parq" / ".zmetadata").write_text('{"metadata":{},"zarr_consolidated_format":1}')
    (tmp_path / "table.parq").write_bytes(b"PAR1")
    (tmp_path / "b.json").mkdir()
    for name, what in (
        ("a.parq", "a directory that does not contain kerchunk references"),
        ("zarr.parq", "a directory that does not contain kerchunk references"),
        ("table.parq", "a file"),
        ("b.json", "a directory"),
    ):
        with pytest.raises(WriterError, match=f"{name}' is {what}, and is not overwritten"):
            write_kerchunk(group(), tmp_path / name)
    assert (tmp_path / "a.parq" / "photo").read_bytes() == b"precious"
    (tmp_path / "empty.parq").mkdir()
    write_kerchunk(group(), tmp_path / "empty.parq")


@pytest.mark.parametrize("failure", [OSError("no space"), KeyboardInterrupt("at once")])
def test_failure_leaves_the_old_references(tmp_path, monkeypatch, failure):
    """When the new directory cannot take its place, the old one stays, and nothing lies around."""
    target = tmp_path / "refs.parq"
    write_kerchunk(group(name="old"), target)
    rename = type(target).rename

    def fail(self, to):
        if to == target and "old" not in {x.name for x in self.iterdir()}:
            raise failure
        return rename(self, to)

    monkeypatch.setattr(type(target), "rename", fail)
    with pytest.raises((StorageError, KeyboardInterrupt), match=r"refs.parq' cannot be replaced: no space|at once"):
        write_kerchunk(group(name="new"), target)
    assert [x.name for x in tmp_path.iterdir()] == ["refs.parq"]
    assert (target / "old").is_dir()


def test_object_stores(tmp_path):
    """On a store without renames, files are put one by one and stale ones deleted."""
    url = f"memory://{tmp_path.name}/refs.parq"
    folder = Storage.from_option().target(f"memory://{tmp_path.name}/")
    write_kerchunk(group(name="old"), url)
    write_kerchunk(group(name="new"), url)
    assert folder.list() == ["refs.parq/.zmetadata", "refs.parq/new/refs.0.parq"]
    write_kerchunk(group(), f"memory://{tmp_path.name}/refs.json")
    assert json.loads(folder.get("refs.json"))["refs"]["v/0"] == ["file:///data/a.nc", 0, 4]
    folder.put("other.parq/photo", b"precious")
    with pytest.raises(WriterError, match=r"other.parq' is a folder that does not contain kerchunk references"):
        write_kerchunk(group(), f"memory://{tmp_path.name}/other.parq")
    with pytest.raises(SourceNotFoundError):
        folder.get("other.parq/.zmetadata")


@pytest.mark.parametrize(
    ("target", "url", "expected"),
    [
        ("memory://bucket/refs/a.json", "memory://bucket/data/x.nc", "../data/x.nc"),
        ("memory://bucket/refs/a.json", "memory://bucket/refs/x.nc", "x.nc"),
        ("memory://bucket/refs/a.json", "memory://other/x.nc", "memory://other/x.nc"),
        ("memory://bucket/refs/a.json", "s3://bucket/refs/x.nc", "s3://bucket/refs/x.nc"),
        ("memory://bucket/refs/a.json", "memory://bucket/refs//x.nc", "memory://bucket/refs//x.nc"),
        ("memory://bucket/a.json", "memory://bucket/x.nc", "x.nc"),
    ],
)
def test_relative_locations(target, url, expected):
    """Locations under the same root are relative to the folder of the references; others stay."""
    write_kerchunk(group(url=url), target, relative=True)
    root, _, name = target.rpartition("/")
    assert json.loads(Storage.from_option().target(root).get(name))["refs"]["v/0"][0] == expected


def test_relative_needs_a_target():
    """A dict has no folder."""
    with pytest.raises(ValueError, match="relative=True needs a target"):
        write_kerchunk(group(), None, relative=True)


def test_the_group_is_not_changed(tmp_path):
    """Writing changes neither attributes nor manifests."""
    source = group()
    before = source.arrays["v"].in_memory().entries.copy()
    write_kerchunk(source, tmp_path / "refs.parq")
    assert (source.arrays["v"].in_memory().entries == before).all()
    assert source.arrays["v"].attributes == {}


def test_json_is_written_in_pieces(tmp_path):
    """Memory does not grow with the text, also where it is packed by gzip: beside the manifest there is little."""
    n = 200_000
    array = referenced(np.arange(n) * 10, np.full(n, 10), (1,), "f4", fill=np.nan)
    for name in ("a.json", "a.json.gz"):
        with memory_below(3 * array.manifest.entries.nbytes):
            write_kerchunk(ManifestGroup(arrays={"v": array}), tmp_path / name)
    text = (tmp_path / "a.json").read_bytes()
    assert gzip.decompress((tmp_path / "a.json.gz").read_bytes()) == text
    refs = json.loads(text)["refs"]
    assert refs["v/199999"] == ["s3://bucket/a.nc", 1_999_990, 10]
    assert len(refs) == n + 4


@pytest.mark.parametrize("suffix", [".json", ".parq"])
@pytest.mark.parametrize("is_replaced", [False, True], ids=["new", "replaced"])
def test_references_outlive_a_loss_of_power(tmp_path, monkeypatch, suffix, is_replaced):
    """Files are synchronised before they get their names, and all folders with new names before the call returns."""
    path = tmp_path / f"refs{suffix}"
    if is_replaced:
        write_kerchunk(group(), path)
    synced, fsync = [], os.fsync

    def record(number):
        synced.append(Path(f"/proc/self/fd/{number}").readlink())
        fsync(number)

    def replaced(source, target):
        synced.append((Path(source), Path(target)))
        rename(source, target)

    rename = os.rename
    monkeypatch.setattr(os, "fsync", record)
    monkeypatch.setattr(os, "rename", replaced)
    monkeypatch.setattr(os, "replace", replaced)
    write_kerchunk(group(), path)
    named = next(n for n, each in enumerate(synced) if isinstance(each, tuple) and each[1] == path)
    made = synced[named][0]
    assert tmp_path in synced[named:]
    if suffix == ".json":
        assert made in synced[:named]
    else:
        folders = {made / each.relative_to(path) for each in path.rglob("*") if each.is_dir()}
        assert folders | {made} <= set(synced[:named])
