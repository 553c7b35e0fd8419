"""References of one form become those of another, and say the same."""

import json

import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from tests.data.netcdf4 import netcdf4_file
from virtualstack.errors import ChunkDecodeError, UnsupportedFeatureError, WriterError
from virtualstack.kerchunk.table import inline_bytes


@pytest.fixture
def source(tmp_path):
    """A file with groups, holes, small and packed variables."""
    path = tmp_path / "data" / "a b.nc"
    path.parent.mkdir()
    attributes = {"scale_factor": 0.5, "long_name": "temperature", "_FillValue": -99}
    variables = {
        "t": ("i2", "time x", 2 * np.arange(12).reshape(2, 6), attributes, {"zlib": True, "chunksizes": (1, 3)}),
        "time": ("f8", "time", np.arange(4), {"units": "days since 2000-01-01"}),  # of the last two ``t`` has nothing
        "big": (">f4", "x", np.arange(6), {}, {"endian": "big"}),
        "n": ("i4", "", 7),
        "g/v": ("f8", "x", np.arange(6), {}, {"shuffle": True, "zlib": True}),
    }
    return str(netcdf4_file(path, {"time": None, "x": 6}, variables, title="odd: ü"))


def of_kerchunk(path):
    """Give references as the kerchunk package makes them."""
    hdf = pytest.importorskip("kerchunk.hdf", reason="kerchunk is not installed")
    return hdf.SingleHdf5ToZarr(path, inline_threshold=30).translate()


def same_references(a, b):
    """Compare keys, URLs, offsets, lengths and inline bytes, and metadata but for where one codec stands."""
    assert a.keys() == b.keys()
    for key, value in a.items():
        if key.rpartition("/")[2] in (".zgroup", ".zattrs"):
            assert json.loads(value) == json.loads(b[key]), key
        elif key.endswith(".zarray"):
            x, y = ({**json.loads(refs[key])} for refs in (a, b))
            for array in (x, y):
                array.pop("virtualstack", None)  # the dtypes of attributes
                array.setdefault("dimension_separator", ".")
                array["codecs"] = [*(array.pop("filters") or ()), *filter(None, [array.pop("compressor")])]
            assert x == y, key
        elif isinstance(value, list):
            assert [value[0].replace("file://", "").replace("%20", " "), *value[1:]] == [
                b[key][0].replace("file://", "").replace("%20", " "),
                *b[key][1:],
            ]
        else:
            assert inline_bytes(value, key) == inline_bytes(b[key], key), key


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("form", ["json", "parq"])
def test_references_of_kerchunk_come_back(source, tmp_path, monkeypatch, form):
    """Through a store, and through parquet."""
    monkeypatch.chdir(tmp_path)
    made = of_kerchunk(source)
    (tmp_path / "made.json").write_text(json.dumps(made))
    vs.convert("made.json", "made.vstack")
    vs.convert("made.vstack", f"back.{form}")
    if form == "parq":
        vs.convert("back.parq", "back.json")
    same_references(made["refs"], json.loads((tmp_path / "back.json").read_text())["refs"])


FORMS = ["a.json", "a.parq", "a.vstack"]


@pytest.mark.parametrize("first", FORMS)
@pytest.mark.parametrize("second", FORMS)
def test_values_are_the_same_in_any_form(source, tmp_path, monkeypatch, first, second):
    """Decoded as xarray decodes them from the file, groups too."""
    monkeypatch.chdir(tmp_path)
    vs.convert(source, f"first-{first}")
    vs.convert(f"first-{first}", f"second-{second}")
    for group in (None, "g"):
        with (
            xr.open_dataset(source, engine="netcdf4", group=group) as expected,
            xr.open_dataset(f"second-{second}", engine="virtualstack", group=group) as got,
        ):
            xr.testing.assert_identical(got.load(), expected.load())


def test_references_and_sources_move_together(source, tmp_path, monkeypatch):
    """Where locations are written relative, in each form."""
    monkeypatch.chdir(tmp_path)
    vs.convert(source, "a.parq", relative=True)
    vs.convert("a.parq", "a.vstack", relative=True)
    vs.convert("a.vstack", "a.json", relative=True)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for name in ("data", "a.parq", "a.vstack", "a.json"):
        (tmp_path / name).rename(elsewhere / name)
    with xr.open_dataset(elsewhere / "data" / "a b.nc", engine="netcdf4") as expected:
        for name in FORMS:
            with xr.open_dataset(elsewhere / name, engine="virtualstack") as got:
                xr.testing.assert_identical(got.load(), expected.load())


