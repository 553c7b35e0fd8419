"""Virtual arrays on their own and inside xarray: what they are, and what they refuse."""

import pickle

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from tests.data.arrays import referenced_array
from virtualstack.errors import ChunkAlignmentError, CombineError, ManifestError, VirtualValuesError
from virtualstack.location import Location
from virtualstack.manifests import FIRST, ChunkEncoding, ChunkGrid, ChunkManifest, Fill, ManifestArray, reindex
from virtualstack.manifests.plain import PlainArray, describe, why_not_plain
from virtualstack.testing.strategies import ZLIB, model_read, store_array
from virtualstack.zarr.documents import codec_documents


def array(shape=(31, 10, 12), chunks=(1, 5, 6), url="file:///a.nc", dtype="<i2", codecs=(), cf=None):
    parts = {"name": "/v", "dimension_names": ("t", "y", "x")[: len(shape)], "cf": cf or {}}
    return referenced_array(shape, chunks, dtype, urls=url, codecs=codecs, **parts)


def dataset(virtual):
    return xr.Dataset({"v": (("t", "y", "x")[: virtual.ndim], virtual)})


def inner(dataset):
    return dataset["v"].variable._data


def test_an_entry_is_24_bytes():
    """A chunk costs 24 bytes in memory."""
    assert array().in_memory().entries.itemsize == 24


def test_entries_are_read_only():
    """A manifest cannot be changed under the arrays that share it."""
    with pytest.raises(ValueError, match="read-only"):
        array().in_memory().entries["offset"] = 0


def test_a_pickled_array_is_equal_valid_and_read_only():
    """Arrays cross process borders whole."""
    original = array()[3:8, :, ::2]
    copy = pickle.loads(pickle.dumps(original))
    assert copy.equals(original)
    copy.validate()
    assert not copy.in_memory().entries.flags.writeable


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize(
    "operation",
    [
        lambda ds: ds.mean(),
        lambda ds: ds + 1,
        lambda ds: ds.v.values,
        lambda ds: 1 - ds.v,
        lambda ds: ds.v > 0,
        lambda ds: np.asarray(ds.v),
    ],
)
def test_asking_for_values_raises_with_the_remedy(operation):
    """No operation that needs values gives an answer."""
    with pytest.raises(VirtualValuesError, match=r"vds\.virtual\.open\(\)"):
        operation(dataset(array()))


@pytest.mark.usefixtures("large")
def test_equal_arrays_are_identical_for_xarray():
    """identical, equals and merge answer structurally."""
    one = dataset(array())
    assert one.identical(one.copy(deep=True))
    xr.testing.assert_identical(one, dataset(array()))
    with pytest.raises(VirtualValuesError, match=r"variable '/v' is virtual: it is compared"):
        one.equals(dataset(array(url="file:///b.nc")))
    assert xr.merge([one, dataset(array())], compat="no_conflicts").identical(one)


def test_an_unknown_size_does_not_make_another_source():
    """References forget sizes and etags; other sizes of one URL are other versions."""
    versions = [Location("file:///a.nc"), Location("file:///a.nc", 10**9), Location("file:///a.nc", 10**9, "e", 5.0)]
    for left in versions:
        for right in versions:
            assert array(url=left).equals(array(url=right))
    assert not array(url=versions[1]).equals(array(url=Location("file:///a.nc", 10**9 + 1)))


def test_two_names_of_one_codec_are_one():
    """Numcodecs and zarr v3 name the same bytes differently."""
    names = [(type(ZLIB).from_config(name, level=3),) for name in ("numcodecs.zstd", "zstd")]
    assert array(codecs=names[0]).equals(array(codecs=names[1]))
    assert not array(codecs=names[0]).equals(array(codecs=(ZLIB,)))


