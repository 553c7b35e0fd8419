"""Series that kerchunk cannot take as they lie, rewritten in part and opened unchanged by kerchunk's own engine."""

import json
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import virtualstack as vs
from tests.amount import examples
from tests.data.netcdf4 import netcdf4_file
from tests.kerchunk.reading import ENGINE_WARNINGS, needs_engine
from virtualstack.errors import WriterError
from virtualstack.kerchunk.writer import write_kerchunk
from virtualstack.testing.strategies import basic_keys, known_arrays
from virtualstack.zarr.rewrite.rewrite import rewrite_limit

needs_engine()
pytestmark = ENGINE_WARNINGS

SHUFFLED = {"zlib": True, "shuffle": True, "complevel": 1}
SERIES = {
    "years in chunks of 30 days": [(365, {}), (366, {}), (365, {})],
    "a file without shuffle": [(60, {}), (60, {"shuffle": False}), (60, {}), (60, {})],
    "a file without compression": [(60, {}), (60, {"zlib": False}), (60, {})],
    "a file of another byte order": [(60, {}), (60, {"dtype": ">f8", "endian": "big"}), (60, {})],
    "a file in other chunks": [(60, {}), (60, {"chunksizes": (10, 4)}), (60, {})],
    "a file in narrower chunks": [(60, {}), (60, {"chunksizes": (30, 3)}), (60, {})],
    "a file of another dtype": [(60, {}), (60, {"dtype": "f4"}), (60, {})],
    "a step packed otherwise": [
        (60, {"dtype": "i2", "attrs": {"scale_factor": 0.5, "add_offset": 8.0}}),
        (1, {"dtype": "i2", "attrs": {"scale_factor": 0.25, "add_offset": 4.0}}),
        (60, {"dtype": "i2", "attrs": {"scale_factor": 0.5, "add_offset": 8.0}}),
    ],
    "another missing value": [
        (60, {"dtype": "i2", "attrs": {"_FillValue": -1}}),
        (30, {"dtype": "i2", "attrs": {"_FillValue": 3}}),
        (60, {"dtype": "i2", "attrs": {"_FillValue": -1}}),
    ],
}


def write(path, start, n, dtype="f8", attrs=None, **options):
    numbers = np.arange(4 * n).reshape(n, 4) % 50 * (2 if "scale_factor" in (attrs or {}) else 1)
    variables = {
        "time": ("f8", "time", np.arange(start, start + n), {"units": "days since 2000-01-01"}),
        "v": (dtype, "time x", numbers.astype(dtype), attrs or {}, {"chunksizes": (30, 4), **SHUFFLED, **options}),
    }
    netcdf4_file(path, {"time": None, "x": 4}, variables)


@pytest.fixture(params=SERIES, ids=lambda name: name.replace(" ", "_"))
def series(request, tmp_path):
    """Files, and the virtual dataset of all."""
    paths, start = [], 0
    for i, (n, options) in enumerate(SERIES[request.param]):
        paths.append(tmp_path / f"{i}.nc")
        write(paths[-1], start, n, **options)
        start += n
    return paths, xr.concat([vs.open_virtual_dataset(path, unpack=True) for path in paths], "time")


@pytest.fixture
def expected(series):
    """What xarray makes of the files; it names the first one as their source."""
    with xr.open_mfdataset(series[0], combine="nested", concat_dim="time", engine="h5netcdf") as opened:
        yield opened.load()


@pytest.mark.parametrize("suffix", ["dict", "json", "parq"])
def test_both_engines_read_what_xarray_reads_from_the_files(series, expected, suffix, tmp_path):
    """Values, dtypes and coordinates, with most chunks left where they are."""
    virtual = series[1]
    with pytest.raises(WriterError, match=r"'v' cannot be written .* [Aa]llow rewrite='[0-9.]+(%|B|MB)'"):
        virtual.virtual.to_kerchunk(inline_limit=0)
    target = None if suffix == "dict" else tmp_path / f"refs.{suffix}"
    references = virtual.virtual.to_kerchunk(target, inline_limit=0, rewrite="64 kiB")
    opened = references if target is None else str(target)
    for engine in ("kerchunk", "virtualstack"):
        with xr.open_dataset(opened, engine=engine) as got:
            assert got["v"].dtype == expected["v"].dtype
            np.testing.assert_array_equal(got["v"].values, expected["v"].values)
            xr.testing.assert_equal(got.coords.to_dataset().load(), expected.coords.to_dataset())
    if references is not None:
        chunks = [value for key, value in references["refs"].items() if key.startswith("v/") and "/." not in key]
        assert 0 < sum(isinstance(chunk, str) for chunk in chunks) < len(chunks)


def test_the_report_tells_the_budget(series):
    """And with it the references are written."""
    row = series[1].virtual.report().set_index("variable").loc["v"]
    assert "plain" not in row["form"]
    assert row["kerchunk"].startswith("inline: ")
    assert row["chunks"] > 0


