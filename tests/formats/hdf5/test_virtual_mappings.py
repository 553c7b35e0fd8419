import random
import re
from pathlib import Path

import h5py
import numpy as np
import pytest
from h5py import h5s
from numcodecs.jenkins import jenkins_lookup3

from tests.data.make_hdf5_virtual import U, make_virtual, space
from virtualstack.formats.hdf5.structures.requests import StructureError, Widths
from virtualstack.formats.hdf5.structures.virtual_mappings import (
    BoxSelection,
    Hyperslab,
    HyperslabAxis,
    MappedSelection,
    VirtualMapping,
    parse_mappings,
)

VERSIONS = ["earliest", "v110", "v112", "v200"]


def stored(path: Path, version: str, shape: tuple[int, ...], mappings) -> tuple[bytes, list[VirtualMapping]]:
    """The heap object of a virtual dataset, and what the HDF5 library makes of it."""
    make_virtual(path, shape, mappings, maxshape=(U,) * len(shape), fill=None, libver=version)
    raw = path.read_bytes()
    at = raw.index(b"GCOL") + 16
    size = int.from_bytes(raw[at + 8 : at + 16], "little")
    with h5py.File(path) as file:
        made = file["x"].id.get_create_plist()
        return raw[at + 16 : at + 16 + size], [
            VirtualMapping(
                made.get_virtual_filename(i),
                made.get_virtual_dsetname(i),
                place=selected(made.get_virtual_vspace(i)),
                source=selected(made.get_virtual_srcspace(i)),
            )
            for i in range(made.get_virtual_count())
        ]


def selected(space: h5s.SpaceID) -> MappedSelection:
    """What a dataspace of h5py selects."""
    if space.get_select_type() == h5s.SEL_ALL:
        return None
    if space.is_regular_hyperslab():
        axes = (
            [None if n == h5s.UNLIMITED else int(n) for n in axis]
            for axis in zip(*space.get_regular_hyperslab(), strict=True)
        )
        return Hyperslab(tuple(HyperslabAxis(*axis) for axis in axes))
    return BoxSelection(space.get_select_hyper_blocklist().astype(np.int64))


def boxes(selection: MappedSelection):
    """A selection written in one way; the stride of one block does not matter."""
    if isinstance(selection, BoxSelection):
        return sorted(selection.corners.tolist())
    return selection and [(x.start, x.count == 1 or x.stride, x.count, x.block) for x in selection.axes]


def plain(mappings):
    return [(x.file, x.dataset, boxes(x.place), boxes(x.source)) for x in mappings]


def some_mappings(rng: random.Random, shape: tuple[int, ...]):
    rank = len(shape)
    for _ in range(rng.randint(1, 6)):
        names = rng.choice(["s.h5", ".", "A" * 40, "ü" * 30]), rng.choice(["x", "B" * 40])
        axes = []
        for n in shape:
            count, block = rng.randint(1, 2), rng.randint(1, 2)
            stride = rng.randint(block, block + 1)
            axes.append((rng.randint(0, n - (count - 1) * stride - block), count, stride, block))
        slab = tuple(zip(*axes, strict=True))
        kind = rng.choice(["all", "regular", "boxes", "block", "count", "numbered"])
        if kind == "all":
            yield space(shape), *names, space(shape)
        elif kind == "regular":
            yield space(shape, slab), *names, space(shape, slab)
        elif kind == "boxes":
            slabs = [
                (tuple(rng.randint(0, n - 2) for n in shape), (1,) * rank, (1,) * rank, (rng.randint(1, 2),) * rank)
                for _ in range(3)
            ]
            yield space(shape, *slabs), *names, space(shape, *slabs)
        else:
            whole = (U, *shape[1:])
            start, block = (rng.randint(0, 2),) + (0,) * (rank - 1), (2, *shape[1:])
            growing = start, (U,) + (1,) * (rank - 1), (rng.randint(2, 4), *shape[1:]), block
            if kind == "block":
                growing = start, (1,) * rank, (1,) * rank, (U, *shape[1:])
            place = space(shape, growing, maxshape=whole)
            if kind == "numbered":
                yield place, "s%b", names[1], space(block)
            else:
                yield place, *names, space(shape, growing, maxshape=whole)


@pytest.mark.parametrize("version", VERSIONS)
def test_mappings_of_every_version_are_those_of_the_library(version, tmp_path):
    blocks = set()
    for seed in range(60):
        rng = random.Random(seed)
        scale = rng.choice([1, 70_000, 1 if version == "earliest" else 1 << 33])  # numbers of 2, 4 and 8 bytes
        shape = tuple(rng.randint(6, 12) * scale for _ in range(rng.randint(1, 3)))
        block, expected = stored(tmp_path / "v.h5", version, shape, some_mappings(rng, shape))
        assert plain(parse_mappings(block, Widths())) == plain(expected), seed
        blocks.add(block[0])
    assert blocks == ({0, 1} if version == "v200" else {0})


@pytest.fixture
def block(tmp_path) -> bytes:
    shape = (9, 4)
    corners = space(shape, ((0, 0), (1, 1), (1, 1), (2, 2)), ((5, 1), (1, 1), (1, 1), (1, 3)))
    parts = [(space(shape, ((i, 0), (1, 1), (1, 1), (1, 4))), "A" * 30, "x", space((4,))) for i in range(3)]
    return stored(tmp_path / "v.h5", "v200", shape, [*parts, (corners, "b", "y", corners)])[0]


def test_any_flipped_bit_is_found(block):
    for place in range(len(block)):
        for bit in range(8):
            damaged = bytearray(block)
            damaged[place] ^= 1 << bit
            with pytest.raises(StructureError, match=re.escape("their checksum is wrong")):
                parse_mappings(bytes(damaged), Widths())


def test_what_has_a_checksum_and_is_none_ends_in_an_error(block):
    """Any bytes are either other mappings or a `StructureError`."""
    n_read = 0
    rng = random.Random(0)
    for _ in range(3000):
        damaged = bytearray(block[:-4])
        for _ in range(rng.randint(1, 3)):
            damaged[rng.randrange(len(damaged))] = rng.choice([0, 1, 2, 3, 255, rng.randrange(256)])
        if rng.random() < 0.2:
            del damaged[rng.randrange(len(damaged)) :]
        whole = bytes(damaged) + jenkins_lookup3(bytes(damaged), 0).to_bytes(4, "little")
        try:
            mappings = parse_mappings(whole, Widths())
        except StructureError:
            continue
        assert len(mappings) == len(parse_mappings(block, Widths()))
        n_read += 1
    assert n_read > 100


def test_a_number_of_entries_that_has_no_room(block):
    damaged = block[:1] + (1 << 40).to_bytes(8, "little") + block[9:-4]
    with pytest.raises(StructureError, match="do not fit into"):
        parse_mappings(damaged + jenkins_lookup3(damaged, 0).to_bytes(4, "little"), Widths())


def test_no_selection_is_no_boxes():
    nothing = b"\0" * 4 + b"\1\0\0\0" + b"\0" * 8
    body = b"\0" + (1).to_bytes(8, "little") + b"f\0x\0" + 2 * nothing
    (mapping,) = parse_mappings(body + jenkins_lookup3(body, 0).to_bytes(4, "little"), Widths())
    assert isinstance(mapping.place, BoxSelection)
    assert mapping.place.corners.size == 0
    assert (mapping.file, mapping.dataset) == ("f", "x")