@pytest.mark.parametrize(
    ("other", "is_equal"),
    [
        ({"url": "file:///b.nc", "grid": "9a2e"}, True),
        ({"url": "file:///a.nc", "grid": "77ff"}, False),
        ({"url": "file:///b.nc", "grid": None}, False),
    ],
)
def test_coordinates_of_one_grid_of_grib_are_equal_in_all_files(other, is_equal):
    """The name of the grid says which values they have, wherever the message is; an EMPTY chunk has none."""

    def latitudes(url, grid):
        more = {} if grid is None else {"grid": grid}
        codec = type(ZLIB).from_config("virtualstack.grib", key="latitudes", **more)
        return array((12,), (4,), url, "<f8", (codec,))

    one, two = latitudes("file:///a.nc", "9a2e"), latitudes(**other)
    assert one.equals(two) is is_equal
    assert two.equals(one) is is_equal
    plain = array((12,), (4,), "file:///a.nc", "<f8")
    assert np.concatenate([plain, one]).equals(np.concatenate([plain, two])) is is_equal
    moved = array((12,), (4,), "file:///c.nc", "<f8")
    assert not np.concatenate([plain, one]).equals(np.concatenate([moved, two]))
    hole = reindex(two, {0: np.r_[-1, 1:12]}, 0.0)
    assert not one.equals(hole)
    assert not hole.equals(one)


@pytest.mark.usefixtures("large")
def test_merging_two_sources_of_one_name_is_refused():
    """xr.merge does not choose between arrays that are not provably equal, and may be."""
    with pytest.raises(VirtualValuesError, match=r"vs\.combine_datasets"):
        xr.merge([dataset(array()), dataset(array(url="file:///b.nc"))], compat="no_conflicts")


def test_concat_keeps_the_grid_regular_where_lengths_allow():
    """31 and 28 rows of chunks of one row are 59 regular rows, and plain."""
    joined = inner(xr.concat([dataset(array()), dataset(array(shape=(28, 10, 12), url="file:///b.nc"))], "t"))
    assert joined.grid == ChunkGrid.regular((59, 10, 12), (1, 5, 6))
    assert why_not_plain(joined) is None
    assert [x.url for x in joined.in_memory().locations] == ["file:///a.nc", "file:///b.nc"]


def test_uneven_lengths_make_the_grid_rectilinear():
    """5 and 5 rows of chunks of 4 become cells of 4, 1, 4, 1."""
    parts = [array(shape=(5, 5, 6), chunks=(4, 5, 6), url=f"file:///{i}") for i in range(2)]
    joined = np.concatenate(parts, 0)
    assert joined.grid.axes[0].lengths().tolist() == [4, 1, 4, 1]
    assert why_not_plain(joined) == "chunk lengths along axis 0 are not all 4"


def test_other_codecs_and_byte_orders_join():
    """What differs in how bytes become values stands in the table of encodings."""
    joined = np.concatenate([array(), array(dtype=">i2", codecs=(ZLIB,), url="file:///b.nc")], 0)
    assert len(joined.in_memory().encodings) == 2
    assert "2 encodings" in why_not_plain(joined)


def test_compression_level_alone_makes_no_difference():
    """Encodings that decode alike share a row."""
    levels = [type(ZLIB).from_config("numcodecs.zlib", level=level) for level in (1, 9)]
    joined = np.concatenate([array(codecs=(codec,), url=f"file:///{i}") for i, codec in enumerate(levels)], 0)
    assert len(joined.in_memory().encodings) == 1
    assert why_not_plain(joined) is None


@pytest.mark.parametrize(
    ("key", "left", "right"),
    [
        ("scale_factor", 0.01, 0.02),
        ("add_offset", 0.0, 273.15),
        ("_FillValue", np.int16(-1), np.int16(-2)),
        ("units", "days since 2000-01-01", "days since 2001-01-01"),
        ("_Unsigned", "true", None),
        ("scale_factor", np.float32(0.5), np.float64(0.5)),
        ("units", "hours", "days"),
        ("dtype", "timedelta64[ns]", None),
        ("_Encoding", "latin-1", "utf-8"),
    ],
)
def test_attributes_that_change_values_must_agree(key, left, right):
    """Joining files whose packing differs raises, naming variable, files and both values."""
    parts = [
        array(cf={key: left}, url="file:///a.nc"),
        array(cf={} if right is None else {key: right}, url="file:///b.nc"),
    ]
    if right is None:
        parts.append(array(cf={key: left}))
    with pytest.raises(CombineError, match=rf"'/v' has {key} = .*a\.nc.*b\.nc") as caught:
        np.concatenate(parts, 0)
    assert caught.value.property == key
    assert (caught.value.left_url, caught.value.right_url) == ("file:///a.nc", "file:///b.nc")


