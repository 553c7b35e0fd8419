"""Arrays that numpy saved: values, chunks and damage, with numpy itself as the oracle."""

import io
import json
import random
import warnings
import zipfile
from tokenize import TokenError

import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from tests.data.files import file_of
from tests.formats.groups import STORAGE, group_of, reasons, values_of
from virtualstack.errors import MalformedFileError, UnsupportedFeatureError, VirtualStackError, WriterError
from virtualstack.readers import NumPy, find_reader
from virtualstack.testing.readers import ReaderTests, difference

RANDOM = np.random.default_rng(0)
ARRAYS = {
    "floats": RANDOM.random((3, 4)),
    "fortran": np.asfortranarray(RANDOM.integers(-9, 9, (4, 5, 6)).astype(">i2")),
    "scalar": np.array(3.5),
    "dates": np.array(["2020-01-01", "2021-01-02"], "M8[D]"),
    "text": np.array(["ab", "ü"]),
    "bytes": np.array([b"a", b"bc"]),
    "record": np.array([(1, 2.5), (3, 4.5)], dtype=[("x", "<i4"), ("y", ">f8")]),
    "empty": np.zeros((0, 3)),
    "halves": np.ones(3, "f2"),
    "complex": np.ones(3, "c8") * 2j,
    "flags": np.array([True, False]),
    "big": np.arange(5, dtype=">u8"),
}


def saved(array, **options):
    """Return the bytes of a .npy file."""
    file = io.BytesIO()
    np.lib.format.write_array(file, array, **options)
    return file.getvalue()


class TestNumPy(ReaderTests):
    reader = NumPy()

    def files(self, folder):
        for name in ("floats", "fortran", "record", "halves"):
            path = folder / f"{name}.npy"
            np.save(path, np.tile(ARRAYS[name], 100))
            yield path

    def expected(self, path):
        return {"/data": np.load(path)}


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_archives_are_as_numpy_reads_them(save, tmp_path):
    """Values, also through a store, whatever the byte order and the order of axes."""
    path = tmp_path / "a.bin"
    with path.open("wb") as file:
        save(file, **ARRAYS)
    assert find_reader(path, STORAGE) == NumPy()
    vds = vs.open_virtual_dataset(path)
    got = vds.virtual.open(decode_times=False)
    vds.virtual.to_vstack(tmp_path / "a.vstack")
    stored = xr.open_dataset(tmp_path / "a.vstack", engine="virtualstack", decode_times=False)
    with np.load(path) as archive:
        assert set(archive.files) == set(vds.variables)
        for name in archive.files:
            assert not difference(archive[name], got[name].values), name
            assert not difference(archive[name], stored[name].values), name
    assert vds["floats"].dims == ("dim_0", "dim_1")
    assert vds["halves"].dims == ("dim_0",)  # of the same length


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_references_of_archives(save, tmp_path):
    """Of large members they are byte ranges, which kerchunk reads; zarr has the codec of compressed ones."""
    values = np.arange(300_000, dtype="f8").reshape(300, 1000)
    save(tmp_path / "a.npz", a=values)
    vds = vs.open_virtual_dataset(tmp_path / "a.npz")
    vds.virtual.to_kerchunk(tmp_path / "a.json")
    refs = json.loads((tmp_path / "a.json").read_text())["refs"]
    assert all(isinstance(x, list) for key, x in refs.items() if key[-1].isdigit())
    np.testing.assert_array_equal(xr.open_dataset(str(tmp_path / "a.json"), engine="kerchunk")["a"], values)
    import zarr

    root = zarr.open_group(vs.ManifestStore(vs.scan([tmp_path / "a.npz"])[0]), mode="r")
    np.testing.assert_array_equal(root["a"][5:7], values[5:7])


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("name", ["a.npy", "a.npz"])
def test_large_arrays_are_cut_into_chunks(name, order, tmp_path):
    values = np.asarray(np.arange(24_000, dtype="i4").reshape(20, 30, 40), order=order)
    (np.save if name == "a.npy" else np.savez)(tmp_path / name, values)
    (array,) = group_of(tmp_path / name, NumPy(chunk_size=10_000)).arrays.values()
    assert array.grid.shape == ((10, 1, 1) if order == "C" else (1, 1, 10))
    np.testing.assert_array_equal(values_of(array), values)
    with pytest.raises(ValueError, match="less than one byte"):
        NumPy(chunk_size=0)


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_versions_of_the_header(version, tmp_path):
    """Version 2 has longer headers, version 3 names of fields in UTF-8."""
    name = "größe" if version == (3, 0) else "x"
    array = np.array([(1, 2)], dtype=[(name, "i4"), ("y" * 5000 if version > (1, 0) else "y", "f4")])
    path = file_of(tmp_path / "a.npy", saved(array, version=version))
    assert not difference(array, values_of(group_of(path, NumPy()).arrays["data"]))


