"""Random netCDF-4 files through the whole path: what comes out is what netCDF4 reads."""

import json

import netCDF4
import numpy as np
import pytest
import xarray as xr
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

import virtualstack as vs
from tests.amount import examples
from tests.data.netcdf4 import opened
from virtualstack.errors import WriterError

DTYPES = ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8", "S1", str)
SIZES = {"t": None, "x": 5, "y": 3, "z": 1}


@st.composite
def variables(draw, name):
    """Draw how one variable is made: a dict of what createVariable takes, and which parts of it are written."""
    # Unlimited first: netCDF-C 4.9 mixes values up where a variable has fewer records along a later unlimited axis.
    dims = tuple(sorted(draw(st.lists(st.sampled_from("txyz"), unique=True, max_size=3)), key=lambda d: d != "t"))
    dtype = draw(st.sampled_from(DTYPES))
    options = {}
    is_number = dtype not in ("S1", str)
    if dims and dtype is not str:
        if draw(st.booleans()):
            options["zlib"] = True
            options["shuffle"] = draw(st.booleans())
        options["fletcher32"] = draw(st.booleans())
        if draw(st.booleans()):
            options["chunksizes"] = tuple(draw(st.integers(1, SIZES[d] or 4)) for d in dims)
        elif "t" not in dims and not options.get("zlib") and not options["fletcher32"]:
            options["contiguous"] = draw(st.booleans())
    if is_number:
        options["fill_value"] = draw(st.sampled_from([None, 7, False]))
        options["endian"] = draw(st.sampled_from(["native", "big", "little"]))
    attributes = {}
    if is_number and draw(st.booleans()):
        attributes["scale_factor"] = draw(st.sampled_from([0.5, 2.0]))
        attributes["add_offset"] = draw(st.sampled_from([0.0, 10.0]))
    if is_number and draw(st.booleans()):
        attributes["units"] = draw(st.sampled_from(["K", "days since 2000-01-01", "hours"]))
    is_written = "whole" if options.get("fill_value") is False else draw(st.sampled_from(["whole", "part", "no"]))
    return name, dims, dtype, options, attributes, is_written, draw(st.integers(0, 2**32 - 1))


@st.composite
def files(draw):
    """Draw a few variables and the number of records."""
    return [draw(variables(f"v{i}")) for i in range(draw(st.integers(1, 4)))], draw(st.integers(0, 6))


def write(path, spec):
    made, n_records = spec
    with netCDF4.Dataset(path, "w") as file:
        for dim, size in SIZES.items():
            file.createDimension(dim, size)
        for name, dims, dtype, options, attributes, is_written, seed in made:
            rng = np.random.default_rng(seed)
            variable = file.createVariable(name, dtype, dims, **options)
            variable.set_auto_maskandscale(False)
            variable.setncatts(attributes)
            shape = tuple(n_records if d == "t" else SIZES[d] for d in dims)
            values = rng.integers(0, 100, shape)
            values = (
                values.astype(str).astype(object) if dtype is str else values.astype("S1" if dtype == "S1" else dtype)
            )
            if is_written == "whole" and values.size:
                variable[...] = values if shape else values[()]
            elif is_written == "part" and values.size and shape:
                box = tuple(slice(0, -(-n // 2)) for n in shape)
                variable[box] = values[box]
    return path


RAW = {"mask_and_scale": False, "decode_times": False, "concat_characters": False}


@pytest.mark.filterwarnings("ignore")
@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(spec=files(), name=st.sampled_from(["refs.json", "refs.parq"]))
def test_any_file_reads_as_netcdf4_reads_it(tmp_path_factory, spec, name):
    """Raw and decoded, from the virtual dataset, from written references, and through a zarr store."""
    folder = tmp_path_factory.mktemp("random")
    path = write(folder / "a.nc", spec)
    try:
        expected = opened(path)
    except (ValueError, OverflowError):  # xarray cannot decode times that were never written
        reject()
    vds = vs.open_virtual_dataset(path)
    xr.testing.assert_identical(xr.open_dataset(path, engine="virtualstack", **RAW).load(), opened(path, **RAW))
    xr.testing.assert_identical(vds.virtual.open().load(), expected)
    store = vs.ManifestStore(vs.scan([path])[0])
    served = xr.open_zarr(store, consolidated=False, zarr_format=3, decode_times=False, mask_and_scale=False).load()
    for variable in served.variables:
        np.testing.assert_array_equal(
            served[variable].values, opened(path, **RAW | {"concat_characters": True})[variable].values
        )
    try:
        vds.virtual.to_kerchunk(folder / name)
    except WriterError as error:  # records that were never filled end in the middle of a chunk
        if error.feature == "letters":
            assert any(variable.dtype == "S1" and variable.ndim for variable in expected.variables.values())
            return
        assert "chunk lengths" in str(error)
        assert any(variable[3].get("fill_value") is False for variable in spec[0])
        return
    xr.testing.assert_identical(xr.open_dataset(folder / name, engine="virtualstack").load(), expected)
    xr.testing.assert_equal(xr.open_dataset(str(folder / name), engine="kerchunk").load(), expected)
    if name == "refs.json":
        json.loads((folder / name).read_bytes())