def test_equal_packing_joins_and_is_kept():
    """NaN equals NaN, of whatever float."""
    cf = {"_FillValue": np.float32("nan"), "scale_factor": 0.5}
    other = {"_FillValue": float("nan"), "scale_factor": np.float64(0.5)}
    joined = np.concatenate([array(dtype="<f4", cf=cf), array(dtype="<f4", cf=other, url="file:///b")], 0)
    assert joined.cf is cf


ODD_WIDTHS = [array((1, 5000, 5000), (1, w, w), url=f"file:///{w}") for w in (97, 101, 103, 107, 109)]


@pytest.mark.parametrize(
    ("join", "message"),
    [
        (
            lambda: np.concatenate([array(), array((31, 10, 6))], 0),
            r"shape \(31, 10, 12\) in 'file:///a.nc' and \(31, 10, 6\)",
        ),
        (lambda: np.concatenate([array(), array()], None), "axis=None"),
        (lambda: np.concatenate([array()], 0, dtype="f8"), "neither 'out' nor 'dtype'"),
        (lambda: np.concatenate(ODD_WIDTHS, 0), "At most 16 times as many"),
    ],
    ids=["other shapes", "no axis", "another dtype", "too many grid lines"],
)
def test_arrays_that_do_not_join_are_refused(join, message):
    with pytest.raises(CombineError, match=message):
        join()


def test_a_zero_length_operand_contributes_nothing():
    """A file without records leaves no trace in the tables."""
    empty = array(shape=(0, 10, 12), url="file:///empty.nc")
    joined = np.concatenate([empty, array()], 0)
    assert [x.url for x in joined.in_memory().locations] == ["file:///a.nc"]


def test_a_boolean_scalar_is_no_index():
    """numpy makes a new axis of it; nobody means that."""
    for key in (True, np.True_, np.array(True)):
        with pytest.raises(ChunkAlignmentError, match="'/v': a boolean scalar"):
            array()[key]


def test_what_would_cut_chunks_into_too_many_cells_is_refused(monkeypatch):
    """By its number, before any memory is taken."""
    monkeypatch.setattr("virtualstack.manifests.indexing.MAX_CUT_CELLS", 1000)
    rng = np.random.default_rng(0)
    with pytest.raises(ChunkAlignmentError, match=r"cut the chunks into \d+ pieces, and a manifest has at most 1000"):
        np.where(rng.random((31, 10, 12)) < 0.5, array(), 0)
    with pytest.raises(ChunkAlignmentError, match="pieces"):
        array()[np.ix_(rng.permutation(31), rng.permutation(10), rng.permutation(12))]
    with pytest.raises(ChunkAlignmentError, match="pieces"):
        array()[:, :, 0][np.arange(31)[:, None, None], np.arange(10)[:, None] * np.ones(12, int)]
    with pytest.raises(ChunkAlignmentError, match="pieces"):
        np.reshape(array(shape=(100, 100), chunks=(7, 9)), -1)


def test_an_outer_join_of_xarray_fills_up_what_is_missing():
    """As of loaded arrays; a packed variable is not filled with NaN, which no stored number is."""
    first, second = (store_array(np.arange(20.0).reshape(2, 10), (1, 4), url=f"memory://{i}") for i in "ab")
    left, right = (
        xr.Dataset({"v": (("t", "y"), part)}, {"y": y})
        for part, y in ((first.array, np.arange(10)), (second.array, np.arange(3, 13)))
    )
    joined = xr.concat([left, right], "t", join="outer")
    expected = xr.concat(
        [left.assign(v=(("t", "y"), first.values)), right.assign(v=(("t", "y"), second.values))], "t", join="outer"
    )
    values = model_read(joined.v.variable._data, first.sources | second.sources)
    np.testing.assert_array_equal(values, expected.v.values)
    packed = [xr.Dataset({"v": (("t", "y"), packed_array(x))}, {"y": np.arange(10) + x}) for x in (0, 1)]
    with pytest.raises(CombineError, match=r"no stored 'int16' with .* reads as missing\. Say which one does with"):
        xr.concat(packed, "t", join="outer")


