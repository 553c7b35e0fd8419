import warnings

import netCDF4
import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from tests.data import make_netcdf3
from tests.data.files import file_of
from tests.data.make_netcdf3 import RawVariable, encode, make, numbered, raw
from tests.formats.groups import STORAGE, group_of, values_of
from tests.formats.netcdf3.comparison import compare_with_netcdf4, netcdf4_values
from virtualstack.location import absolute_url
from virtualstack.manifests.plain import why_not_plain
from virtualstack.readers import NetCDF3, ReadOptions, find_reader
from virtualstack.testing.readers import ReaderTests, difference, record_reads

FILES = sorted(make_netcdf3.BUILDERS)
KINDS = [name for name in FILES if name.count("_") < 4]  # without one_record_variable_5_i2 and its like
RAW = {"mask_and_scale": False, "decode_times": False, "concat_characters": False}
VERSIONS = tuple(make_netcdf3.FORMATS)
pytestmark = pytest.mark.filterwarnings("ignore::xarray.SerializationWarning")


def opened(path, engine="netcdf4", **options):
    with xr.open_dataset(path, engine=engine, **options) as dataset:
        return dataset.load()


class TestNetCDF3(ReaderTests):
    reader = NetCDF3()

    def files(self, folder):
        for version in VERSIONS:
            path = folder / f"gap{version}.nc"
            path.write_bytes(raw(version, 40, gap=1 << 16))
            yield path

    def expected(self, path):
        return netcdf4_values(path)


@pytest.mark.parametrize("name", FILES)
def test_files_are_as_netcdf4_shows_them(name, tmp_path):
    """The whole model of the file, for every version of the format."""
    path = make(name, tmp_path)
    group = group_of(path, NetCDF3())
    compare_with_netcdf4(path, group)
    assert not group.refusals


@pytest.mark.parametrize("name", KINDS)
def test_decoded_datasets_are_those_of_xarray(name, tmp_path):
    """With both of xarray's engines, where they open the file, decoded and raw; what grows is the same."""
    path = make(name, tmp_path)
    expected = opened(path)
    vds = vs.open_virtual_dataset(path)
    assert vds.encoding["unlimited_dims"] >= expected.encoding["unlimited_dims"]
    xr.testing.assert_identical(vds.virtual.open().load(), expected)
    xr.testing.assert_identical(xr.open_dataset(path, engine="virtualstack", **RAW).load(), opened(path, **RAW))
    loaded = {name for name, variable in expected.variables.items() if variable.dims == (name,)}
    for variable in loaded:
        xr.testing.assert_identical(vds[variable].variable.load(), expected[variable].variable)


@pytest.mark.parametrize("name", [name for name in KINDS if not name.startswith("names") and "_5" not in name])
def test_decoded_values_are_those_of_scipy(name, tmp_path):
    """A second library that reads CDF-1 and CDF-2, but no names that are not ASCII."""
    pytest.importorskip("scipy", reason="scipy is not installed: pip install scipy")
    path = make(name, tmp_path)
    xr.testing.assert_equal(vs.open_virtual_dataset(path).virtual.open().load(), opened(path, engine="scipy"))


@pytest.mark.parametrize("name", KINDS)
def test_raw_values_through_zarr(name, tmp_path):
    """Any zarr tool reads the values that netCDF4 reads without masking and scaling."""
    path = make(name, tmp_path)
    import zarr

    root = zarr.open_group(vs.ManifestStore(vs.scan([path])[0]), mode="r")
    for variable, expected in netcdf4_values(path).items():
        assert not difference(expected, np.asarray(root[variable][...])), variable


