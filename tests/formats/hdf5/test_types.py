"""Every kind of element, in every layout and both byte orders, compared with h5py."""

import itertools

import h5py
import numpy as np
import pytest
import xarray as xr
import zarr
from h5py import h5d, h5p, h5r, h5s, h5t

import virtualstack
from tests.corpus.report import judge, library_values
from tests.data.hdf5_parts import ANY_TEXT, compound, dataset_of, enumeration, opaque, properties, reduced, text
from tests.formats.groups import group_of, reasons, refusals, values_of
from virtualstack.codecs.codec import CodecError
from virtualstack.codecs.hdf5.elements import ELEMENTS
from virtualstack.formats.hdf5.datatypes import decode_element, element_type, parse_library_datatype
from virtualstack.manifests import INLINE
from virtualstack.readers import ReadOptions
from virtualstack.testing.readers import difference

N = 7
HAS_COMPLEX = hasattr(h5t, "COMPLEX")


def number(name: str, order: str) -> h5t.TypeID:
    return getattr(h5t, f"{name}{order}")


def narrow(order: str, precision: int, offset: int, size: int = 4) -> h5t.TypeID:
    return reduced(number("STD_I64", order), precision, offset, size)


def odd_float(order: str, size: int, precision: int, *layout: int, bias: int) -> h5t.TypeID:
    tid = number("IEEE_F64", order).copy()
    tid.set_fields(*layout)
    tid.set_ebias(bias)
    tid.set_offset(0)
    tid.set_precision(precision)
    tid.set_size(size)
    return tid


def bitfield(order: str, size: int, offset: int, precision: int) -> h5t.TypeID:
    # HDF5 spec IV.A.2.d, class 4: size, bit offset, bit precision; before it, H5Tencode's two bytes
    numbers = ((size, 4), (offset, 2), (precision, 2))
    body = b"".join(n.to_bytes(width, "little") for n, width in numbers)
    return h5t.decode(bytes([3, 0, 0x14, order == "BE", 0, 0]) + body)


def types(order: str) -> dict[str, h5t.TypeID]:
    """Give the kinds of elements whose bytes are references, with what the HDF5 library has to do to them."""
    floats = {bits: number(f"IEEE_F{bits}", order) for bits in (16, 32, 64)}
    integers = {f"{s}{bits}": number(f"STD_{s}{bits}", order) for s in "IUB" for bits in (8, 16, 32, 64)}
    terminated, spaces = text(5, h5t.STR_NULLTERM), text(3, h5t.STR_SPACEPAD)
    inner = compound(11, ("x", 1, integers["I16"]), ("s", 4, terminated))
    found = {
        **{f"float{bits}": tid for bits, tid in floats.items()},
        **{f"integer_{name}": tid for name, tid in integers.items()},
        "integer_12_bits": narrow(order, 12, 4),
        "integer_1_bit": narrow(order, 1, 31),
        "integer_3_bytes": narrow(order, 24, 0, 3),
        "integer_37_bits": narrow(order, 37, 3, 5),
        "bitfield_5_bits": bitfield(order, 2, 3, 5),
        "float_bfloat16": odd_float(order, 2, 16, 15, 7, 8, 0, 7, bias=127),
        "float_24_bits": odd_float(order, 3, 24, 23, 16, 7, 0, 16, bias=63),
        "float_20_bits": odd_float(order, 4, 20, 19, 13, 6, 0, 13, bias=31),
        "string_padded": text(6, h5t.STR_NULLPAD),
        "string_utf8": text(6, h5t.STR_NULLPAD, h5t.CSET_UTF8),
        "string_terminated": terminated,
        "string_one_letter": text(1, h5t.STR_NULLTERM),
        "string_spaces": spaces,
        "string_long": text(1000, h5t.STR_NULLTERM),
        "opaque": opaque(5, b"of five bytes"),
        "times": opaque(8, b"NUMPY:<M8[s]" if order == "LE" else b"NUMPY:>m8[ns]"),
        "bool": enumeration(h5t.STD_I8LE, FALSE=0, TRUE=1),
        "enum": enumeration(integers["I16"], a=0, b=257, c=-1),
        "complex8": h5t.py_create(np.dtype("<c8" if order == "LE" else ">c8")),
        "complex16": h5t.py_create(np.dtype("<c16" if order == "LE" else ">c16")),
        "array": h5t.array_create(integers["U16"], (2, 3)),
        "array_of_strings": h5t.array_create(spaces, (2,)),
        "array_of_narrow": h5t.array_create(narrow(order, 24, 0, 3), (2,)),
        "arrays_of_arrays": h5t.array_create(h5t.array_create(floats[32], (2,)), (3,)),
        "compound": compound(12, ("a", 0, integers["I32"]), ("b", 4, floats[64])),
        "compound_padded": compound(40, ("b", 20, floats[64]), ("a", 3, integers["I32"])),
        "compound_nested": compound(60, ("i", 2, inner), ("two", 20, h5t.array_create(inner, (2,))), ("n", 45, spaces)),
        "compound_converted": compound(
            32, ("t", 1, h5t.array_create(terminated, (2,))), ("n", 12, narrow(order, 12, 4)), ("f", 16, floats[16])
        ),
        "compound_of_text": compound(11, ("t", 0, terminated), ("n", 6, narrow(order, 12, 4)), ("s", 5, text(1, 2))),
        "compound_bool": compound(4, ("t", 1, enumeration(h5t.STD_I8LE, FALSE=0, TRUE=1)), ("u", 2, integers["U8"])),
    }  # fmt: skip
    if HAS_COMPLEX:
        found |= {f"native_complex{2 * bits}": number(f"COMPLEX_IEEE_F{bits}", order) for bits in (32, 64)}
    return found


