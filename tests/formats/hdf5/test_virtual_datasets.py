import os
import re
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr
import zarr
from h5py import h5s
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import virtualstack as vs
from tests.amount import examples
from tests.corpus.report import CORPUS
from tests.data.make_hdf5_virtual import U, make_sources, make_virtual, make_virtual_of_one, space
from tests.formats.groups import STORAGE, group_of, refusals, values_of
from tests.formats.hdf5.new_library import read_by_new_library
from virtualstack.location import absolute_url
from virtualstack.manifests import INLINE
from virtualstack.manifests.plain import why_not_plain

MANY = settings(max_examples=examples(75), deadline=None, suppress_health_check=list(HealthCheck))


def refusal(path: Path, **options) -> str:
    kind, reason = refusals(group_of(path, **options))["/x"]
    assert kind == "refused"
    return reason


def check(path: Path, *, name: str = "x", is_inline: bool = False) -> vs.manifests.ManifestArray:
    """Values are those of h5py, and nothing is inlined, or all is with a reason."""
    group = group_of(path, inline_limit=1 << 20 if is_inline else 0)
    assert (f"/{name}" in refusals(group)) is is_inline, refusals(group)
    array = group.arrays[name]
    with h5py.File(path) as file:
        expected = file[name][...]
    assert array.shape == expected.shape
    assert array.dtype == expected.dtype.newbyteorder("=")
    np.testing.assert_array_equal(values_of(array), expected)
    return array


def test_the_corpus(tmp_path):
    """Numbered sources of the HDF Group's own test, interleaved along an unlimited axis."""
    path = CORPUS / "hdf5" / "vds" / "4_vds.h5"
    if not path.exists():
        pytest.skip(f"no corpus at {CORPUS}")
    array = check(path, name="vds_dset")
    assert len(array.manifest.locations) == 3


# -- any mapping, against h5py -------------------------------------------------------------------------------------