@pytest.mark.parametrize("letters", [np.array([b"a", b"", b"c"]), np.asfortranarray([[b"a", b"b"], [b"c", b"d"]])])
def test_single_letters_are_not_joined_to_text(letters, tmp_path):
    """As chars of netCDF are; a reader of a written store would join them."""
    np.save(tmp_path / "a.npy", letters)
    vds = vs.open_virtual_dataset(tmp_path / "a.npy")
    assert not difference(letters, vds.virtual.open()["data"].values)
    with pytest.raises(WriterError):
        vds.virtual.to_vstack(tmp_path / "a.vstack")


def test_headers_of_python_2(tmp_path):
    """Its integers end with L; names of fields may, too."""
    head = b"{'descr': [('5L', '<f8')], 'fortran_order': False, 'shape': (3L,), }".ljust(117) + b"\n"
    path = tmp_path / "a.npy"
    path.write_bytes(b"\x93NUMPY\1\0" + len(head).to_bytes(2, "little") + head + np.arange(3.0).tobytes())
    with warnings.catch_warnings(action="ignore"):
        expected = np.load(path)
    assert not difference(expected, vs.open_virtual_dataset(path).virtual.open()["data"].values)


def test_archives_that_were_written_as_a_stream(tmp_path):
    """The checksum is then after the bytes of a member."""

    class Pipe(io.RawIOBase):
        def __init__(self):
            self.data = b""

        def writable(self):
            return True

        def write(self, data):
            self.data += bytes(data)
            return len(data)

    for kind in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        pipe = Pipe()
        with zipfile.ZipFile(pipe, "w", kind) as archive:
            archive.writestr("a.npy", saved(ARRAYS["floats"]))
            archive.writestr("b.npy", saved(ARRAYS["big"]))
        path = file_of(tmp_path / f"{kind}.npz", pipe.data)
        arrays = group_of(path, NumPy()).arrays
        for name, expected in (("a", "floats"), ("b", "big")):
            np.testing.assert_array_equal(values_of(arrays[name]), ARRAYS[expected])
        if kind == zipfile.ZIP_DEFLATED:
            changed = bytearray(pipe.data)
            changed[pipe.data.index(b"PK\x07\x08") + 4] ^= 1
            damaged = group_of(file_of(tmp_path / "damaged.npz", bytes(changed)), NumPy()).arrays["a"]
            with pytest.raises(VirtualStackError, match="checksum"):
                values_of(damaged)