def library_types(order: str) -> dict[str, h5t.TypeID]:
    """Give the kinds of elements that only the HDF5 library makes values of."""
    brain = odd_float(order, 2, 16, 15, 7, 8, 0, 7, bias=127)
    single = number("IEEE_F32", order)
    return {
        "enum_of_narrow": enumeration(narrow(order, 12, 4), a=1, b=-2),
        "bool_of_two_bytes": enumeration(number("STD_I16", order), FALSE=0, TRUE=1),
        "complex_apart": compound(16, ("r", 0, single), ("i", 8, single)),
        "complex_swapped": compound(8, ("r", 4, single), ("i", 0, single)),
        "complex_of_brains": compound(4, ("r", 0, brain), ("i", 2, brain)),
        "compound_of_brains": compound(12, ("a", 0, brain), ("b", 4, single)),
    }


def random_elements(tid: h5t.TypeID, n: int, seed: int) -> np.ndarray:
    """Give stored bytes, most of them letters, spaces and NULs; bool and enumerations have the values of theirs."""
    rng, size = np.random.default_rng(seed), tid.get_size()
    raw = rng.choice(np.frombuffer(b"\0\0  ab\x80\x01", np.uint8), (n, size))
    if tid.get_class() == h5t.ENUM:
        values = [
            np.frombuffer(parse_library_datatype(tid.encode()).values, f"V{size}")[i]
            for i in rng.integers(0, tid.get_nmembers(), n)
        ]
        raw = np.frombuffer(b"".join(bytes(x) for x in values), np.uint8)
    if tid.get_class() == h5t.COMPOUND:
        raw = raw.copy()
        for i in range(tid.get_nmembers()):
            member, offset = tid.get_member_type(i), tid.get_member_offset(i)
            cells = random_elements(member, n, seed + i + 1).view(np.uint8).reshape(n, -1)
            raw[:, offset : offset + member.get_size()] = cells
    return np.ascontiguousarray(raw).reshape(-1).view(f"V{size}")


