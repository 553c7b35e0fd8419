"""Datasets and parsers of VirtualiZarr are taken, and the readers are its parsers: the values are those of xarray."""

import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from virtualstack.errors import CombineError, WriterError

virtualizarr = pytest.importorskip("virtualizarr")
from obspec_utils.registry import ObjectStoreRegistry  # noqa: E402
from obstore.store import LocalStore  # noqa: E402
from virtualizarr.parsers import HDFParser, NetCDF3Parser  # noqa: E402

from virtualstack.virtualizarr import Parser  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:.*Zarr format 3:UserWarning")


def make(path, day=0, **encoding):
    """Write two days with a packed, a compressed, a text and a scalar variable."""
    rng = np.random.default_rng(day)
    data = {
        "t": (("time", "x"), rng.integers(200, 300, (2, 6)) / 2.0, {"units": "K", "title": "ä"}),
        "n": (("time", "x"), rng.integers(0, 9, (2, 6)).astype("i4")),
        "text": ("x", np.array(list("abcdef"), object)),
        "height": ((), 2.0),
    }
    times = np.datetime64("2001-01-01", "ns") + np.timedelta64(day, "D") + np.arange(2) * np.timedelta64(12, "h")
    packing = {"dtype": "i2", "scale_factor": 0.5, "_FillValue": -1, "chunksizes": (1, 6), "zlib": True} | encoding
    made = xr.Dataset(data, {"time": times, "x": np.arange(6.0)}, {"title": "days"})
    made["t"][0, 3] = np.nan
    made["t"].encoding, made["n"].encoding = packing, {"zlib": True, "shuffle": True, "chunksizes": (2, 3)}
    made["time"].encoding = {"units": "days since 2000-01-01", "dtype": "f8"}
    made.to_netcdf(path, engine="netcdf4")
    return path


@pytest.fixture
def registry():
    return ObjectStoreRegistry({"file://": LocalStore()})


def opened(path, registry, parser=None, **options):
    """Open a file with VirtualiZarr."""
    return virtualizarr.open_virtual_dataset(f"file://{path}", registry, parser or HDFParser(), **options)


def wanted(*paths):
    with xr.open_mfdataset(
        paths, engine="netcdf4", chunks=None, data_vars="minimal", coords="minimal", compat="override"
    ) as made:
        return made.load()


def test_a_dataset_is_taken(tmp_path, registry):
    """By ``.virtual`` and its writers; nothing is read of what is virtual."""
    path = make(tmp_path / "a b.nc")
    vds = opened(path, registry, loadable_variables=[])
    assert not vds["t"].variable._in_memory or type(vds["t"].data).__module__.startswith("virtualizarr")
    xr.testing.assert_equal(vds.virtual.open().load(), wanted(path))
    assert vds.virtual.nrefs == vs.open_virtual_dataset(path, loadable_variables=[]).virtual.nrefs
    vds.virtual.to_vstack(tmp_path / "a.vstack")
    vds.virtual.to_icechunk(tmp_path / "a.icechunk")
    vds.virtual.to_kerchunk(tmp_path / "a.json")
    for name in ("a.vstack", "a.icechunk", "a.json"):
        with xr.open_dataset(tmp_path / name, engine="virtualstack", chunks=None) as made:
            xr.testing.assert_equal(made.load(), wanted(path))


def test_datasets_are_joined_whatever_opened_them(tmp_path, registry):
    """Also if they are packed differently, which arrays of VirtualiZarr cannot be."""
    paths = [make(tmp_path / "0.nc"), make(tmp_path / "1.nc", 1), make(tmp_path / "2.nc", 2, scale_factor=0.25)]
    theirs = [opened(path, registry) for path in paths]
    joined = xr.concat(theirs[:2], "time", data_vars="minimal", coords="minimal", compat="override")
    xr.testing.assert_equal(joined.virtual.open().load(), wanted(*paths[:2]))
    mixed = vs.combine_datasets([theirs[0], vs.open_virtual_dataset(paths[1]), theirs[2]])
    xr.testing.assert_equal(mixed.virtual.open().load(), wanted(*paths))
    with pytest.raises(CombineError):
        vs.combine_datasets([theirs[0], theirs[2]], unpack=False)