@pytest.mark.parametrize("suffix", ["json", "parq"])
@pytest.mark.parametrize("name", KINDS)
def test_references_decode_to_the_same(name, suffix, tmp_path):
    """Written as kerchunk references, opened by our engine and by xarray's."""
    path = make(name, tmp_path)
    refs = tmp_path / f"refs.{suffix}"
    vs.open_virtual_dataset(path).virtual.to_kerchunk(refs)
    expected = opened(path)
    found = xr.open_dataset(refs, engine="virtualstack").load()
    xr.testing.assert_equal(found, expected)
    assert {k: v.dtype for k, v in found.variables.items()} == {k: v.dtype for k, v in expected.variables.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        xr.testing.assert_equal(xr.open_dataset(str(refs), engine="kerchunk").load(), expected)


def test_it_is_found_by_its_first_bytes(tmp_path):
    """Whatever the suffix, and by its name."""
    for version in VERSIONS:
        path = tmp_path / f"data{version}.bin"
        path.write_bytes(raw(version))
        assert find_reader(path, STORAGE) == NetCDF3()
    assert find_reader(path, STORAGE, "netcdf3") == NetCDF3()


# -- chunks ---------------------------------------------------------------------------------------------------


def as_chunks(array):
    return array.in_memory().entries["length"], array.grid.shape


def test_one_contiguous_variable_is_one_chunk_up_to_16_mib(tmp_path):
    """And each record of each of several record variables is one."""
    group = group_of(make("large_1", tmp_path), NetCDF3())
    assert {name: array.grid.shape for name, array in group.arrays.items()} == {
        "even": (1, 1),
        "odd": (1, 1),
        "deep": (1, 1, 1),
        "record": (3, 1, 1),
        "other": (3,),
    }


@pytest.mark.parametrize("chunk_size", [1, 7, 100, 999, "3 KiB", 10_000, "1 MiB", "auto", None])
def test_chunks_of_any_size_hold_the_values(chunk_size, tmp_path):
    """Each is one range of at most so many bytes; those of a variable tile it."""
    path, reader = make("large_2", tmp_path), NetCDF3(chunk_size=chunk_size)
    if chunk_size in (1, 7):
        path = make("usual_2", tmp_path)
    compare_with_netcdf4(path, group_of(path, reader))
    if isinstance(chunk_size, int):
        for array in group_of(path, reader).arrays.values():
            lengths, _ = as_chunks(array)
            assert lengths.max() <= max(chunk_size, array.dtype.itemsize)
            assert lengths.sum() == array.nbytes


def test_lengths_that_divide_the_axis_are_preferred(tmp_path):
    """Chunks are whole rows, and stored alike, so that they can be written as references."""
    group = group_of(make("large_1", tmp_path), NetCDF3(chunk_size=10_000))
    assert group.arrays["even"].grid.axes[0].chunk == 45  # 50 rows of 200 bytes would fit; 45 divide 360
    assert group.arrays["deep"].grid.shape == (101, 2, 1)  # a row of 18,000 bytes is more than a chunk
    assert group.arrays["record"].grid.shape == (3, 15, 1)
    for name in ("even", "deep", "record"):
        assert why_not_plain(group.arrays[name]) is None


def test_a_last_chunk_that_is_shorter_has_its_own_encoding(tmp_path):
    """Where no length divides the axis: exact in bytes, nothing behind it is read."""
    array = group_of(make("large_1", tmp_path), NetCDF3(chunk_size=10_000)).arrays["odd"]
    manifest = array.in_memory()
    assert [x.shape for x in manifest.encodings] == [(100, 50), (1, 50)]
    assert manifest.entries["length"].ravel().tolist() == [10_000, 100]
    assert "2 encodings" in why_not_plain(array)


@pytest.mark.parametrize(
    ("n", "chunks"),
    [(8_388_608 + 1, 2_796_203), (8_388_617, 8_388_617), (16_777_216, 4_194_304), (12_582_912, 4_194_304)],
)
def test_automatic_chunks_can_always_be_written_as_references(n, chunks, tmp_path):
    """More than 16 MiB of float32 are cut into equal chunks, or not at all where the length is a prime."""
    data = encode(2, {"x": n}, [RawVariable(name="v", dims=(0,), values=np.zeros(n, ">f4"))])
    array = group_of(file_of(tmp_path / "a.nc", data), NetCDF3()).arrays["v"]
    assert array.grid.axes[0].chunk == chunks
    assert why_not_plain(array) is None


@pytest.mark.parametrize("dtype", ["i1", "S1", "i2", "u1", "f8"])
def test_records_of_the_only_record_variable_are_chunks_together(dtype, tmp_path):
    """They follow each other without padding: all is contiguous, and cut as a fixed variable is."""
    path = make(f"one_record_variable_5_{dtype}", tmp_path)
    assert group_of(path, NetCDF3()).arrays["v"].grid.shape == (1, 1)
    array = group_of(path, NetCDF3(chunk_size=15 * np.dtype(dtype).itemsize)).arrays["v"]
    assert array.grid.shape == (3, 1)
    assert not difference(netcdf4_values(path)["/v"], values_of(array))


def test_a_million_records_are_made_by_numpy(tmp_path):
    """No Python for each record: the entries are two sequences of equal steps."""
    n = 1_000_000
    header = raw(2, 0)
    path = tmp_path / "sparse.nc"
    path.write_bytes(header[:4] + n.to_bytes(4) + header[8:])
    with path.open("r+b") as file:
        file.truncate(len(header) + n * 12)
    group = group_of(path, NetCDF3())
    for name, length, begin in (("a", 6, 0), ("b", 3, 8)):
        entries = group.arrays[name].in_memory().entries.ravel()
        assert entries["length"].tolist() == [length] * n
        np.testing.assert_array_equal(entries["offset"], len(header) + begin + 12 * np.arange(n))


@pytest.mark.parametrize(
    ("chunk_size", "message"),
    [(0, "chunk_size=0 is less than one byte"), (-1, "chunk_size=-1 is negative"), ("big", "chunk_size='big' is no")],
)
def test_sizes_of_chunks_are_checked(chunk_size, message):
    """When the reader is made."""
    with pytest.raises(ValueError, match=message):
        NetCDF3(chunk_size=chunk_size)


# -- records --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("n_records", [1, 4])
def test_the_last_record_may_lack_its_padding(version, n_records, tmp_path):
    """The reference ends with the value, and so may the file."""
    data = raw(version, n_records, pads_end=False)
    path = file_of(tmp_path / "a.nc", data)
    group = group_of(path, NetCDF3())
    compare_with_netcdf4(path, group)
    last = group.arrays["b"].in_memory().entries[-1, 0]
    assert last["offset"] + last["length"] == len(data)
    path.write_bytes(data[:-1])
    with pytest.raises(vs.errors.MalformedFileError, match=rf"'b' has values up to offset {len(data)}"):
        group_of(path, NetCDF3())


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("behind", [0, 5, 10])
def test_records_of_a_stream_are_counted(version, behind, tmp_path):
    """Whole ones, by the size of the file; netCDF-C says 4,294,967,295. What is behind them is reported."""
    expected = netcdf4_values(file_of(tmp_path / "a.nc", raw(version, 4)))
    path = file_of(tmp_path / "a.nc", raw(version, 4, streaming=True) + bytes(behind))
    group = group_of(path, NetCDF3())
    assert group.dimensions["t"] == 4
    for name, values in expected.items():
        assert not difference(values, values_of(group[name]))
    notes = [x.reason for x in group.refusals]
    assert [f"there are 4 whole ones, and {behind} bytes" in note for note in notes] == [True] * bool(behind)
    assert vs.open_virtual_dataset(path).sizes["t"] == 4


def test_a_stream_without_a_record_is_empty(tmp_path):
    """Also where no variable has records."""
    data = raw(1, 0, streaming=True)
    assert group_of(file_of(tmp_path / "a.nc", data), NetCDF3()).dimensions["t"] == 0
    data = encode(1, {"t": 0, "x": 3}, [make_netcdf3.raw_variables(0)[0]], streaming=True)
    assert group_of(file_of(tmp_path / "a.nc", data), NetCDF3()).dimensions["t"] == 0


def test_vsize_is_not_believed(tmp_path):
    """It follows from the shape; writers leave it wrong, and 2^32 - 1 says that it has no room for the size."""
    for vsize in (0, 5, 2**32 - 1):
        variables = [
            RawVariable(name=v.name, dims=v.dims, values=v.values, vsize=vsize) for v in make_netcdf3.raw_variables(4)
        ]
        path = file_of(tmp_path / "a.nc", encode(1, {"t": 0, "x": 3}, variables, n_records=4))
        compare_with_netcdf4(path, group_of(path, NetCDF3()))


@pytest.mark.parametrize("version", VERSIONS)
def test_variables_beyond_4_gib(version, tmp_path):
    """The last one may be of any size, also in a record; all offsets are of 64 bits."""
    path = tmp_path / "sparse.nc"
    with netCDF4.Dataset(path, "w", format=make_netcdf3.FORMATS[version]) as file:
        file.set_fill_off()
        for name, n in {"t": None, "y": 3, "x": 1_500_000_001}.items():
            file.createDimension(name, n)
        file.createVariable("small", "i2", ("t",))[:] = [1, 2, 3]
        file.createVariable("v", "i1", ("t", "y", "x"))
        file["v"][2, 2, 1_499_999_999:] = [7, 8]
    group = group_of(path, NetCDF3())
    assert group.dimensions == {"t": 3, "y": 3, "x": 1_500_000_001}
    key = (slice(2, 3), slice(2, 3), slice(1_499_999_995, None))
    with netCDF4.Dataset(path) as file:
        np.testing.assert_array_equal(values_of(group["v"], key), file["v"][key])
        np.testing.assert_array_equal(values_of(group["small"]), file["small"][:])
    assert as_chunks(group["v"])[0].sum() == 13_500_000_009


# -- opening --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n_attributes", "n_reads"), [(1, 1), (100, 2), (1000, 5)])
def test_a_longer_header_costs_few_requests(n_attributes, n_reads, tmp_path):
    """64 KiB first, then as much again as is there; of the data only what lies in the last of these."""
    values = {f"a{i}": np.arange(125.0) for i in range(n_attributes)}
    path = file_of(tmp_path / "a.nc", raw(2, 50_000, attributes=values))
    group, sources = record_reads(NetCDF3(), absolute_url(path), ReadOptions())
    assert len(group.attributes) == n_attributes
    ranges = [x for source in sources for x in source.reads]
    assert len(ranges) == n_reads
    assert sum(length for _, length in ranges) <= max(1 << 16, 2 * group.arrays["fixed"].in_memory().entries["offset"])


def test_dropped_variables_are_not_there(tmp_path):
    """Nor is it looked at whether their values are."""
    data = raw(1, 4)
    path = file_of(tmp_path / "a.nc", data[:-12])
    with pytest.raises(
        vs.errors.MalformedFileError, match=r"open it without what is cut with drop_variables=\['a', 'b'\]"
    ):
        vs.open_virtual_dataset(path)
    assert list(vs.open_virtual_dataset(path, drop_variables=["a", "b"])) == ["fixed"]


def test_options_reach_the_reader(tmp_path):
    """As an object, through the public function."""
    path = make("large_5", tmp_path)
    vds = vs.open_virtual_dataset(path, reader=vs.readers.NetCDF3(chunk_size="1 KiB"))
    assert vds["even"].variable._data.grid.shape == (72, 1)


# -- joining --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_files_join_along_the_records(version, tmp_path):
    """Virtual, and equal to what xarray joins; also written as references."""
    paths = [tmp_path / f"{i}.nc" for i in range(2)]
    for i, path in enumerate(paths):
        make_netcdf3.BUILDERS[f"usual_{version}"](path)
        with netCDF4.Dataset(path, "a") as file:
            file.set_auto_maskandscale(False)
            file["time"][:] += 10 * i
            file["time"][4 : 5 + i] = 10 * i + 7 + np.arange(1 + i)
    options = {"dim": "time", "data_vars": "minimal", "coords": "minimal", "compat": "override"}
    joined = xr.concat([vs.open_virtual_dataset(path) for path in paths], **options)
    expected = xr.concat([opened(path) for path in paths], **options)
    assert joined.sizes["time"] == 11
    xr.testing.assert_identical(joined.virtual.open().load(), expected)
    joined.virtual.to_kerchunk(tmp_path / "refs.json")
    xr.testing.assert_equal(xr.open_dataset(tmp_path / "refs.json", engine="virtualstack").load(), expected)


def test_files_of_both_formats_join(tmp_path):
    """Big-endian chunks beside little-endian, compressed ones; values are those of both."""
    paths = [tmp_path / "3.nc", tmp_path / "4.nc"]
    for i, path in enumerate(paths):
        with netCDF4.Dataset(path, "w", format=("NETCDF3_CLASSIC", "NETCDF4")[i]) as file:
            file.createDimension("time", None)
            file.createDimension("x", 4)
            options = {"zlib": True, "chunksizes": (1, 4)} if i else {}
            file.createVariable("v", "i4", ("time", "x"), **options)[:] = numbered((3, 4), "i4", 100 * i)
            file.createVariable("time", "f8", ("time",))[:] = np.arange(3) + 3 * i
    joined = xr.concat([vs.open_virtual_dataset(path) for path in paths], dim="time")
    array = joined["v"].variable._data
    assert {x.dtype.str for x in array.in_memory().encodings} == {">i4", "<i4"}
    xr.testing.assert_equal(joined.virtual.open().load(), xr.concat([opened(path) for path in paths], dim="time"))