def stored_as(layout: str, shape: tuple[int, ...]) -> h5p.PropDCID:
    chunked = {"chunk": (tuple(min(n, 3) for n in shape),)}
    steps = {"contiguous": {}, "compact": {"layout": (h5d.COMPACT,)}, "chunked": chunked}
    return properties(**steps.get(layout, {**chunked, "shuffle": (), "deflate": (4,)}))


def write(
    file: h5py.File, name: str, tid: h5t.TypeID, layout: str, shape: tuple[int, ...] = (N,), seed: int = 0
) -> None:
    """Write stored bytes without conversion."""
    raw = random_elements(tid, int(np.prod(shape)), seed).reshape(shape)
    dataset_of(file, name, tid, shape, stored_as(layout, shape), raw=raw)


@pytest.mark.parametrize("layout", ["contiguous", "chunked", "gzip", "compact"])
@pytest.mark.parametrize("order", ["LE", "BE"])
def test_every_kind_of_element_is_equal(order, layout, tmp_path):
    """Through references, in every layout; compact ones stand in the object header and are inline."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        for i, (name, tid) in enumerate(types(order).items()):
            write(file, name, tid, layout, seed=i)
            write(file, f"{name}_2d", tid, layout, (2, 4), seed=i)
            tid.copy().commit(file.id, f"type_{name}".encode())
            write(file, f"{name}_committed", h5t.open(file.id, f"type_{name}".encode()), layout, seed=i)
    group, verdict = group_of(path, inline_limit=0), judge(path, options=ReadOptions(inline_limit=0))
    assert (verdict.wrong, verdict.refused, verdict.inlined, verdict.error) == ([], [], [], "")
    assert verdict.equal == 3 * len(types(order))
    for array in group.arrays.values():
        assert bool((array.manifest.entries["location"] == INLINE).all()) == (layout == "compact")


@pytest.mark.parametrize("layout", ["contiguous", "gzip", "compact"])
@pytest.mark.parametrize("order", ["LE", "BE"])
def test_what_only_the_library_converts_is_inlined(order, layout, tmp_path):
    """Equal to h5py, recorded, and refused beyond the limit."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        for i, (name, tid) in enumerate(library_types(order).items()):
            write(file, name, tid, layout, seed=i)
    verdict = judge(path)
    assert (verdict.wrong, verdict.refused, verdict.error) == ([], [], "")
    assert sorted(verdict.inlined) == sorted(f"/{name}" for name in library_types(order))
    assert {kind for kind, _ in refusals(group_of(path, inline_limit=0)).values()} == {"refused"}


@pytest.mark.parametrize("order", ["LE", "BE"])
def test_dtypes_are_those_of_h5py(order):
    """Told from the datatype message alone, for every kind of element that h5py has a dtype for."""
    for name, tid in (types(order) | library_types(order)).items():
        if name in ("integer_3_bytes", "integer_37_bits", "array_of_narrow"):
            continue
        found, base, shape = element_type(parse_library_datatype(tid.encode())), tid.dtype, ()
        while base.subdtype is not None:
            base, shape = base.subdtype[0], (*shape, *base.subdtype[1])
        assert found.subshape == shape, name
        if found.stored is not None:
            assert found.stored == base, name