def test_what_has_no_values_is_refused(tmp_path):
    """Pickles may run programs; zarr has no data type for long doubles and times without a unit."""
    arrays = {"pickle": np.array([{}]), "long": np.ones(2, "g"), "unit": np.zeros(2, "m8"), "void": np.zeros(2, "S0")}
    np.savez(tmp_path / "a.npz", ok=np.ones(2), **arrays, **{"a/b": np.ones(2)})
    group = group_of(tmp_path / "a.npz", NumPy())
    assert set(group.arrays) == {"ok"} | ({"void"} if np.zeros(2, "S0").itemsize else set())
    assert {name.lstrip("/") for name in reasons(group)} >= {"pickle", "long", "unit", "a/b"}
    with pytest.raises(UnsupportedFeatureError, match="pickles"):
        vs.open_virtual_dataset(tmp_path / "a.npz")
    with (tmp_path / "b.npy").open("wb") as file:
        np.save(file, np.ones(3))
        np.save(file, np.ones(4))
    assert "after the first array" in reasons(group_of(tmp_path / "b.npy", NumPy()), "noted")["/"]


HEADER = saved(np.ones(3))


def header(text):
    """Return a file whose header has some text."""
    return b"\x93NUMPY\1\0" + len(text).to_bytes(2, "little") + text.encode() + bytes(24)


BAD = {
    "no length": HEADER[:9],
    "version 9": HEADER[:6] + b"\x09" + HEADER[7:],
    "a header longer than the file": HEADER[:8] + b"\xff\xff" + HEADER[10:],
    "no literal": header("{'descr': open('x')}"),
    "deep": header("(" * 150),
    "other keys": header("{'descr': '<f8', 'shape': (3,)}"),
    "negative": header("{'descr': '<f8', 'fortran_order': False, 'shape': (-3,)}"),
    "a shape that is no tuple": header("{'descr': '<f8', 'fortran_order': False, 'shape': 3}"),
    "no order": header("{'descr': '<f8', 'fortran_order': 'no', 'shape': (3,)}"),
    "no type": header("{'descr': 'x?', 'fortran_order': False, 'shape': (3,)}"),
    "more values than bytes": header("{'descr': '<f8', 'fortran_order': False, 'shape': (4,)}"),
    "2^90 values": header(f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({2**90},)}}"),
}


@pytest.mark.parametrize("name", BAD)
def test_headers_that_contradict_the_format(name, tmp_path):
    path = file_of(tmp_path / "a.npy", BAD[name])
    with pytest.raises(MalformedFileError) as caught:
        group_of(path, NumPy())
    assert caught.value.url == f"file://{path}"
    with pytest.raises((ValueError, SyntaxError, TypeError, EOFError, MemoryError, OverflowError, TokenError)):
        np.load(path)


def loaded(path, *, is_checked):
    """Load an array by numpy; checksums of an archive count only if they should."""
    found = np.load(path, max_header_size=10**6)
    if isinstance(found, np.ndarray):
        return found
    with found.zip.open("arr_0.npy") as member:
        member._expected_crc = member._expected_crc if is_checked else None
        values = np.lib.format.read_array(member, max_header_size=10**6)
        member.read()
        return values


@pytest.mark.parametrize("kind", ["a.npy", "a.npz", "packed.npz"])
def test_flipped_bytes(kind, tmp_path):
    """Values that numpy reads, or an error; an error wherever numpy has one, unless the values are those of before."""
    values = RANDOM.integers(0, 50, (6, 7)).astype("i4")
    path = tmp_path / kind
    {"a.npy": np.save, "a.npz": np.savez, "packed.npz": np.savez_compressed}[kind](path, values)
    data, rng = path.read_bytes(), random.Random(1)
    n_read = n_errors = 0
    for _ in range(150):
        changed = bytearray(data)
        changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        path.write_bytes(changed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                expected = loaded(path, is_checked=kind == "packed.npz")
            except Exception:  # noqa: BLE001 - numpy raises any error
                expected = None
        try:
            group = group_of(path, NumPy())
            (got,) = (values_of(x) for x in group.arrays.values()) if group.arrays else (None,)
        except VirtualStackError:
            n_errors += 1
            continue
        if got is not None:
            assert not difference(values if expected is None else expected, got)
            n_read += 1
    assert n_read > 10
    assert n_errors > 10