@pytest.mark.parametrize("engine", ["kerchunk", "virtualstack"])
@pytest.mark.parametrize("format", ["NETCDF4", "NETCDF3_CLASSIC"])
def test_months_of_uncompressed_values_are_referenced_day_by_day(format, engine, tmp_path):
    """Each in one piece in its file; nothing is rewritten, and a slice needs nothing either."""
    paths = []
    for i, n in enumerate((31, 28, 31)):
        paths.append(tmp_path / f"{i}.nc")
        values = np.random.default_rng(i).random((n, 50, 60))
        made = xr.Dataset({"v": (("time", "y", "x"), values)}, coords={"time": np.arange(n) + 31.0 * i})
        made.to_netcdf(paths[-1], format=format, engine="netcdf4")
    virtual = xr.concat([vs.open_virtual_dataset(path) for path in paths], "time").isel(time=slice(3, None))
    assert virtual.virtual.report().set_index("variable").loc["v", "kerchunk"] == "as it is"
    references = virtual.virtual.to_kerchunk(inline_limit=0)
    chunks = [value for key, value in references["refs"].items() if key.startswith("v/") and "/." not in key]
    assert len(chunks) == 87
    assert all(isinstance(chunk, list) for chunk in chunks)
    with (
        xr.open_mfdataset(paths, engine="netcdf4") as expected,
        xr.open_dataset(references, engine=engine) as got,
    ):
        np.testing.assert_array_equal(got["v"].values, expected["v"].values[3:])


@settings(deadline=None, max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_engine_kerchunk_reads_any_join(data, tmp_path):
    """Random chunks, codecs, byte orders, holes and slices, in local files."""
    n_axes = data.draw(st.integers(1, 3))
    inner = tuple(data.draw(st.integers(1, 5)) for _ in range(n_axes - 1))
    dtype = data.draw(st.sampled_from(["<f4", "<i2", "|u1", "<f8"]))
    parts = [
        data.draw(known_arrays(shape=(data.draw(st.integers(1, 7)), *inner), dtype=dtype))
        for _ in range(data.draw(st.integers(1, 4)))
    ]
    array = np.concatenate([part.array for part in parts])
    values = np.concatenate([part.values for part in parts])
    key = data.draw(basic_keys(values.shape)) if data.draw(st.booleans()) else ()
    array, values = array[key], values[key]
    paths = {url: tmp_path / url.rsplit("/", 1)[-1] for part in parts for url in part.sources}
    for part in parts:
        for url, raw in part.sources.items():
            paths[url].write_bytes(raw)
    array = array.rename_locations(lambda url: f"file://{paths[url]}")
    array = replace(array, dimension_names=tuple(f"d{i}" for i in range(array.ndim)))
    group = vs.ManifestGroup(arrays={"v": array})
    budget = 10**9
    try:
        references = write_kerchunk(group, None, inline_limit=0, fill_budget=1 << 30, rewrite=budget)
    except WriterError as error:
        assert "would come from ABSENT chunks" in str(error)
        return
    with xr.open_dataset(references, engine="kerchunk", open_dataset_options={"mask_and_scale": False}) as got:
        assert got["v"].dtype == values.dtype
        np.testing.assert_array_equal(got["v"].values, values)


@pytest.mark.parametrize("wrong", ["many", "x%", "-1%", "nan%", "inf%", -0.5, 1.5, True, "5 furlongs"])
def test_a_budget_that_is_none_is_refused(wrong, tmp_path):
    """By name."""
    write(tmp_path / "a.nc", 0, 30)
    with pytest.raises(ValueError, match="rewrite="):
        vs.open_virtual_dataset(tmp_path / "a.nc").virtual.to_kerchunk(rewrite=wrong)


@pytest.mark.parametrize("budget", [np.int64(5000), np.float32(0.5), np.float64(0.5), 0.5])
def test_a_budget_may_be_a_number_of_numpy(budget):
    expected = 5000 if isinstance(budget, np.integer) else 400
    assert rewrite_limit(budget, 800) == expected


def test_nothing_is_written_where_the_budget_is_too_small(series, tmp_path):
    """The target is not there afterwards."""
    with pytest.raises(WriterError, match=r"more than the 9 allowed\. .*[Aa]llow rewrite='[0-9.]+(%|B|MB)'"):
        series[1].virtual.to_kerchunk(tmp_path / "refs.json", inline_limit=0, rewrite=9)
    assert not (tmp_path / "refs.json").exists()


@pytest.mark.parametrize(("fill", "message"), [(0, None), (None, "chunks without bytes must be written out")])
def test_a_chunk_of_more_bytes_than_there_are(fill, message, tmp_path):
    """The 64 MiB that chunks re-encoded have at most would be 2^36 of them."""
    folder = tmp_path / "a.zarr" / "v"
    folder.mkdir(parents=True)
    (folder.parent / ".zgroup").write_text('{"zarr_format": 2}')
    (folder / ".zattrs").write_text('{"_ARRAY_DIMENSIONS": ["x"]}')
    described = {"zarr_format": 2, "shape": [2**62], "chunks": [2**62], "dtype": "|i1", "order": "C", "filters": None}
    (folder / ".zarray").write_text(json.dumps({**described, "compressor": None, "fill_value": fill}))
    if message is not None:
        with pytest.raises(WriterError, match=message):
            vs.convert(folder.parent, tmp_path / "a.json")
        return
    vs.convert(folder.parent, tmp_path / "a.json")
    with xr.open_dataset(tmp_path / "a.json", engine="virtualstack") as made:
        assert made["v"].shape == (2**62,)
        assert made["v"][2**61 : 2**61 + 3].isnull().all()