@pytest.mark.parametrize("order", ["LE", "BE"])
@pytest.mark.parametrize("layout", ["contiguous", "gzip", "compact"])
def test_no_elements_and_no_dataspace(order, layout, tmp_path):
    """A dimension of length 0, one element without dimensions, and no value at all, for every kind of element."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        for i, (name, tid) in enumerate(types(order).items()):
            if layout != "gzip":
                raw = random_elements(tid, 1, i).reshape(())
                dataset_of(file, f"{name}_scalar", tid, (), stored_as(layout, ()), raw=raw)
                dataset_of(file, f"{name}_null", tid, None)
            shape, most = ((0, 3), (0, 3)) if layout != "gzip" else ((3, 2), (None, 3))
            dataset_of(file, name, tid, (0, 3), stored_as(layout, shape), maxshape=most)
    verdict = judge(path)
    assert (verdict.wrong, verdict.refused, verdict.error) == ([], [], "")
    assert verdict.equal + len(verdict.inlined) == (1 if layout == "gzip" else 3) * len(types(order))


@pytest.mark.parametrize("order", ["LE", "BE"])
def test_never_written_elements_are_fill_values(order, tmp_path):
    """Of the dataset's own, in the stored form, for every kind that h5py can give one for."""
    path = tmp_path / "x.h5"
    named = {
        name: tid for name, tid in types(order).items() if tid.get_class() not in (h5t.ARRAY, h5t.BITFIELD, h5t.OPAQUE)
    }
    with h5py.File(path, "w") as file:
        for name, tid in named.items():
            if "3_bytes" in name or "37_bits" in name:
                continue
            dcpl = stored_as("gzip", (N,))
            cell = np.zeros((), tid.dtype)
            cell[...] = 1 if tid.dtype.kind in "iufcb" else np.zeros((), tid.dtype)
            if tid.dtype.kind == "S":
                cell[...] = b"x"
            dcpl.set_fill_value(cell)
            dataset = dataset_of(file, name, tid, (N,), dcpl)
            dataset.id.write(h5s.create_simple((1,)), slab(N, 2), random_elements(tid, 1, 5), tid)
    verdict = judge(path)
    assert (verdict.wrong, verdict.refused, verdict.error) == ([], [], "")


def slab(n: int, at: int) -> h5s.SpaceID:
    space = h5s.create_simple((n,))
    space.select_hyperslab((at,), (1,))
    return space


def test_one_stored_element_has_a_value():
    """Such as a fill value in an object header."""
    found = element_type(parse_library_datatype(text(4, h5t.STR_NULLTERM).encode()))
    assert decode_element(b"a\0bc", found)[()] == b"a"
    found = element_type(parse_library_datatype(h5t.array_create(narrow("BE", 12, 4, 2), (2,)).encode()))
    assert decode_element(b"\xff\xef\x00\x1f", found).tolist() == [-2, 1]
    with pytest.raises(CodecError, match="not a whole number of elements"):
        decode_element(b"\xff", found)


CONVERTED = (
    "string_terminated",
    "string_spaces",
    "string_long",
    "integer_12_bits",
    "integer_3_bytes",
    "bitfield_5_bits",
    "float_bfloat16",
    "float_24_bits",
    "float_20_bits",
    "array_of_strings",
    "compound_of_text",
)


def converted_file(path) -> dict[str, np.ndarray]:
    """Write what is converted element by element; give the values."""
    with h5py.File(path, "w") as file:
        for i, (order, layout) in enumerate(itertools.product(("LE", "BE"), ("contiguous", "gzip"))):
            for name in CONVERTED:
                write(file, f"{name}_{order}_{layout}", types(order)[name], layout, seed=i)
    with h5py.File(path) as file:
        return {name: library_values(file[name]) for name in file}


@pytest.mark.parametrize("engine", ["kerchunk", "virtualstack"])
def test_readers_of_kerchunk_convert_elements(engine, tmp_path):
    """That of kerchunk, too: zarr with the codec that it finds by its entry point, without our reader."""
    pytest.importorskip("kerchunk")
    expected = converted_file(tmp_path / "x.h5")
    vds = virtualstack.open_virtual_dataset(tmp_path / "x.h5", loadable_variables=[])
    vds.virtual.to_kerchunk(str(tmp_path / "refs.json"))
    with xr.open_dataset(str(tmp_path / "refs.json"), engine=engine) as ds:
        assert set(ds.variables) == set(expected)
        for variable, values in expected.items():
            assert not difference(values, np.asarray(ds[variable].values))


