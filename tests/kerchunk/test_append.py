"""``to_kerchunk(..., append_dim=)``: equal to what is built at once, or refused before anything is written."""

from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from tests.data.stores import load
from tests.vstack.growing import dataset, joined, virtual, write
from virtualstack.errors import CombineError, SourceNotFoundError, UnsupportedFeatureError, WriterError

pytestmark = pytest.mark.filterwarnings("ignore:The 'fastparquet' engine")
FORMS = ["refs.json", "refs.parq"]


def files(folder):
    return {
        str(x.relative_to(folder)): (x.stat().st_ino, x.read_bytes()) for x in Path(folder).rglob("*") if x.is_file()
    }


@pytest.fixture(params=FORMS)
def target(request, tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    return str(folder / request.param)


def days(folder, n):
    """Write files of four days each."""
    return [write(folder / f"{i}.nc", dataset(range(4 * i, 4 * i + 4), seed=i)) for i in range(n)]


def grown(target, paths):
    """Write references to the first file, append the others, and return what xarray makes of all."""
    for i, path in enumerate(paths):
        virtual(path).virtual.to_kerchunk(target, append_dim="time" if i else None)
    return joined(*map(xr.load_dataset, paths))


def check(target, wanted):
    """Compare values, coordinates and attributes, by this engine and by kerchunk's."""
    for options in ({}, {"reader": "kerchunk"}):
        xr.testing.assert_identical(load(target, **options), wanted)
    pytest.importorskip("kerchunk")
    other = xr.open_dataset(target, engine="kerchunk").load()
    for name in wanted.variables:
        np.testing.assert_array_equal(other[name], wanted[name])


def test_files_are_appended(tmp_path, target):
    """One after the other; the references are those of all at once."""
    parts, plain = [], []
    for i in range(4):
        path = write(tmp_path / f"{i}.nc", dataset(range(4 * i, 4 * i + 4), seed=i))
        parts.append(virtual(path))
        plain.append(xr.load_dataset(path))
        parts[-1].virtual.to_kerchunk(target, **({"append_dim": "time"} if i else {}))
        check(target, plain[0] if not i else joined(*plain))
    once = str(Path(target).with_name("once" + Path(target).name))
    joined(*parts).virtual.to_kerchunk(once)
    for path, group in vs.open_virtual_dataset(target).virtual.to_group().walk():
        other = dict(vs.open_virtual_dataset(once).virtual.to_group().walk())[path]
        for name, array in group.arrays.items():
            assert (array == other.arrays[name]).all(), name


def test_compressed_references(tmp_path):
    """They are written anew, compressed."""
    target = tmp_path / "refs.json.zst"
    wanted = grown(target, days(tmp_path, 2))
    assert target.read_bytes()[:4] == b"\x28\xb5\x2f\xfd"
    xr.testing.assert_identical(load(str(target)), wanted)


def test_uneven_lengths_are_refused_before_anything_is_written(tmp_path, target):
    """A chunk that is not full would stand in the middle; encoding it anew is allowed for, where it is asked for."""
    virtual(write(tmp_path / "0.nc", dataset(range(5)))).virtual.to_kerchunk(target)
    part = virtual(write(tmp_path / "1.nc", dataset(range(5, 9), seed=1)))
    before = files(tmp_path / "out")
    with pytest.raises(WriterError, match="cannot be written as kerchunk references"):
        part.virtual.to_kerchunk(target, append_dim="time", inline_limit=0)
    assert files(tmp_path / "out") == before
    part.virtual.to_kerchunk(target, append_dim="time", rewrite=1.0)
    check(target, joined(*(xr.load_dataset(tmp_path / f"{i}.nc") for i in range(2))))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: x.drop_vars("rain"), "rain"),
        (lambda x: x.assign(mask=x.mask + 1), "mask"),
        (lambda x: x.assign_coords(lat=x.lat + 1), "lat"),
        (lambda x: x.isel(time=slice(None, None, -1)), "do not ascend"),
        (lambda x: x.assign_coords(time=x.time - np.timedelta64(99, "D")), "start at"),
        (lambda x: x.assign(more=x.mask), "more"),
        (lambda x: x.isel(time=0, drop=True), "has no dimension 'time'"),
        (lambda x: x.rename(time="when"), "when|time"),
    ],
)
def test_references_that_do_not_fit_are_refused(tmp_path, target, change, message):
    """The target stays as it was."""
    virtual(write(tmp_path / "0.nc", dataset(range(4)))).virtual.to_kerchunk(target)
    before = files(tmp_path / "out")
    other = change(dataset(range(4, 8), seed=1))
    if "rain" in other:
        other["rain"].encoding = {**other["rain"].encoding, "dtype": "i2"}
    part = virtual(write(tmp_path / "1.nc", other))
    with pytest.raises(CombineError, match=message):
        part.virtual.to_kerchunk(target, append_dim="time")
    assert files(tmp_path / "out") == before


