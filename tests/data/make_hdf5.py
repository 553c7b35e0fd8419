"""Build small HDF5 files, each with one thing that readers stumble over; `BUILDERS` has them by name."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
from h5py import h5d, h5s, h5t

from tests.data.hdf5_parts import bfloat16, compound, dataset_of, properties, reduced, text

A = np.arange(24, dtype="i4").reshape(4, 6)
BUILDERS: dict[str, Callable[[Path], None]] = {}
LIBVERS = ("earliest", ("v108", "v108"), ("v110", "v110"), ("v114", "v114"), "latest")


def builder(function: Callable[[Path], None]) -> Callable[[Path], None]:
    BUILDERS[function.__name__] = function
    return function


def make(name: str, folder: Path) -> Path:
    """Build one file in a folder, and give its path."""
    path = folder / f"{name}.h5"
    BUILDERS[name](path)
    return path


def numbered(shape: tuple[int, ...], dtype: str = "f8") -> np.ndarray:
    return (np.arange(np.prod(shape, dtype=int)) % 251).reshape(shape).astype(dtype)


def chunk_indexes(path: Path, libver: str | tuple[str, str], *, userblock_size: int = 0) -> None:
    """Every kind of chunk index that a library version writes, whole, sparse, extended and with filters."""
    with h5py.File(path, "w", libver=libver, userblock_size=userblock_size) as file:
        cases = {
            "single": ((6, 10), (6, 10), (6, 10)),
            "edges": ((23, 31), (23, 31), (5, 7)),
            "larger_than_array": ((5,), (None,), (512,)),
            "fixed_max": ((20, 30), (100, 90), (3, 7)),
            "first": ((20, 30), (None, 30), (3, 7)),
            "first_max": ((20, 30), (None, 90), (3, 7)),
            "second": ((20, 30), (20, None), (3, 7)),
            "second_max": ((20, 30), (50, None), (3, 7)),
            "middle": ((6, 10, 8), (10, None, 20), (3, 3, 4)),
            "both": ((20, 30), (None, None), (3, 7)),
            "one_row": ((3, 50), (9, None), (3, 7)),
        }
        for (name, (shape, maxshape, chunks)), filtered, sparse in itertools.product(
            cases.items(), (False, True), (False, True)
        ):
            dataset = file.create_dataset(
                f"{name}{'_filtered' * filtered}{'_sparse' * sparse}",
                shape,
                "i4",
                chunks=chunks,
                maxshape=maxshape,
                fillvalue=-7,
                compression="gzip" if filtered else None,
                shuffle=filtered or None,
                fletcher32=filtered,
            )
            values = numbered(shape, "i4")
            if sparse:
                corner = tuple(slice(n // 2, n // 2 + 1) for n in shape)
                dataset[corner] = values[corner]
            else:
                dataset[...] = values
        grown = file.create_dataset("grown", (20, 10), "f4", chunks=(3, 4), maxshape=(20, None), compression="gzip")
        for n in (10, 25, 61):
            grown.resize((20, n))
            grown[:, -5:] = n
        shrunk = file.create_dataset("shrunk", (20, 60), "f4", chunks=(3, 4), maxshape=(20, None))
        shrunk[...] = numbered((20, 60), "f4")
        shrunk.resize((20, 13))
        file.create_dataset("never_written", (100,), "i4", chunks=(10,), fillvalue=3)
        file.create_dataset("no_elements", (0, 5), "i4", chunks=(10, 5), maxshape=(None, 5))
        file.create_dataset("contiguous", data=A)
        file.create_dataset("contiguous_never_written", (4, 6), "i4", fillvalue=5)
        early = properties(chunk=((3, 4),), alloc_time=(h5d.ALLOC_TIME_EARLY,))
        dataset_of(file, "implicit", h5t.STD_I32LE, (20, 30), early)[...] = numbered((20, 30), "i4")


for _libver in LIBVERS:
    _name = _libver if isinstance(_libver, str) else _libver[0]
    BUILDERS[f"indexes_{_name}"] = lambda path, libver=_libver: chunk_indexes(path, libver)
    BUILDERS[f"user_block_{_name}"] = lambda path, libver=_libver: chunk_indexes(path, libver, userblock_size=1024)


@builder
def layouts(path: Path) -> None:
    with h5py.File(path, "w") as file:
        compact = properties(layout=(h5d.COMPACT,))
        dataset_of(file, "compact", h5t.STD_I32BE, (4, 6), compact)[...] = A
        dataset_of(file, "compact_never_written", h5t.STD_I32BE, (4, 6), compact)
        file["scalar"] = np.float64(3)
        file.create_dataset("scalar_never_written", (), "f4", fillvalue=2)
        file["null"] = h5py.Empty("f4")
        file["null"].attrs["units"] = "m"
        file["no_elements"] = np.zeros((0, 3))


@builder
def fill_times(path: Path) -> None:
    with h5py.File(path, "w") as file:
        for name, when in {
            "never": h5d.FILL_TIME_NEVER,
            "if_set": h5d.FILL_TIME_IFSET,
            "alloc": h5d.FILL_TIME_ALLOC,
        }.items():
            for has_fill, is_chunked in itertools.product((False, True), (False, True)):
                dcpl = properties(fill_time=(when,))
                if has_fill:
                    dcpl.set_fill_value(np.array(7, "i4"))
                if is_chunked:
                    dcpl.set_chunk((3,))
                dataset = dataset_of(file, f"{name}_{has_fill}_{is_chunked}", h5t.STD_I32LE, (6,), dcpl)
                if is_chunked:
                    dataset[:2] = 1


@builder
def types(path: Path) -> None:
    with h5py.File(path, "w") as file:
        for code in ("i1", "<i2", ">i4", ">i8", "u1", ">u2", "<u4", "<u8", "<f2", ">f2", "<f4", ">f4", "<f8", ">f8"):
            file.create_dataset(f"number_{code.strip('<>')}_{code[0] == '>'}", data=A.astype(code), chunks=(3, 4))
        for code in ("<c8", ">c16"):
            file.create_dataset(f"complex_{code[1:]}", data=A.astype(code), chunks=(3, 4), fillvalue=1 + 2j)
        file.create_dataset("bool", data=A % 3 == 0, chunks=(3, 4), compression="gzip")
        file.create_dataset("enum", data=A % 3, dtype=h5py.enum_dtype({"A": 0, "B": 1, "C": 2}, "<i4"), chunks=(2, 3))
        file.create_dataset("opaque", data=np.array([b"ab", b"cd", b"\0x"], "V2"), chunks=(2,))
        file["times"] = np.arange(4).astype("M8[s]").astype(h5py.opaque_dtype("M8[s]"))
        record = np.zeros(5, [("a", "<i4"), ("b", ">f8"), ("c", "S3"), ("d", "<i2", (2, 2))])
        record["a"], record["b"], record["c"], record["d"] = 1, 2.5, b"xyz", np.arange(4).reshape(2, 2)
        file.create_dataset("record", data=record, chunks=(2,), fillvalue=record[0])
        padded = np.zeros(
            5, np.dtype({"names": ["a", "b"], "formats": ["i1", ">f8"], "offsets": [3, 8], "itemsize": 24})
        )
        padded["a"], padded["b"] = np.arange(5), np.arange(5) / 3
        file.create_dataset("padded", data=padded, chunks=(2,), shuffle=True, compression="gzip")
        nested = np.zeros(3, [("in", [("x", ">i2"), ("y", "<f4")]), ("n", "u1")])
        nested["in"]["x"] = [3, 4, 5]
        file["nested"] = nested
        arrays = file.create_dataset("arrays", (4,), np.dtype((">i4", (3,))), chunks=(3,))
        arrays[...] = np.arange(12).reshape(4, 3)
        file.create_dataset("arrays_never_written", (4,), np.dtype(("<i4", (2, 3))))
        file["committed"] = np.dtype("f4")
        file.create_dataset("of_committed", data=A.astype("f4"), dtype=file["committed"])


@builder
def strings(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("padded", data=np.array([b"ab", b"c\0d", b"efghi"], "S5"), chunks=(2,), compression="gzip")
        file["utf8"] = np.array(["é".encode(), b"x"], "S2").astype(h5py.string_dtype("utf-8", 2))
        for name, padding in (("terminated", h5t.STR_NULLTERM), ("spaces", h5t.STR_SPACEPAD)):
            dataset_of(file, name, text(5, padding), (2,), raw=np.array([b"a\0zzz", b"bc   "], "S5"))
        file.create_dataset("text", data=["a", "", "wörld", "x" * 300], dtype=h5py.string_dtype())
        file.create_dataset("text_scalar", data="one", dtype=h5py.string_dtype())
        file.create_dataset("text_chunked", (5,), h5py.string_dtype(), chunks=(2,), compression="gzip")[:2] = ["q", "r"]
        file.create_dataset("text_no_elements", (0,), h5py.string_dtype(), maxshape=(None,))
        file.create_dataset("text_not_utf8", data=[b"\xff\xfe"], dtype=h5py.string_dtype("ascii"))


@builder
def no_zarr_type(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["target"] = A
        ragged = file.create_dataset("ragged", (3,), h5py.vlen_dtype("i4"))
        ragged[0] = [1, 2]
        file.create_dataset("reference", (2,), h5py.ref_dtype)[0] = file["target"].ref
        file.create_dataset("region", (1,), h5py.regionref_dtype)
        file.create_dataset("with_text", (2,), [("a", "i4"), ("s", h5py.string_dtype())])
        file.create_dataset("with_reference", (2,), [("a", "i4"), ("r", h5py.ref_dtype)])
        dataset_of(file, "long_double", h5t.NATIVE_LDOUBLE, (3,))[...] = 1


@builder
def odd_numbers(path: Path) -> None:
    with h5py.File(path, "w") as file:
        dataset_of(file, "precision12", reduced(h5t.STD_I32LE, 12, 4), (4, 6))[...] = A
        three = h5t.STD_I32LE.copy()
        three.set_size(3)
        dataset_of(file, "three_bytes", three, (4, 6))
        dataset_of(file, "bfloat16", bfloat16(), (4, 6))[...] = A


@builder
def bitfields(path: Path) -> None:
    """Datasets, members and attributes of bitfields; PyTables writes bool as one of 8 bits."""
    fill = properties(chunk=((2,),))
    # H5Tencode: two bytes, then HDF5 spec IV.A.2.d, class 4: 2 bytes in size, from bit 3, of 5 bits; and 3 bytes
    narrow, three = (
        h5t.decode(bytes.fromhex(x)) for x in ("0300140000000200000003000500", "0300140000000300000000001800")
    )
    types = {"b8": h5t.STD_B8LE, "b16": h5t.STD_B16BE, "b64": h5t.STD_B64LE, "narrow": narrow, "three": three}
    with h5py.File(path, "w") as file:
        file["x"] = A
        for name, tid in types.items():
            record = compound(tid.get_size() + 1, ("a", 0, h5t.STD_I8LE), ("b", 1, tid))
            pair = h5t.array_create(tid, (2,))
            for kind, element in {"one": tid, "member": record, "pair": pair}.items():
                raw = numbered((5 * element.get_size(),), "u1").view(f"V{element.get_size()}")
                dataset_of(file, f"{name}_{kind}", element, (5,), raw=raw)
            dataset_of(file, f"{name}_never_written", tid, (5,), fill)
            for owner in (file, file["x"]):
                raw = numbered((tid.get_size(),), "u1").view(f"V{tid.get_size()}").reshape(())
                h5py.h5a.create(owner.id, name.encode(), tid, h5s.create(h5s.SCALAR)).write(raw, tid)


@builder
def filters(path: Path) -> None:
    with h5py.File(path, "w") as file:
        options = {
            "gzip": {"compression": "gzip"},
            "shuffle_gzip": {"compression": 4, "shuffle": True},
            "fletcher32": {"fletcher32": True},
            "all": {"compression": 1, "shuffle": True, "fletcher32": True},
            "lzf": {"compression": "lzf", "shuffle": True},
            "scaleoffset": {"scaleoffset": 0},
        }
        for name, how in options.items():
            file.create_dataset(name, data=numbered((23, 31), "i4"), chunks=(5, 7), **how)
        odd = properties(chunk=((2, 3),), deflate=(4,), shuffle=())
        dataset_of(file, "shuffle_after_gzip", h5t.STD_I32LE, (4, 6), odd)[...] = A
        file.create_dataset("bytes_shuffled", data=numbered((50,), "u1"), chunks=(7,), shuffle=True)


@builder
def filter_mask(path: Path) -> None:
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset("x", (4, 6), "i4", chunks=(4, 3), compression="gzip", shuffle=True)
        dataset.id.write_direct_chunk((0, 0), np.ascontiguousarray(A[:, :3]).tobytes(), filter_mask=0b11)
        dataset[:, 3:] = A[:, 3:]


@builder
def links(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["x"] = A
        file["hard"] = file["x"]
        file["soft"] = h5py.SoftLink("/x")
        file["dangling"] = h5py.SoftLink("/nowhere")
        file["dangling_external"] = h5py.ExternalLink("nowhere.h5", "/x")
        group = file.create_group("group")
        group["root"] = file["/"]
        group["itself"] = h5py.SoftLink("/group")
        group["loop"] = h5py.SoftLink("loop")
        group["y"] = A
        with h5py.File(path.with_name("other.h5"), "w") as other:
            other["there/z"] = A
        file["out"] = h5py.ExternalLink("other.h5", "/there")
        file["through"] = h5py.SoftLink("/out/z")
        file["group_again"] = group


@builder
def many_attributes(path: Path) -> None:
    with h5py.File(path, "w", libver="latest", track_order=True) as file:
        file["x"] = A
        for i in range(300):
            file["x"].attrs[f"a{i}"] = "v" * i
        file["x"].attrs["big"] = np.arange(100000)
        for i in range(200):
            file.create_dataset(f"y{i}", data=i)


@builder
def virtual(path: Path) -> None:
    with h5py.File(path.with_name("virtual_source.h5"), "w") as file:
        file["x"] = A
    with h5py.File(path, "w") as file:
        layout = h5py.VirtualLayout((5, 6), "i4")
        layout[:4] = h5py.VirtualSource("virtual_source.h5", "x", (4, 6))
        file.create_virtual_dataset("x", layout, fillvalue=-1)
        lost = h5py.VirtualLayout((4, 6), "i4")
        lost[...] = h5py.VirtualSource("lost.h5", "x", (4, 6))
        file.create_virtual_dataset("lost", lost)


@builder
def external(path: Path) -> None:
    beside = str(path.with_suffix(".bin"))
    with h5py.File(path, "w") as file:
        file.create_dataset("whole", (4, 6), "i4", external=[(beside, 0, 96)])[...] = A
        file.create_dataset("offset", (4, 6), ">i4", external=[(beside, 100, 96)])[...] = A
        parts = [(str(path.with_suffix(f".{i}")), 8, 48) for i in range(2)]
        file.create_dataset("parts", (4, 6), "i4", external=parts)[...] = A
        file.create_dataset("lost", (4, 6), "i4", external=[(str(path.with_suffix(".lost")), 0, 96)])
        file.create_dataset("short", (4, 6), "i4", external=[(str(path.with_suffix(".short")), 0, 96)])
    path.with_suffix(".short").write_bytes(b"\1" * 50)