def packed_array(number):
    return array(shape=(1, 10), chunks=(1, 5), url=f"file:///{number}", cf={"scale_factor": 0.5})


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ((0, 0, 0, 0), "too many indices"),
        ((..., ...), "single ellipsis"),
        ((31,), "out of bounds for axis 0 with size 31"),
        ((np.array([40]),), "out of bounds"),
        ((np.array([True, False]),), "boolean index of 2 elements on axis 0 with size 31"),
        ((0, np.ones((10, 2), bool)), "boolean index of 2 elements on axis 2 with size 12"),
        ((np.array([0.5]),), "integers or booleans"),
        (([0.5],), "integers or booleans"),
        (("t",), "not an index"),
        ((1.0,), "not an index"),
        ((2**70,), "out of bounds"),
        (([[1], [1, 2]],), "not an array of indices"),
    ],
)
def test_wrong_indices_raise_index_errors(key, message):
    """Indexing mistakes are those of numpy."""
    with pytest.raises(IndexError, match=message):
        array()[key]


@pytest.mark.parametrize(
    "key",
    [
        ((0, 1),), (range(4, 0, -2),), range(2), (pd.Index([1, 3]), pd.RangeIndex(2)), ((),), (range(0), slice(2)),
        (xr.DataArray([2, 0], dims="p"), 1), (((0, 1), (2, 3)),), ((True, False, True, True, False),),
        (pd.Series([True, False] * 2 + [True]),), (np.uint8(3), np.array(2)),
    ],
)  # fmt: skip
def test_whatever_numpy_takes_for_an_array_of_indices_is_one(key):
    """Tuples inside of a key, ranges, and the indices of pandas."""
    known = store_array(np.arange(60).reshape(5, 12).astype("i4"), (2, 5), url="memory://indices")
    got = known.array[key]
    got.validate()
    np.testing.assert_array_equal(model_read(got, known.sources), known.values[key])


def test_arrays_of_indices_that_are_slices_are_slices():
    """What xarray hands over for several axes at once: arrays that are runs stay virtual."""
    known = store_array(np.arange(60).reshape(5, 12).astype("i4"), (2, 5), url="memory://indices")
    for rows, columns in (([1, 2, 3], [0, 4, 8]), ([4, 3], [-1, -2]), ([2], []), ([0, 2, 4], np.arange(12) % 3 == 0)):
        rows, columns = np.array(rows, int), np.asarray(columns, bool if isinstance(columns, np.ndarray) else int)
        virtual = known.array[rows][:, columns]
        np.testing.assert_array_equal(model_read(virtual, known.sources), known.values[rows][:, columns])


def test_slices_on_chunk_lines_are_plain_and_others_say_why():
    """A cut chunk is virtual, but not plain."""
    assert why_not_plain(array()[3:8]) is None
    assert why_not_plain(array()[3]) is None
    assert why_not_plain(array()[:, 1:]) == "a slice cuts through chunks"
    assert "steps" in why_not_plain(array()[:, :, ::2])
    assert "steps" in why_not_plain(array()[:, ::-1])


def test_a_transposed_array_is_plain_with_a_transpose_codec():
    """Chunks stored in another axis order need one codec, no copy."""
    plain = PlainArray.from_array(array().transpose(2, 0, 1))
    assert plain.chunks == (6, 1, 5)
    assert plain.order == (1, 2, 0)
    codecs = codec_documents(plain.encoding, plain.chunks, plain.order)
    assert codecs[0] == {"name": "transpose", "configuration": {"order": [1, 2, 0]}}


