"""Random netCDF files that pack one variable differently: joined virtually, they read as joined by xarray."""

import warnings

import netCDF4
import numpy as np
import pytest
import xarray as xr
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

import virtualstack as vs
from tests.amount import examples
from virtualstack.errors import ChunkDecodeError, CombineError

STEPS = ("days", "hours", "seconds")


@st.composite
def files(draw):
    """Draw how one file stores a variable along an unlimited dimension and another one."""
    is_classic = draw(st.booleans())
    dtype = draw(st.sampled_from(["i1", "i2", "i4", "f4", "f8"] + ([] if is_classic else ["u1", "u2", "i8", "u8"])))
    attributes, options = {}, {}
    if draw(st.booleans()):
        options["fill_value"] = draw(st.sampled_from([0, 7, 100]))
    if draw(st.integers(0, 2)) == 0:
        attributes["missing_value"] = np.dtype(dtype).type(draw(st.sampled_from([1, 7])))
    if draw(st.booleans()):
        number = draw(st.sampled_from([np.float32, np.float64]))
        attributes["scale_factor"] = number(draw(st.sampled_from([0.01, 0.5, -3])))
        if draw(st.booleans()):
            attributes["add_offset"] = number(draw(st.sampled_from([0.1, 10])))
    if dtype in ("i1", "i2", "i4") and draw(st.integers(0, 3)) == 0:
        attributes["_Unsigned"] = "true"
    if not is_classic:
        # of unsigned numbers of the other byte order xarray 2026.9 masks a fill value with its bytes swapped
        options["endian"] = draw(st.sampled_from(["native"] + ([] if "_Unsigned" in attributes else ["big"])))
        options["chunksizes"] = (draw(st.integers(1, 3)), draw(st.integers(1, 4)))
        options["zlib"] = draw(st.booleans())
    n = draw(st.integers(1, 4))
    return is_classic, dtype, attributes, options, draw(st.integers(0, n)), n, draw(st.integers(0, 2**32 - 1))


def write(path, spec, units):
    """Write numbers of 0 to 100, or dates of so many units; the last records may be left unwritten."""
    is_classic, dtype, attributes, options, n_written, n, seed = spec
    with netCDF4.Dataset(path, "w", format="NETCDF3_CLASSIC" if is_classic else "NETCDF4") as file:
        file.createDimension("t", None)
        file.createDimension("x", 4)
        variable = file.createVariable("v", np.dtype(dtype), ("t", "x"), **options)
        variable.set_auto_maskandscale(False)
        variable.setncatts(attributes | ({"units": units} if units else {}))
        if n_written:
            variable[:n_written] = np.random.default_rng(seed).integers(0, 101, (n_written, 4)).astype(dtype)
        file.createVariable("grow", "i1", ("t",))[:n] = 0
    return path


def opened(path):
    with xr.open_dataset(path, engine="netcdf4") as dataset:
        return dataset[["v"]].load()


def concat(datasets):
    return xr.concat(datasets, "t", data_vars="all", combine_attrs="drop")


@pytest.mark.filterwarnings("ignore")
@settings(max_examples=examples(100), deadline=None, suppress_health_check=list(HealthCheck))
@given(specs=st.lists(files(), min_size=1, max_size=3), times=st.booleans(), data=st.data())
def test_files_that_pack_differently_join_as_xarray_joins_them(tmp_path_factory, specs, times, data):
    """Bit by bit, or an error: of dates without a place in nanoseconds, and of dtypes that have none in common."""
    folder = tmp_path_factory.mktemp("packed")
    paths = []
    for i, spec in enumerate(specs):
        units = f"{data.draw(st.sampled_from(STEPS))} since {1990 + i}-01-01" if times else None
        paths.append(write(folder / f"{i}.nc", spec, units))
    try:
        expected = concat([opened(path) for path in paths])
    except (ValueError, TypeError, OverflowError):
        event("xarray does not decode or join them")
        return
    try:
        vds = concat([vs.open_virtual_dataset(path, unpack=True)[["v"]] for path in paths])
        found = vds.virtual.open().load()
    except (CombineError, ChunkDecodeError) as error:
        event(f"refused: {type(error).__name__}")
        assert times
        assert expected.v.dtype.kind in "OM"
        return
    event(f"joined to {found.v.dtype}")
    xr.testing.assert_identical(found, expected)
    assert found.v.dtype == expected.v.dtype
    assert found.v.dtype.kind == "O" or found.v.values.tobytes() == expected.v.values.tobytes()
    store = vs.ManifestStore(vds.virtual.to_group())
    if vds.v.dtype == expected.v.dtype:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            served = xr.open_zarr(store, consolidated=False, zarr_format=3).load()
        assert served.v.values.tobytes() == expected.v.values.tobytes()
