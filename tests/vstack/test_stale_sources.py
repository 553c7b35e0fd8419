"""Sources that change after a store refers to them, by all ways of reading it."""

import shutil
import warnings
import zlib

import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from tests.servers import RangeServer
from tests.vstack.archive import as_read, days, join, values_of, write_day
from virtualstack.errors import SourceChangedError
from virtualstack.storage import SourceChangedWarning, Storage


@pytest.fixture(params=["local", "http", "s3"])
def archive(request, tmp_path):
    """A store of four files; how it is reached, what may be read; and what writes the second file again."""
    paths = days(tmp_path / "data")
    url, options = str(tmp_path / "x.vstack"), {}
    match request.param:
        case "local":
            join(paths).virtual.to_vstack(url)
            yield url, options, lambda **changes: write_day(paths[1], 1, **changes)
        case "http":
            with RangeServer(tmp_path / "data") as server:
                join([server.url(path.name) for path in paths]).virtual.to_vstack(url)
                yield url, {"allow": server.root}, lambda **changes: write_day(paths[1], 1, **changes)
        case "s3":
            s3 = request.getfixturevalue("s3_server")
            options = {"storage": {"s3://bucket": s3.options}}

            def put(**changes):
                write_day(paths[1], 1, **changes)
                s3.put("stale/001.nc", paths[1].read_bytes())

            for path in paths:
                s3.put(f"stale/{path.name}", path.read_bytes())
            url = "s3://bucket/stale/x.vstack"
            urls = [f"s3://bucket/stale/{path.name}" for path in paths]
            join(urls, **options).virtual.to_vstack(url, mode="w", **options)
            yield url, options, put


def through_engine(url, options, stale):
    dataset = xr.open_dataset(url, engine="virtualstack", stale=stale, **options)
    return dataset["t"]


def through_accessor(url, options, stale):
    reader = vs.readers.VStack(allow=options.get("allow", ()))
    storage = Storage.from_option(options.get("storage"))
    vds = vs.open_virtual_dataset(url, reader=reader, storage=storage)
    return vds.virtual.open(storage=storage.with_stale(stale))["t"]


def through_zarr(url, options, stale):
    reader = vs.readers.VStack(allow=options.get("allow", ()))
    storage = Storage.from_option(options.get("storage"))
    vds = vs.open_virtual_dataset(url, reader=reader, storage=storage)
    store = vs.ManifestStore(vds.virtual.to_group(), storage=storage.with_stale(stale))
    return xr.open_zarr(store, consolidated=False, zarr_format=3, chunks=None)["t"]


READS = {"engine": through_engine, "accessor": through_accessor, "zarr": through_zarr}


@pytest.mark.parametrize("way", READS)
def test_a_changed_source_is_an_error_unless_told_otherwise(archive, way):
    """Of its chunks alone; with a warning, or without, they are read as they are now."""
    url, options, change = archive
    change(seed=1)  # of the same layout and size, mostly
    values = READS[way](url, options, "error")
    np.testing.assert_array_equal(values[:2].values, values_of(0))
    with pytest.raises(SourceChangedError, match=r"001\.nc' changed after it was indexed"):
        values[2].load()
    with pytest.raises(SourceChangedError):
        READS[way](url, options, "error").load()
    with pytest.warns(SourceChangedWarning, match=r"001\.nc' changed after it was indexed"):
        uncompressed(READS[way](url, options, "warn"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        uncompressed(READS[way](url, options, "ignore"))


def uncompressed(values):
    """Read from a changed source; its chunks may not be where they were, which is an error of its own."""
    try:
        values[2].load()
    except (vs.errors.StorageError, zlib.error) as error:  # zarr decodes the stored chunks of a ManifestStore itself
        assert not isinstance(error, SourceChangedError)


def test_a_policy_must_be_one(archive):
    """A typing error does not read what has changed."""
    url, options, _ = archive
    with pytest.raises(ValueError, match="stale='yes'; it must be 'error', 'warn', 'ignore' or None"):
        xr.open_dataset(url, engine="virtualstack", stale="yes", **options)


@pytest.mark.parametrize("way", READS)
def test_a_mirror_is_no_change(tmp_path, way):
    """Files that were copied, with other times, for a store that moved with them or was relocated."""
    paths = days(tmp_path / "here" / "data")
    expected = as_read(paths)["t"].values
    join(paths).virtual.to_vstack(tmp_path / "here" / "x.vstack", relative=True)
    join(paths).virtual.to_vstack(tmp_path / "here" / "y.vstack")
    shutil.copytree(tmp_path / "here", tmp_path / "there", copy_function=shutil.copyfile)
    vs.Repository.open(tmp_path / "there" / "y.vstack").relocate({tmp_path / "here/data": tmp_path / "there/data"})
    shutil.rmtree(tmp_path / "here")
    for name in ("x.vstack", "y.vstack"):
        url = str(tmp_path / "there" / name)
        np.testing.assert_array_equal(READS[way](url, {}, "error").values, expected)
    write_day(tmp_path / "there" / "data" / "001.nc", 1, chunks=(2, 6, 4))
    for name in ("x.vstack", "y.vstack"):
        with pytest.raises(SourceChangedError, match="bytes instead of"):
            READS[way](str(tmp_path / "there" / name), {}, "error").load()


def test_a_file_that_moves_to_another_bucket_keeps_its_etag(tmp_path, s3_server):
    """A changed copy is found out, of the same size too."""
    options = {"s3://bucket": s3_server.options}
    paths = days(tmp_path / "data", 2)
    for path in paths:
        s3_server.put(f"etag/a/{path.name}", path.read_bytes())
        s3_server.put(f"etag/b/{path.name}", path.read_bytes())
    urls = [f"s3://bucket/etag/a/{path.name}" for path in paths]
    join(urls, storage=options).virtual.to_vstack(tmp_path / "x.vstack")
    repository = vs.Repository.open(tmp_path / "x.vstack", storage=options)
    repository = repository.relocate({"s3://bucket/etag/a": "s3://bucket/etag/b"})
    found = xr.load_dataset(tmp_path / "x.vstack", engine="virtualstack", storage=options)
    xr.testing.assert_identical(found, as_read(paths))
    changed = bytearray(paths[0].read_bytes())
    changed[-1] ^= 1
    s3_server.put("etag/b/000.nc", bytes(changed))
    assert repository.verify().table["status"].tolist() == ["changed"]
    with pytest.raises(SourceChangedError, match="its ETag is"):
        xr.load_dataset(tmp_path / "x.vstack", engine="virtualstack", storage=options)