def test_chunks_that_are_not_stored(tmp_path, registry):
    """They read as the fill value, as in zarr."""
    path = tmp_path / "a.nc"
    with xr.open_dataset(make(path), engine="netcdf4") as made:
        made = made[["n"]].load()
    made["n"].encoding = {"chunksizes": (1, 6), "_FillValue": 7}
    made.to_netcdf(path, engine="netcdf4")
    vds = opened(path, registry)
    manifest = vds["n"].data.manifest
    manifest._paths[1, 0], manifest._lengths[1, 0], manifest._offsets[1, 0] = "", 0, 0
    got = vds.virtual.open()["n"]
    assert got[1].isnull().all()
    xr.testing.assert_equal(got[0].load(), wanted(path)["n"][0])


def test_a_parser_is_a_reader(tmp_path):
    """With groups, and joined with files that another reader opens."""
    path = make(tmp_path / "a.nc")
    reader = vs.readers.VirtualiZarr(parser=HDFParser())
    xr.testing.assert_equal(vs.open_virtual_dataset(path, reader=reader).virtual.open().load(), wanted(path))
    wanted(path)[["n"]].to_netcdf(tmp_path / "three.nc", engine="scipy", format="NETCDF3_64BIT")
    three = vs.open_virtual_dataset(tmp_path / "three.nc", reader=vs.readers.VirtualiZarr(parser=NetCDF3Parser()))
    xr.testing.assert_equal(three["n"].to_dataset().virtual.open().load(), wanted(path)[["n"]])
    wanted(path).to_netcdf(path, engine="netcdf4", group="deep/inner", mode="a")
    tree = vs.open_virtual_datatree(path, reader=reader)
    xr.testing.assert_equal(tree["deep/inner"].to_dataset().virtual.open().load(), wanted(path))


@pytest.mark.parametrize("loadable", [None, []])
def test_the_readers_are_a_parser(tmp_path, registry, loadable):
    """Their dataset has the values, and the same references as that of VirtualiZarr's own parser."""
    path = make(tmp_path / "a b.nc")
    got, own = (opened(path, registry, x, loadable_variables=loadable) for x in (Parser(), HDFParser()))
    assert got.data_vars.keys() == own.data_vars.keys()
    for name in ("t", "n"):
        assert got[name].data.metadata.to_dict() == own[name].data.metadata.to_dict()
        assert got[name].data.manifest.dict() == own[name].data.manifest.dict()
    store = Parser()(f"file://{path}", registry)
    with xr.open_zarr(store, consolidated=False, zarr_format=3, chunks=None) as made:
        xr.testing.assert_equal(made.load(), wanted(path))


def test_a_format_that_virtualizarr_does_not_read(tmp_path, registry):
    """GRIB: zarr decodes the messages with the codec that virtualstack registers."""
    file = vs.sample.forecasts(tmp_path)[0]
    with xr.open_dataset(file, engine="cfgrib", decode_timedelta=True) as made:
        expected = made.load()
    with xr.open_zarr(Parser()(f"file://{file}", registry), consolidated=False, zarr_format=3, chunks=None) as made:
        for name in expected.data_vars:
            np.testing.assert_array_equal(made[name].values, expected[name].values)


def test_what_zarr_cannot_express_is_named(tmp_path, registry):
    """Chunks that are packed differently; the parser keeps values of small variables instead."""
    paths = [make(tmp_path / "0.nc"), make(tmp_path / "1.nc", 1, scale_factor=0.25)]
    vs.open_virtual_mfdataset(paths).virtual.to_vstack(tmp_path / "a.vstack")
    with pytest.raises(WriterError, match="'t'"):
        Parser(inline_limit=0)(f"file://{tmp_path}/a.vstack", registry)
    store = Parser()(f"file://{tmp_path}/a.vstack", registry)
    with xr.open_zarr(store, consolidated=False, zarr_format=3, chunks=None) as made:
        xr.testing.assert_equal(made.load(), wanted(*paths))