@st.composite
def axis_selections(draw, n: int, size: int):
    """Start, count, stride and block of ``size`` elements of ``n``."""
    block = draw(st.sampled_from([d for d in range(1, size + 1) if size % d == 0])) if size else 1
    count = size // block
    stride = block
    if count > 1:
        stride = draw(st.integers(block, max((n - block) // (count - 1), block)))
    return draw(st.integers(0, n - (count - 1) * stride - block)), count, stride, block


@st.composite
def mosaics(draw):
    """Shape of a virtual dataset, and for each source its shape, selections and place."""
    ndim = draw(st.integers(1, 3))
    shape = tuple(draw(st.integers(1, 8)) for _ in range(ndim))
    tiles = []
    for _ in range(draw(st.integers(1, 4))):
        sizes = tuple(draw(st.integers(1, n)) for n in shape)
        place = [draw(axis_selections(n, size)) for n, size in zip(shape, sizes, strict=True)]
        inner = [size for size in sizes if size > 1 or draw(st.booleans())]
        for at in range(draw(st.integers(0, 1))):
            inner.insert(at, 1)
        whole = tuple(size + draw(st.integers(0, 5)) for size in inner)
        source = [draw(axis_selections(n, size)) for n, size in zip(whole, inner, strict=True)]
        tiles.append((whole, place, source))
    return shape, tiles


def slab(axes):
    return tuple(zip(*axes, strict=True))


@MANY
@given(data=mosaics(), how=st.data())
def test_any_boxes_of_any_sources_equal_h5py(tmp_path_factory, data, how):
    """Strides and blocks on both sides, other ranks, partial cover; chunks, codecs, holes, byte orders of sources."""
    shape, tiles = data
    folder = tmp_path_factory.mktemp("mosaic")
    mappings, covered = [], np.zeros(shape, int)
    for i, (whole, place, source) in enumerate(tiles):
        with h5py.File(folder / f"{i}.h5", "w") as file:
            options = how.draw(st.sampled_from([{}, {"compression": "gzip"}, {"shuffle": True, "fletcher32": True}]))
            chunks = tuple(how.draw(st.integers(1, n)) for n in whole) if whole else None
            if whole and (options or how.draw(st.booleans())):
                options = {**options, "chunks": chunks}
            values = np.arange(np.prod(whole, dtype=int)).reshape(whole) + 1000 * i
            if not whole:
                options = {}
            dataset = file.create_dataset("x", whole, how.draw(st.sampled_from(["<i8", ">i8"])), **options, fillvalue=7)
            if "chunks" in options and how.draw(st.booleans()):
                dataset[tuple(slice(0, 1) for _ in whole)] = 5  # the other chunks are never written
            else:
                dataset[...] = values
        start, count, stride, block = slab(place)
        where = np.zeros(shape, int)
        index = [
            np.concatenate([np.arange(a + k * s, a + k * s + b) for k in range(c)])
            for a, c, s, b in zip(start, count, stride, block, strict=True)
        ]
        where[np.ix_(*index)] = 1
        covered += where
        selected = space(whole, (slab(source)[0], *slab(source)[1:])) if whole else h5s.create(h5s.SCALAR)
        mappings.append((space(shape, (start, count, stride, block)), f"{i}.h5", "x", selected))
    make_virtual(folder / "v.h5", shape, mappings)
    if (covered > 1).any() and not covered.all():
        assert "overlap and leave elements out" in refusal(folder / "v.h5")
        return
    array = check(folder / "v.h5")
    array.validate()
    assert not (array.manifest.entries["location"] == INLINE).any()


@MANY
@given(st.data())
def test_what_grows_equals_h5py(tmp_path_factory, data):
    """Unlimited counts and blocks on both sides, several sources of other lengths beside fixed ones."""
    folder = tmp_path_factory.mktemp("grows")
    mappings, stored = [], 0
    n_sources = data.draw(st.integers(1, 3))
    stride = n_sources * data.draw(st.integers(1, 2))
    block = stride // n_sources
    for i in range(n_sources):
        n = data.draw(st.integers(1, 9))
        sources_shape = (n, 2)
        with h5py.File(folder / f"s{i}.h5", "w") as file:
            values = np.arange(2 * n).reshape(sources_shape) + 100 * i
            file.create_dataset("x", data=values, maxshape=(None, 2), chunks=(data.draw(st.integers(1, 5)), 2))
        if n_sources == 1 and data.draw(st.booleans()):
            place = ((data.draw(st.integers(0, 3)), 0), (1, 1), None, (U, 2))
        else:
            place = ((i * block, 0), (U, 1), (stride, 1), (block, 2))
        begin = data.draw(st.integers(0, 2))
        source = data.draw(st.sampled_from([((begin, 0), (1, 1), None, (U, 2)), ((begin, 0), (U, 1), (3, 1), (2, 2))]))
        mappings.append(
            (space((0, 2), place, maxshape=(U, 2)), f"s{i}.h5", "x", space((n, 2), source, maxshape=(U, 2)))
        )
    if data.draw(st.booleans()) and n_sources == 1:
        with h5py.File(folder / "fixed.h5", "w") as file:
            file["x"] = np.arange(4).reshape(2, 2) - 50
        stored = 42
        fixed = space((stored, 2), ((40, 0), (1, 1), None, (2, 2)), maxshape=(U, 2))
        mappings.append((fixed, "fixed.h5", "x", space((2, 2))))
    make_virtual(folder / "v.h5", (stored, 2), mappings, maxshape=(U, 2))
    with h5py.File(folder / "v.h5") as file:
        try:
            file["x"][...]
        except OSError:
            assert "blocks of 2 elements of a source that has 1 of the first one" in refusal(folder / "v.h5")
            return
    check(folder / "v.h5")


@pytest.mark.parametrize("n", [0, 1, 4])
@pytest.mark.parametrize(("start", "stride"), [(0, 1), (1, 2)])
@pytest.mark.parametrize("names", [("s%b.h5", "x"), (".", "d%b"), ("g%%%b.h5", "x")])
def test_numbered_sources_equal_h5py(n, start, stride, names, tmp_path):
    """``%b`` counts sources until the first that is not there; none at all is an empty dataset."""
    file, dataset = names
    place = space((0, 6), ((start, 0), (U, 1), (stride, 1), (1, 6)), maxshape=(U, 6))
    make_virtual(tmp_path / "v.h5", (0, 6), [(place, file, dataset, space((6,)))], maxshape=(U, 6))
    make_sources(tmp_path, 6, chunks=(4,))
    (tmp_path / f"s{n}.h5").unlink()
    for i in range(n):
        shutil.copy(tmp_path / f"s{i}.h5", tmp_path / f"g%{i}.h5")
        with h5py.File(tmp_path / "v.h5", "a") as main:
            main[f"d{i}"] = np.arange(6) + 10 * i
    assert check(tmp_path / "v.h5").shape == ((start + (n - 1) * stride + 1 if n else 0), 6)


def test_a_union_of_boxes(tmp_path):
    """An outer product of runs is a reference; what is none is inlined, and equal too."""
    with h5py.File(tmp_path / "s.h5", "w") as file:
        file["x"] = np.arange(30).reshape(5, 6)
    rows = space((9, 6), ((0, 0), (2, 6)), ((5, 0), (1, 6)), ((7, 0), (2, 6)))
    make_virtual(tmp_path / "rows.h5", (9, 6), [(rows, "s.h5", "x", space((5, 6)))])
    check(tmp_path / "rows.h5")
    grid = space((9, 9), *(((i, j), (n, m)) for i, n in ((0, 2), (4, 1)) for j, m in ((1, 3), (6, 1))))
    corner = space((5, 6), ((1, 1), (3, 4)))
    make_virtual(tmp_path / "grid.h5", (9, 9), [(grid, "s.h5", "x", corner)])
    check(tmp_path / "grid.h5")
    corners = space((9, 9), ((0, 0), (2, 3)), ((5, 5), (4, 2)), ((7, 7), (2, 2)))
    picked = space((5, 6), ((0, 0), (3, 6)))
    make_virtual(tmp_path / "corners.h5", (9, 9), [(corners, "s.h5", "x", picked)])
    check(tmp_path / "corners.h5", is_inline=True)
    assert "not an outer product" in refusal(tmp_path / "corners.h5", inline_limit=0)


@pytest.mark.parametrize(
    ("shape", "source", "reason"),
    [
        ((2, 3), (6,), r"\(2, 3\) elements are \(6,\) of its source 'x'"),
        ((4, 1, 3), (3, 4), r"\(4, 1, 3\) elements are \(3, 4\) of its source"),
    ],
)
def test_other_axes_are_inlined(shape, source, reason, tmp_path):
    """Elements are mapped in C order, whatever the axes: where axes are split or merged, values are read."""
    make_sources(tmp_path, 1, source)
    make_virtual_of_one(tmp_path / "v.h5", "s0.h5", shape=shape, source=space(source))
    check(tmp_path / "v.h5", is_inline=True)
    assert re.search(reason, refusal(tmp_path / "v.h5", inline_limit=0))


@pytest.mark.parametrize(
    ("virtual", "source", "reason"),
    [
        ("f4", "i8", "values are 'float32', those of its source 'x' are 'int64'"),
        ("i2", "f8", "values are 'int16', those of its source 'x' are 'float64'"),
        (">u4", ">u2", "values are 'uint32', those of its source 'x' are 'uint16'"),
        ("S3", "S5", r"values are '\|S3', those of its source 'x' are '\|S5'"),
    ],
)
def test_other_types_are_inlined(virtual, source, reason, tmp_path):
    """The HDF5 library converts them."""
    make_sources(tmp_path, 1, dtype=source)
    make_virtual_of_one(tmp_path / "v.h5", "s0.h5", dtype=virtual, fill=None)
    check(tmp_path / "v.h5", is_inline=True)
    assert re.search(reason, refusal(tmp_path / "v.h5", inline_limit=0))


@pytest.mark.parametrize("virtual", ["<i4", ">i4"])
def test_other_byte_orders_are_references(virtual, tmp_path):
    """They stand in the encoding of each source."""
    for i, dtype in enumerate(("<i4", ">i4")):
        with h5py.File(tmp_path / f"s{i}.h5", "w") as file:
            file["x"] = np.arange(6, dtype=dtype) + i
    mappings = [(space((12,), ((6 * i,), (6,))), f"s{i}.h5", "x", space((6,))) for i in range(2)]
    make_virtual(tmp_path / "v.h5", (12,), mappings, dtype=virtual)
    check(tmp_path / "v.h5")


def test_the_same_file_and_paths_in_it(tmp_path):
    """Absolute and relative paths, soft links, and the file by its name."""
    with h5py.File(tmp_path / "v.h5", "w") as file:
        file["g/y"] = np.arange(6)
        file["link"] = h5py.SoftLink("/g/y")
    mappings = [
        (space((4, 6), ((i, 0), (1, 6))), name, path, space((6,)))
        for i, (name, path) in enumerate(((".", "/g/y"), (".", "g//y"), (".", "link"), ("v.h5", "g/y")))
    ]
    make_virtual(tmp_path / "v.h5", (4, 6), mappings, mode="a")
    check(tmp_path / "v.h5")


def test_virtual_datasets_of_virtual_datasets(tmp_path):
    """Each level is cut again."""
    make_sources(tmp_path, 4, chunks=(4,))
    for level, (n, shape) in enumerate([(2, 12), (2, 24)]):
        for i in range(4 if level == 0 else 1):
            kind = "s" if level == 0 else "v"
            part = shape // n
            places = [space((shape,), ((j * part,), (part,))) for j in range(n)]
            mappings = [(x, f"{kind}{(i + j) % 4}.h5", "x", space((part,))) for j, x in enumerate(places)]
            make_virtual(tmp_path / (f"v{i}.h5" if level == 0 else "w.h5"), (shape,), mappings)
    check(tmp_path / "w.h5")


def test_elements_of_an_array_type(tmp_path):
    """Their axes come behind those that are mapped."""
    kind = np.dtype(("i4", (3,)))
    with h5py.File(tmp_path / "s.h5", "w") as file:
        file.create_dataset("x", (4,), kind)[...] = np.arange(12).reshape(4, 3)
    with h5py.File(tmp_path / "v.h5", "w") as file:
        layout = h5py.VirtualLayout((6,), kind)
        layout[1:5:2] = h5py.VirtualSource("s.h5", "x", (4,), kind)[1:3]
        file.create_virtual_dataset("x", layout)
    check(tmp_path / "v.h5")


def test_records_and_text(tmp_path):
    """Compounds are references; strings of variable length are inline in their sources."""
    kind = np.dtype([("a", "i1"), ("b", "f8")], align=True)
    with h5py.File(tmp_path / "s.h5", "w") as file:
        file.create_dataset("x", (4,), kind, chunks=(3,))["a"] = np.arange(4)
        file.create_dataset("text", data=["a", "", "wörld"], dtype=h5py.string_dtype())
    with h5py.File(tmp_path / "v.h5", "w") as file:
        for name, n, dtype in (("x", 4, kind), ("text", 3, h5py.string_dtype())):
            layout = h5py.VirtualLayout((n,), dtype)
            layout[:] = h5py.VirtualSource("s.h5", name, (n,), dtype)
            file.create_virtual_dataset(name, layout)
    group = group_of(tmp_path / "v.h5")
    with h5py.File(tmp_path / "v.h5") as file:
        for field in "ab":
            np.testing.assert_array_equal(values_of(group.arrays["x"])[field], file["x"][...][field])
        assert values_of(group.arrays["text"]).tolist() == file["text"].asstr()[...].tolist()


# -- what is not there, or not right -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "dataset", "reason"),
    [
        ("lost.h5", "x", "whose source file 'lost.h5' does not exist; the HDF5 library would show fill values"),
        ("s0.h5", "lost", "whose source 'lost' is not in 's0.h5'; the HDF5 library would show fill values"),
        (".", "lost", "whose source 'lost' is not in the file"),
        ("s0.h5", "group", "whose source 'group' is not in 's0.h5'"),
        (
            "garbage.h5",
            "x",
            "whose source 'x' cannot be opened: .*garbage.h5' is truncated, damaged or not an HDF5 file",
        ),
        ("", "x", "whose source 'x' cannot be opened: .*is a directory"),
        ("fifo.h5", "x", "whose source 'x' cannot be opened: .*is a pipe"),
        ("s0.h5", "ragged", "whose source '/ragged' is refused: sequences of variable length"),
        ("s0.h5", "short", "6 elements mapped to 5 of the source"),
        ("s0.h5", "long", "6 elements mapped to 8 of the source"),
        ("s%%0.h5", "x", r"source file 's%0.h5' does not exist"),
    ],
)
def test_sources_that_are_not_there_are_refused_by_name(file, dataset, reason, tmp_path):
    """Where the HDF5 library shows fill values, or an error."""
    make_sources(tmp_path, 1)
    with h5py.File(tmp_path / "s0.h5", "a") as source:
        source.create_group("group")
        source.create_dataset("ragged", (6,), h5py.vlen_dtype("i4"))
        source["short"], source["long"] = np.arange(5), np.arange(8)
    (tmp_path / "garbage.h5").write_bytes(b"garbage" * 100)
    os.mkfifo(tmp_path / "fifo.h5")
    make_virtual_of_one(tmp_path / "v.h5", file, dataset)
    assert re.search(reason, refusal(tmp_path / "v.h5"))


def test_selections_outside_of_the_source_are_refused(tmp_path):
    """The HDF5 library fails on them."""
    make_sources(tmp_path, 1)
    make_virtual_of_one(tmp_path / "v.h5", "s0.h5", source=space((12,), ((4,), (6,))))
    assert "a selection up to (10,) where the shape is (6,) (source 'x')" in refusal(tmp_path / "v.h5")
    make_virtual_of_one(tmp_path / "v.h5", "s0.h5", source=space((6, 2), ((0, 0), (6, 1))))
    assert "a selection up to (6, 1) where the shape is (6,)" in refusal(tmp_path / "v.h5")


def test_mappings_that_overlap(tmp_path):
    """The last one is seen; where elements are left out too, the HDF5 library shows what was in memory."""
    make_sources(tmp_path, 2)
    for n, is_lost in ((9, False), (10, True)):
        places = [space((n,), ((3 * i,), (6,))) for i in range(2)]
        make_virtual(tmp_path / "v.h5", (n,), [(x, f"s{i}.h5", "x", space((6,))) for i, x in enumerate(places)])
        if is_lost:
            assert "overlap and leave elements out" in refusal(tmp_path / "v.h5")
        else:
            check(tmp_path / "v.h5")


def read_refused(path: Path) -> list[str]:
    """Read a file that crashes the HDF5 library; return what is refused without and with inlining."""
    found = [group_of(path, inline_limit=limit) for limit in (0, 1 << 20)]
    return [f"{sorted(group.arrays)} {' '.join(x.reason for x in group.refusals)}" for group in found]


def alias(v: Path, _: Path) -> None:
    make_virtual_of_one(v, ".", "y")
    with h5py.File(v, "a") as file:
        file["y"] = file["x"]


def growing(v: Path, _: Path) -> None:
    grows = space((6,), ((0,), (1,), None, (U,)), maxshape=(U,))
    make_virtual(v, (0,), [(grows, "v.h5", "x", grows)], maxshape=(U,))


OWN_SOURCES = {
    "itself": lambda v, w: make_virtual_of_one(v, "."),
    "name": lambda v, w: make_virtual_of_one(v, "v.h5", "//x"),
    "mutual": lambda v, w: (make_virtual_of_one(v, "w.h5"), make_virtual_of_one(w, "v.h5")),
    "alias": alias,
    # of another type: the way to inlining
    "bitten": lambda v, w: (make_virtual_of_one(v, "w.h5", dtype="f4"), make_virtual_of_one(w, "v.h5", shape=(2, 3))),
    "growing": growing,
}


@pytest.mark.parametrize("kind", OWN_SOURCES)
def test_a_dataset_that_is_its_own_source_is_refused(kind, tmp_path):
    """The HDF5 library runs out of stack and takes the process with it."""
    OWN_SOURCES[kind](tmp_path / "v.h5", tmp_path / "w.h5")
    found = read_refused(tmp_path / "v.h5")
    assert len(found) == 2
    assert all("without end: " in line and "'/x'" in line for line in found)


def test_datasets_in_layers_are_read_once(tmp_path):
    """Ten layers of ten, each of all ten below: they are a hundred datasets, not ten thousand millions."""
    with h5py.File(tmp_path / "v.h5", "w") as file:
        file["d0_0"] = np.arange(10)
    for level in range(1, 9):
        for i in range(6):
            below = [f"d{level - 1}_{j if level > 1 else 0}" for j in range(6)]
            mappings = [
                (space((10,), ((j,), (1,))), ".", name, space((10,), ((j,), (1,)))) for j, name in enumerate(below)
            ]
            make_virtual(tmp_path / "v.h5", (10,), mappings, name=f"d{level}_{i}", mode="a")
    group = group_of(tmp_path / "v.h5")
    assert len(group.arrays) == 49
    np.testing.assert_array_equal(values_of(group.arrays["d8_5"]), [0, 1, 2, 3, 4, 5, -1, -1, -1, -1])


def test_a_source_that_grows_itself_is_refused(tmp_path):
    """The HDF5 library shows its shape as it was when written, and fill values."""
    make_sources(tmp_path, 1, maxshape=(None,), chunks=(4,))
    grows = space((6,), ((0,), (1,), None, (U,)), maxshape=(U,))
    make_virtual(tmp_path / "inner.h5", (0,), [(grows, "s0.h5", "x", grows)], maxshape=(U,))
    make_virtual_of_one(tmp_path / "v.h5", "inner.h5", source=space((6,), ((0,), (6,))))
    assert "and a source itself" in refusal(tmp_path / "v.h5")
    assert "grow with its sources" in refusal(tmp_path / "v.h5")


def test_sources_without_references_count_as_inline(tmp_path):
    """All of them together, against the limit of one variable."""
    kind = h5py.string_dtype()
    with h5py.File(tmp_path / "v.h5", "w") as file:
        layout = h5py.VirtualLayout((4000,), kind)
        for i in range(4):
            with h5py.File(tmp_path / f"s{i}.h5", "w") as source:
                source["x"] = np.array([f"{i} {'x' * 60} {j}" for j in range(1000)], object)
            layout[1000 * i : 1000 * i + 1000] = h5py.VirtualSource(f"s{i}.h5", "x", (1000,), kind)
        file.create_virtual_dataset("x", layout)
    assert "bytes of their values are more than the inline limit of 200000" in refusal(
        tmp_path / "v.h5", inline_limit=200000
    )
    array = group_of(tmp_path / "v.h5").arrays["x"]
    assert values_of(array, (slice(999, 2001, 1000),)).tolist()[1] == f"1 {'x' * 60} 999"


# -- where sources are looked for ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prefix", "name", "folders", "found"),
    [
        (None, "s0.h5", ("data", "work"), "data"),
        (None, "s0.h5", ("work",), "work"),
        (None, "{}/data/raw/s0.h5", ("data/raw", "data"), "data/raw"),
        (None, "{}/nowhere/s0.h5", ("data",), "data"),
        (None, "raw/s0.h5", ("data/raw",), "data/raw"),
        (None, "../work/s0.h5", ("data", "work"), "work"),
        ("${ORIGIN}/raw", "s0.h5", ("data", "data/raw"), "data/raw"),
        ("raw", "s0.h5", ("data", "data/raw", "work/raw"), "work/raw"),
        ("${ORIGIN}/nowhere", "s0.h5", ("data",), "data"),
        ("raw:${ORIGIN}/raw", "s0.h5", ("work/raw", "data/raw"), "work/raw"),
        (None, "s0.h5", ("real",), "real"),
    ],
)
def test_relative_names_lie_where_the_library_looks(prefix, name, folders, found, tmp_path, monkeypatch):
    """At an absolute path, below the prefix of the environment, beside the file, in the working directory."""
    for folder in ("data", "work", "real"):
        (tmp_path / folder).mkdir()
    for i, folder in enumerate(folders):
        (tmp_path / folder).mkdir(exist_ok=True)
        make_sources(tmp_path / folder, 1)
        with h5py.File(tmp_path / folder / "s0.h5", "a") as file:
            file["x"][...] += i
    path = tmp_path / "data" / "v.h5"
    make_virtual_of_one(tmp_path / "real" / "v.h5", name.format(tmp_path))
    path.symlink_to("../real/v.h5")
    monkeypatch.chdir(tmp_path / "work")
    if prefix is not None:
        monkeypatch.setenv("HDF5_VDS_PREFIX", prefix)
    array = group_of(path, inline_limit=0).arrays["x"]
    assert array.manifest.locations[0].url == absolute_url(tmp_path / found / "s0.h5")
    assert values_of(array).tolist() == read_by_new_library(path)


def put(path: Path, url: str) -> None:
    folder, _, key = url.rpartition("/")
    STORAGE.target(folder + "/").put(key, path.read_bytes())


def test_remote_sources_lie_beside_the_file(tmp_path):
    """A virtual dataset at a URL refers to what is beside and below it there."""
    make_sources(tmp_path, 2, chunks=(4,))
    names = ["s0.h5", "sub/s1.h5"]
    mappings = [(space((12,), ((6 * i,), (6,))), name, "x", space((6,))) for i, name in enumerate(names)]
    make_virtual(tmp_path / "v.h5", (12,), mappings)
    for name, key in {"v.h5": "v.h5", "s0.h5": "s0.h5", "s1.h5": "sub/s1.h5"}.items():
        put(tmp_path / name, f"memory://vds/data/{key}")
    array = group_of("memory://vds/data/v.h5", inline_limit=0).arrays["x"]
    assert [x.url for x in array.manifest.locations] == ["memory://vds/data/s0.h5", "memory://vds/data/sub/s1.h5"]
    np.testing.assert_array_equal(values_of(array), [*range(6), *range(100, 106)])


@pytest.mark.parametrize(
    "name",
    [
        "{}/s0.h5",
        "../s0.h5",
        "file://{}/s0.h5",
        "http://169.254.169.254/s0.h5",
        "a/../../s0.h5",
        "..\\s0.h5",
        "",
        "s?x#y",
    ],
)
def test_remote_files_name_no_others(name, tmp_path):
    """No local file, no other host, nothing above: who gives us a file at a URL does not choose what we read."""
    make_sources(tmp_path, 1)
    make_virtual_of_one(tmp_path / "v.h5", name.format(tmp_path))
    put(tmp_path / "v.h5", "memory://vds/far/v.h5")
    put(tmp_path / "s0.h5", "memory://vds/s0.h5")
    for limit in (0, 1 << 20):
        group = group_of("memory://vds/far/v.h5", inline_limit=limit)
        assert not group.arrays
        assert "is another file, looked for only beside and below 'memory://vds/far/v.h5'" in refusals(group)["/x"][1]


def test_remote_values_are_not_inlined_from_other_files(tmp_path, monkeypatch):
    """The HDF5 library would take the file itself for its source, or one in the working directory."""
    monkeypatch.chdir(tmp_path)
    make_sources(tmp_path, 1)
    make_virtual_of_one(tmp_path / "v.h5", "s0.h5", shape=(2, 3))
    put(tmp_path / "v.h5", "memory://vds/inline/v.h5")
    url = "memory://vds/inline/v.h5"
    assert "source file 's0.h5' does not exist" in refusals(group_of(url))["/x"][1]
    put(tmp_path / "s0.h5", "memory://vds/inline/s0.h5")
    reason = refusals(group_of(url))["/x"][1]
    assert "(6,) of its source 'x'; the HDF5 library reads other files beside local ones only" in reason
    with h5py.File(tmp_path / "own.h5", "w") as file:
        file["y"] = np.arange(6)
    make_virtual_of_one(tmp_path / "own.h5", ".", "y", shape=(2, 3), mode="a")
    put(tmp_path / "own.h5", "memory://vds/inline/own.h5")
    group = group_of("memory://vds/inline/own.h5")
    np.testing.assert_array_equal(values_of(group.arrays["x"]), np.arange(6).reshape(2, 3))


# -- through the whole house ---------------------------------------------------------------------------------------


def test_stacked_files_are_plain(tmp_path):
    """A file a time step, stacked on a new axis, as detectors and models do: kerchunk and zarr take it whole."""
    make_sources(tmp_path, 5, (4, 6), dtype="f4", chunks=(2, 3), compression="gzip")
    with h5py.File(tmp_path / "v.h5", "w") as file:
        layout = h5py.VirtualLayout((5, 4, 6), "f4")
        for i in range(5):
            layout[i] = h5py.VirtualSource(f"s{i}.h5", "x", (4, 6))
        file.create_virtual_dataset("x", layout, fillvalue=0)
    array = check(tmp_path / "v.h5")
    assert why_not_plain(array) is None
    with h5py.File(tmp_path / "v.h5") as file:
        expected = file["x"][...]
    group = group_of(tmp_path / "v.h5")
    np.testing.assert_array_equal(zarr.open_group(vs.ManifestStore(group), mode="r")["x"][...], expected)
    vds = vs.open_virtual_dataset(tmp_path / "v.h5", loadable_variables=[])
    np.testing.assert_array_equal(vds.virtual.open()["x"].values, expected)
    vds.virtual.to_kerchunk(tmp_path / "refs.json", inline_limit=0)
    with xr.open_dataset(str(tmp_path / "refs.json"), engine="kerchunk") as found:
        np.testing.assert_array_equal(found["x"].values, expected)


def test_interleaved_frames_through_the_store(tmp_path):
    """What is not plain is served decoded."""
    make_sources(tmp_path, 2, (5, 4), chunks=(2, 4))
    with h5py.File(tmp_path / "v.h5", "w") as file:
        layout = h5py.VirtualLayout((10, 6), "i8")
        for i in range(2):
            layout[i::2, 1:5] = h5py.VirtualSource(f"s{i}.h5", "x", (5, 4))
        file.create_virtual_dataset("x", layout, fillvalue=-9)
    check(tmp_path / "v.h5")
    with h5py.File(tmp_path / "v.h5") as file:
        expected = file["x"][...]
    store = vs.ManifestStore(group_of(tmp_path / "v.h5"))
    np.testing.assert_array_equal(zarr.open_group(store, mode="r")["x"][...], expected)
    np.testing.assert_array_equal(
        vs.open_virtual_dataset(tmp_path / "v.h5").virtual.open()["x"][3:7, ::2], expected[3:7, ::2]
    )


def test_a_source_that_changes_is_found(tmp_path):
    """Its size is recorded with the reference."""
    make_sources(tmp_path, 1)
    make_virtual_of_one(tmp_path / "v.h5", "s0.h5")
    vds = vs.open_virtual_dataset(tmp_path / "v.h5")
    with (tmp_path / "s0.h5").open("ab") as file:
        file.write(b"more")
    with pytest.raises(vs.errors.SourceChangedError, match=r"s0\.h5"):
        vds.virtual.open()["x"].load()