def test_a_wrong_cell_is_found_by_validation():
    """A cell that reaches out of its decoded chunk is refused before anything reads it."""
    small = ChunkEncoding.c_order("<i2", (1, 5, 3))
    manifest = ChunkManifest.from_arrays(
        [[[0]]], [[[1]]], location="file:///a", encoding=small, fill=Fill.from_value(0, "i2")
    )
    wrong = ManifestArray(manifest=manifest, grid=ChunkGrid.regular((1, 5, 6), (1, 5, 6)), dtype=np.dtype("i2"))
    with pytest.raises(ManifestError, match="elements 0 to 17 of a decoded chunk of 15"):
        wrong.validate()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dtype": np.dtype(">i2")}, "not native"),
        ({"grid": ChunkGrid.regular((31,), (1,))}, "the chunk grid"),
        ({"dimension_names": ("t",)}, "1 dimension names for 3 axes"),
    ],
)
def test_parts_must_fit(change, message):
    """An array whose parts contradict each other cannot be made."""
    good = array()
    parts = {"manifest": good.manifest, "grid": good.grid, "dtype": good.dtype} | change
    with pytest.raises(ManifestError, match=message):
        ManifestArray(**parts)


def test_fill_of_another_dtype_is_found_by_validation():
    """The fill value has the dtype of the array."""
    good = array()
    wrong = ManifestArray(manifest=good.manifest, grid=good.grid, dtype=np.dtype("i4"))
    with pytest.raises(ManifestError, match="a fill has dtype 'int16', the array 'int32'"):
        wrong.validate()


def test_rename_changes_the_table_alone():
    """Renaming shares the entries."""
    original = array()
    renamed = original.rename_locations({"file:///a.nc": "s3://bucket/a.nc"})
    assert renamed.in_memory().locations[0].url == "s3://bucket/a.nc"
    assert np.shares_memory(renamed.in_memory().entries, original.in_memory().entries)
    assert original.rename_locations(str.upper).in_memory().locations[0].url == "file:///A.NC"


@pytest.mark.parametrize("new", ["", " ", "s3://bucket/folder/", None, 3, b"s3://bucket/a.nc"])
def test_a_source_is_not_renamed_to_what_is_no_file(new):
    """Nothing could be read then."""
    message = r"source 'file:///a\.nc' would become .*, which is not a URL or path of a file"
    with pytest.raises(ManifestError, match=message):
        array().rename_locations(lambda url: new)


def test_a_person_sees_what_it_is():
    """The reprs name grid, codecs, sources and counts."""
    virtual = array(codecs=(ZLIB,))
    assert virtual._repr_inline_(80) == "virtual, chunks (1, 5, 6), zlib, 112 kB stored"
    assert virtual._repr_inline_(45) == "virtual, chunks (1, 5, 6), zlib, 112 kB"
    assert virtual._repr_inline_(35) == "chunks (1, 5, 6), zlib, 112 kB"
    assert virtual._repr_inline_(28) == "virtual, chunks (1, 5, 6)"
    assert virtual._repr_inline_(10) == "virtual, …"
    assert "virtual, chunks (1, 5, 6), zlib, 112 kB" in repr(dataset(virtual))
    page = dataset(virtual)._repr_html_()
    for text in ("zlib", "file:///a.nc", "124 in sources", "0 ABSENT", "31 x 2 x 2"):
        assert text in page
    assert "plain: any zarr" in describe(virtual)
    assert "not plain: a slice cuts" in describe(virtual[:, 1:])
    assert "ManifestArray<shape=(31, 10, 12)" in repr(virtual)


def test_no_chunks_attribute_is_exposed():
    """With it xarray would take the array for one of dask's."""
    assert not hasattr(array(), "chunks")


def test_location_codes_start_after_the_kinds():
    """The codes of holes and inline chunks come before the table of locations."""
    assert set(np.unique(array().in_memory().entries["location"])) == {FIRST}


def test_a_page_names_the_first_sources_and_folds_many():
    """More than three sources are folded behind their number."""
    parts = [array(url=f"file:///{i}.nc") for i in range(5)]
    page = dataset(np.concatenate(parts[:3]))._repr_html_()
    assert "file:///0.nc<br>file:///1.nc<br>file:///2.nc" in page
    page = dataset(np.concatenate(parts))._repr_html_()
    assert "<summary>5: file:///0.nc … file:///4.nc</summary>" in page
    assert "<li>file:///3.nc</li>" in page


def test_functions_of_numpy_that_need_more():
    """A shape is needed to reshape."""
    with pytest.raises(TypeError, match="needs a shape"):
        np.reshape(array(), None)
    with pytest.raises(ValueError, match=r"\(31, 10, 12\) into shape \(7, -1\)"):
        np.reshape(array(), (7, -1))