def test_other_packing_is_unpacked(tmp_path, target):
    """As when all files are opened together; numbers are encoded anew within what is allowed."""
    virtual(write(tmp_path / "0.nc", dataset(range(4)))).virtual.to_kerchunk(target)
    other = dataset(range(4, 8), seed=1)
    other["rain"].encoding = {"scale_factor": 0.25, "_FillValue": -1, "dtype": "i2"}
    virtual(write(tmp_path / "1.nc", other)).virtual.to_kerchunk(target, append_dim="time", rewrite=1.0)
    check(target, joined(*(xr.load_dataset(tmp_path / f"{i}.nc") for i in range(2))))


def test_a_scene_with_a_scalar_time_is_appended(tmp_path, target):
    """The time becomes the dimension of what has it in the references."""
    virtual(write(tmp_path / "0.nc", dataset(range(2)))).virtual.to_kerchunk(target)
    made = dataset([2], seed=1)
    part = virtual(write(tmp_path / "1.nc", made.isel(time=0)))
    part.virtual.to_kerchunk(target, append_dim="time", rewrite=1.0)
    wanted = [xr.load_dataset(path) for path in (tmp_path / "0.nc", write(tmp_path / "2.nc", made))]
    check(target, joined(*wanted))


def test_record_files_stay(tmp_path):
    """Those of chunks in front of what is added are the same files."""
    target = str(tmp_path / "out" / "refs.parq")
    (tmp_path / "out").mkdir()
    virtual(write(tmp_path / "0.nc", dataset(range(6)))).virtual.to_kerchunk(target, record_size=5)
    before = files(target)
    later = virtual(write(tmp_path / "1.nc", dataset(range(6, 10), seed=1)))
    later.virtual.to_kerchunk(target, append_dim="time", record_size=5)
    after = files(target)
    n_chunks = 3 * 2 * 2
    for record in range(n_chunks // 5):
        assert after[f"t/refs.{record}.parq"] == before[f"t/refs.{record}.parq"]
    assert after["mask/refs.0.parq"] == before["mask/refs.0.parq"]
    assert after[f"t/refs.{n_chunks // 5}.parq"] != before[f"t/refs.{n_chunks // 5}.parq"]


def test_trees(tmp_path, target):
    """Each group."""
    paths = days(tmp_path, 2)
    trees = [xr.DataTree.from_dict({"/a": virtual(path), "/b/c": virtual(path)}) for path in paths]
    trees[0].virtual.to_kerchunk(target)
    trees[1].virtual.to_kerchunk(target, append_dim="time")
    wanted = joined(*map(xr.load_dataset, paths))
    tree = xr.open_datatree(target, engine="virtualstack")
    for path in ("/a", "/b/c"):
        xr.testing.assert_identical(tree[path].to_dataset().load(), wanted)


def test_remote_references(tmp_path):
    """Files that stay are not put again."""
    url = "memory://appended/refs.parq"
    wanted = grown(url, days(tmp_path, 3))
    xr.testing.assert_identical(load(url), wanted)


def test_a_variable_is_no_group(tmp_path, target):
    part = virtual(write(tmp_path / "0.nc", dataset(range(4))))
    part.virtual.to_kerchunk(target)
    with pytest.raises(WriterError, match="no group"):
        part.virtual.to_kerchunk(target, group=next(iter(part.data_vars)), append_dim="time")


def test_options(tmp_path, target):
    """Those that add nothing, and references that are not there or would lose something."""
    part = virtual(write(tmp_path / "0.nc", dataset(range(4))))
    with pytest.raises(ValueError, match="require append_dim="):
        part.virtual.to_kerchunk(target, join="left")
    with pytest.raises(WriterError, match="no target was given"):
        part.virtual.to_kerchunk(append_dim="time")
    with pytest.raises(SourceNotFoundError):
        part.virtual.to_kerchunk(target, append_dim="time")
    part.virtual.to_kerchunk(target)
    if target.endswith(".json"):
        text = Path(target).read_text()
        Path(target).write_text(
            text.replace(
                '"refs":{',
                '"refs":{"odd/.zarray":"{\\"zarr_format\\":2,\\"shape\\":[1],'
                '\\"chunks\\":[1],\\"dtype\\":\\"|O\\",\\"fill_value\\":null,\\"compressor\\":null,\\"filters\\":null,\\"order\\":\\"C\\"}",',
            )
        )
        more = virtual(write(tmp_path / "1.nc", dataset(range(4, 8), seed=1)))
        with pytest.raises(UnsupportedFeatureError, match="odd', which cannot be written again"):
            more.virtual.to_kerchunk(target, append_dim="time")


@pytest.mark.filterwarnings("ignore:.*Zarr format 3", "ignore:.*in the Zarr version 3 spec")
def test_metadata_of_zarr_3(tmp_path):
    """Trees are appended in it, VirtualiZarr reads it, and parquet, which cannot hold it, is left as it was."""
    paths, target = days(tmp_path, 2), str(tmp_path / "refs.json")
    for i, path in enumerate(paths):
        tree = xr.DataTree.from_dict({"/a": virtual(path), "/b/c": virtual(path)})
        tree.virtual.to_kerchunk(target, zarr_format=3, append_dim="time" if i else None)
    wanted = joined(*map(xr.load_dataset, paths))
    found = xr.open_datatree(target, engine="virtualstack")
    for path in ("/a", "/b/c"):
        xr.testing.assert_identical(found[path].to_dataset().load(), wanted)
    with pytest.raises(WriterError, match="parquet"):
        virtual(paths[0]).virtual.to_kerchunk(tmp_path / "refs.parq", zarr_format=3)
    assert not (tmp_path / "refs.parq").exists()
    parsers = pytest.importorskip("virtualizarr.parsers")
    own = virtual(paths[0])
    reader = vs.readers.VirtualiZarr(parser=parsers.KerchunkJSONParser(group="/b/c"))
    theirs = vs.open_virtual_dataset(target, reader=reader).virtual.open()
    for name in (x for x in own.data_vars if "time" in own[x].dims):
        np.testing.assert_array_equal(theirs[name].isel(time=slice(0, 4)), xr.load_dataset(paths[0])[name])


def test_a_record_size_is_chosen(tmp_path):
    """As many references as said are in each file, for every reader; none is refused."""
    (path,), target = days(tmp_path, 1), tmp_path / "refs.parq"
    virtual(path).virtual.to_kerchunk(target, record_size=3)
    assert max(len(list(x.glob("refs.*.parq"))) for x in target.iterdir() if x.is_dir()) > 1
    check(str(target), xr.load_dataset(path))
    with pytest.raises(ValueError, match="record_size"):
        virtual(path).virtual.to_kerchunk(target, record_size=0)