def test_zarr_converts_elements(tmp_path):
    """Through a store, with the codec in metadata of version 3."""
    expected = converted_file(tmp_path / "x.h5")
    root = zarr.open_group(virtualstack.ManifestStore(group_of(tmp_path / "x.h5")), mode="r")
    for variable, values in expected.items():
        array = root[variable]
        assert not difference(values, np.asarray(array[...]))
        # records with padding are decoded before zarr sees them: it has no dtype for those
        codecs = [codec.to_dict()["name"] for codec in array.metadata.codecs]
        assert (ELEMENTS in codecs) == (values.dtype.names is None)


def test_reduced_precision_through_nbit(tmp_path):
    """The filter gives the stored containers back; the codec of elements comes after it."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        for name, tid in {"i": narrow("LE", 12, 4), "f": odd_float("BE", 4, 20, 19, 13, 6, 0, 13, bias=31)}.items():
            dcpl = stored_as("chunked", (N,))
            if not hasattr(dcpl, "set_filter"):
                pytest.skip("h5py sets no filters")
            dcpl.set_filter(h5py.h5z.FILTER_NBIT, 0, ())
            dataset_of(file, name, tid, (N,), dcpl)[...] = np.arange(N) - 3
    verdict = judge(path)
    assert (verdict.wrong, verdict.refused, verdict.error) == ([], [], "")


# ---- what has no byte-range form


def test_references_to_objects_are_their_paths(tmp_path):
    """Of any shape and layout, with and without a user block; nothing where a reference leads to nothing."""
    for userblock, layout in itertools.product((0, 512), ("contiguous", "gzip", "compact")):
        path = tmp_path / f"{layout}{userblock}.h5"
        with h5py.File(path, "w", userblock_size=userblock) as file:
            file["group/é"] = [1]
            file["group/named"] = np.dtype("f4")
            file["alias"] = h5py.SoftLink("/group/é")
            file["group/back"] = file["group"]
            tid = h5t.STD_REF_OBJ
            dataset = dataset_of(file, "x", tid, (2, 3), stored_as(layout, (2, 3)))
            for at, name in {
                (0, 0): "group/é",
                (0, 2): "/",
                (1, 0): "group",
                (1, 1): "x",
                (1, 2): "group/named",
            }.items():
                dataset[at] = file[name].ref
            dataset_of(file, "never", tid, (2,), stored_as("chunked", (2,)))
            dataset_of(file, "none", tid, (0,))
        group = group_of(path)
        paths = values_of(group.arrays["x"])
        assert paths[0, 0] in ("/group/é", "/alias")  # any of its names
        assert paths.ravel()[1:].tolist() == ["", "/", "/group", "/x", "/group/named"]
        assert values_of(group.arrays["never"]).tolist() == ["", ""]
        assert group.arrays["none"].shape == (0,)
        assert refusals(group)["/x"] == ("inlined", "references to objects have a meaning only in their file")
        assert not judge(path).wrong


def test_references_to_what_is_gone_are_refused(tmp_path):
    """Their paths are nowhere in the file."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file["gone"] = 1
        file.create_dataset("x", data=[file["gone"].ref], dtype=h5py.ref_dtype)
        del file["gone"]
    kind, reason = refusals(group_of(path))["/x"]
    assert kind == "refused"
    assert "a reference leads to address" in reason