def test_a_store_that_is_there_gets_a_new_snapshot(source, tmp_path, monkeypatch):
    """Its earlier ones stay, and can be converted."""
    monkeypatch.chdir(tmp_path)
    vs.convert(source, "a.vstack", message="all")
    vs.convert(source, "a.vstack", drop_variables="t")
    vs.convert("a.vstack", "new.json")
    vs.convert("a.vstack", "old.json", reader=vs.readers.VStack(at=0))
    new, old = (json.loads((tmp_path / f"{name}.json").read_text())["refs"] for name in ("new", "old"))
    assert {key.partition("/")[0] for key in old.keys() - new.keys()} == {"t"}
    assert vs.Repository.open("a.vstack", at=0).snapshot.message == "all"


def test_whole_files_get_their_size(tmp_path, monkeypatch):
    """Kerchunk's ``[url]`` is all of a file; other forms have lengths."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.bin").write_bytes(bytes(8))
    zarray = {"zarr_format": 2, "shape": [2], "chunks": [2], "dtype": "<i4", "order": "C", "fill_value": None}
    refs = {".zgroup": '{"zarr_format": 2}', "v/.zarray": json.dumps(zarray), "v/0": ["a.bin"]}
    (tmp_path / "a.json").write_text(json.dumps(refs))
    vs.convert("a.json", "a.vstack", relative=True)
    vs.convert("a.vstack", "b.json", relative=True)
    assert json.loads((tmp_path / "b.json").read_text())["refs"]["v/0"] == ["a.bin", 0, 8]


@pytest.mark.parametrize(("shape", "compressor"), [([], None), ([4], None), ([], {"id": "zlib", "level": 1})])
@pytest.mark.filterwarnings("error")
def test_an_inline_chunk_of_another_length_breaks_nothing_else(tmp_path, monkeypatch, shape, compressor):
    """Such as the empty one that kerchunk makes of a character that was never written."""
    monkeypatch.chdir(tmp_path)
    zarray = {"zarr_format": 2, "chunks": shape and [2], "dtype": "<i2", "order": "C", "fill_value": None}
    zarray |= {"shape": shape, "compressor": compressor, "filters": None}
    chunks = {"v/0": "", "v/1": "abcd"} if shape else {"v/0": ""}
    other = {**zarray, "shape": [2], "chunks": [2], "compressor": None}
    good = {"w/.zarray": json.dumps(other), "w/0": "\x01\0\x02\0"}
    refs = {".zgroup": '{"zarr_format": 2}', "v/.zarray": json.dumps(zarray), **chunks, **good}
    (tmp_path / "a.json").write_text(json.dumps(refs))
    vs.convert("a.json", "a.vstack")
    vs.convert("a.vstack", "b.json")
    same = json.loads((tmp_path / "b.json").read_text())["refs"]
    assert [inline_bytes(same[key], key) for key in chunks] == [inline_bytes(x, key) for key, x in chunks.items()]
    cube = xr.open_dataset("a.vstack", engine="virtualstack")
    np.testing.assert_array_equal(cube["w"], [1, 2])
    with pytest.raises(ChunkDecodeError, match="'v', bytes 0 to 0 of the manifest, does not decode"):
        cube["v"].load()


def test_a_target_without_a_known_suffix_is_an_error(source):
    """Before anything is read."""
    with pytest.raises(WriterError, match=r"'refs\.txt' does not say in which form"):
        vs.convert("gone.nc", "refs.txt")


def test_a_variable_that_is_refused_is_an_error_or_a_warning(tmp_path, monkeypatch):
    """It is not left out in silence."""
    monkeypatch.chdir(tmp_path)
    zarray = {"zarr_format": 2, "shape": [2], "chunks": [2], "dtype": "|O", "order": "C", "fill_value": None}
    refs = {".zgroup": '{"zarr_format": 2}', "v/.zarray": json.dumps(zarray)}
    (tmp_path / "a.json").write_text(json.dumps(refs))
    with pytest.raises(UnsupportedFeatureError, match="1 variable cannot be referenced"):
        vs.convert("a.json", "a.vstack")
    assert not (tmp_path / "a.vstack").exists()
    with pytest.warns(UserWarning, match="left out '/v'"):
        vs.convert("a.json", "a.vstack", unsupported="skip")