def test_references_beyond_the_limit_are_refused(tmp_path):
    """By the bytes of the references, then by those of the paths."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file["a long name of a dataset"] = 1
        file.create_dataset("x", data=[file["a long name of a dataset"].ref] * 3, dtype=h5py.ref_dtype)
    assert (
        "its 24 bytes of references are more than the inline limit of 23"
        in refusals(group_of(path, inline_limit=23))["/x"][1]
    )
    assert "bytes are more than the inline limit of 24" in refusals(group_of(path, inline_limit=24))["/x"][1]
    assert refusals(group_of(path, inline_limit=200))["/x"][0] == "inlined"


def test_what_zarr_has_no_type_for_is_refused_by_name(tmp_path):
    """Sequences of any length, references to regions, and text or references inside of elements."""
    path = tmp_path / "x.h5"
    unnormal = odd_float("LE", 4, 32, 31, 24, 7, 0, 24, bias=63)
    unnormal.set_norm(h5t.NORM_MSBSET)
    refused = {
        "ragged": (h5t.vlen_create(h5t.STD_I32LE), "sequences of variable length"),
        "region": (h5t.STD_REF_DSETREG, "references to regions of datasets"),
        "text_in_compound": (
            compound(8, ("s", 0, ANY_TEXT)),
            "strings of variable length in a compound or array type",
        ),
        "texts": (h5t.array_create(ANY_TEXT, (2,)), "strings of variable length in a compound or array type"),
        "paths": (h5t.array_create(h5t.STD_REF_OBJ, (2,)), "references to objects in a compound or array type"),
        "time": (h5t.UNIX_D32LE, "the time class"),
        "long_double": (h5t.NATIVE_LDOUBLE, "floats of 80 bits in 16 bytes"),
        "quadruple": (h5t.IEEE_F128LE, "floats of 128 bits in 16 bytes"),
        "unnormal": (unnormal, "whose mantissa has no implied bit"),
        "brains": (
            compound(6, ("a", 0, odd_float("LE", 2, 16, 15, 7, 8, 0, 7, bias=127)), ("b", 2, h5t.STD_I32LE)),
            "compounds of floats of 16 bits in 2 bytes",
        ),
        "odd_member": (compound(4, ("a", 0, narrow("LE", 24, 0, 3))), "integers of 24 bits from bit 0 in 3 bytes"),
        "wrong_tag": (opaque(3, b"NUMPY:<M8[s]"), "opaque elements of 3 bytes with the tag 'NUMPY:<M8[s]'"),
        "objects": (opaque(8, b"NUMPY:|O8"), "opaque elements of 8 bytes with the tag 'NUMPY:|O8'"),
    }
    with h5py.File(path, "w") as file:
        for name, (tid, _) in refused.items():
            dataset_of(file, name, tid, (2,))
    found = refusals(group_of(path))
    for name, (_, reason) in refused.items():
        assert found[f"/{name}"][0] == "refused"
        assert reason in found[f"/{name}"][1]


def test_text_that_is_not_utf8_is_refused(tmp_path):
    """netCDF-4 and zarr know no other encoding, and h5py gives bytes, not text."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        for charset in ("ascii", "utf-8"):
            file.create_dataset(charset, data=["ü".encode("latin-1")], dtype=h5py.string_dtype(charset))
            file.create_dataset(f"{charset}_right", data=["ü".encode()], dtype=h5py.string_dtype(charset))
    group = group_of(path)
    assert "not UTF-8" in refusals(group)["/ascii"][1]
    assert "not UTF-8" in refusals(group)["/utf-8"][1]
    for name in ("ascii_right", "utf-8_right"):
        assert values_of(group.arrays[name]).tolist() == ["ü"]


def test_region_references_are_no_paths(tmp_path):
    """h5py's own view of them names a dataset and a selection, which no path holds."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file["a"] = np.arange(5)
        file.create_dataset("x", data=[file["a"].regionref[1:3]], dtype=h5py.regionref_dtype)
        assert h5r.get_name(file["x"][0], file.id) == b"/a"
    assert reasons(group_of(path)) == {"/x": "references to regions of datasets: zarr has no data type for it"}


@pytest.mark.parametrize("chunks", [None, (2,)])
def test_members_named_as_numpy_names_padding(chunks, tmp_path):
    """A padded compound whose members are called f0 and f1."""
    values = np.zeros(5, np.dtype("i1,f8,i2", align=True))
    values["f0"], values["f1"], values["f2"] = 1, np.arange(5), 7
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("x", data=values, chunks=chunks)
    found = virtualstack.open_virtual_dataset(tmp_path / "x.h5").virtual.open().x.values
    for name in values.dtype.names:
        np.testing.assert_array_equal(found[name], values[name])
