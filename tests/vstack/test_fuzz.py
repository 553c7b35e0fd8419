"""Damaged and hostile vstacks give values or errors of ours, and nothing else."""

import gzip
import itertools
import json
import os

import numpy as np
import pytest
from numcodecs import blosc

from tests.amount import examples
from tests.data.arrays import referenced
from tests.vstack.fuzz import fuzz
from virtualstack.codecs.codec import Codec
from virtualstack.errors import MalformedFileError, ManifestError
from virtualstack.formats.base import ReadOptions
from virtualstack.location import Location
from virtualstack.manifests import ManifestGroup
from virtualstack.reading import read_array
from virtualstack.storage import Storage
from virtualstack.storage.memory import _OBJECTS as OBJECTS
from virtualstack.vstack.format import documents
from virtualstack.vstack.format.documents import decompressed
from virtualstack.vstack.reader import VStack
from virtualstack.vstack.save import save

SERIAL = itertools.count()


@pytest.mark.parametrize("n", [examples(90), pytest.param(300, marks=pytest.mark.apart)])
def test_mutations_end_in_values_or_typed_errors(n):
    """In a process with limits of time and memory; many more with ``python -m tests.vstack.fuzz``."""
    outcomes = fuzz(n, first=10**9)
    assert sum(outcomes.values()) == n
    assert not [what for what in outcomes if what.startswith("BAD")]
    assert {"same", "read", "MalformedFileError"} <= outcomes.keys()


def store():
    """Four chunks of one source, and the key of the snapshot."""
    number = next(SERIAL)
    source = Location(f"memory://hostile/{number}.bin", size=16)
    OBJECTS[source.url] = bytes(range(16))
    array = referenced(np.arange(4) * 4, np.full(4, 4), (4,), location=source)
    url = f"memory://hostile/{number}.vstack"
    save(ManifestGroup(arrays={"v": array}), url)
    return url, f"{url}/.vstack/snapshots/999999999999.json.gz"


def read(url):
    group = VStack().read(url, Storage.from_option(None), ReadOptions())
    return read_array(group.arrays["v"], ..., None)


def changed(change):
    url, key = store()
    document = json.loads(gzip.decompress(OBJECTS[key]))
    change(document, document["arrays"]["/v"])
    OBJECTS[key] = gzip.compress(json.dumps(document).encode())
    return url


def test_the_store_that_is_changed_below_is_good():
    assert read(changed(lambda snapshot, array: None)).tolist() == list(range(16))


def test_cells_that_nobody_places_are_missing():
    """Even where there are no placements at all."""
    url = changed(lambda snapshot, array: array.update(placements={"pages": [], "tail": []}))
    assert read(url).tolist() == [0] * 16


@pytest.mark.parametrize(
    "change",
    [
        lambda snapshot, array: array["placements"]["tail"][0].__setitem__(1, 0.5),
        lambda snapshot, array: array["placements"]["tail"][0].__setitem__(1, 2**63),
        lambda snapshot, array: array["placements"]["tail"][0].__setitem__(1, 1),
        lambda snapshot, array: array["placements"]["tail"][0].__setitem__(4, 2**62),
        lambda snapshot, array: array["placements"]["tail"][0].__setitem__(0, 1),
        lambda snapshot, array: array["placements"].update(pages=[["0" * 24, True, 0, 4]]),
        lambda snapshot, array: array["encodings"][0].update(strides=[1.0]),
        lambda snapshot, array: array["encodings"][0].update(dtype="|O"),
        lambda snapshot, array: array.update(shape=[2**63]),
        lambda snapshot, array: array.update(dtype=">i2", fill_values=[]),
        lambda snapshot, array: array.update(chunk_shapes=[[0, 8]]),
        lambda snapshot, array: array.update(fill_values=[]),
        lambda snapshot, array: array.update(fill_values=[[-1, 1]]),
        lambda snapshot, array: array.update(attributes=[]),
        lambda snapshot, array: array.update(attributes={"a": {"int": 1.5}}),
        lambda snapshot, array: array.update(attributes={"a": {"array": ["|u1", [-1], [0, 1]]}}),
        lambda snapshot, array: array.update(dimension_names=["x", "y"]),
        lambda snapshot, array: snapshot["segments"]["tail"][0].update(rows=5),
        lambda snapshot, array: snapshot["segments"]["tail"][0].update(name="../../../../../../../../"),
        lambda snapshot, array: snapshot["segments"]["tail"][0]["sources"].update(size=[2**64 - 1]),
        lambda snapshot, array: snapshot["segments"]["tail"][0]["sources"].update(prefix=[True]),
        lambda snapshot, array: snapshot["segments"]["tail"][0].update(prefixes=[1]),
        lambda snapshot, array: snapshot["arrays"].update({"/../v": array}),
        lambda snapshot, array: snapshot["arrays"].update({"/gone/v": array}),
        lambda snapshot, array: snapshot["groups"].update({"/v": snapshot["groups"][""]}),
        lambda snapshot, array: snapshot.update(groups={}),
        lambda snapshot, array: snapshot.update(arrays=[]),
        lambda snapshot, array: snapshot.update(number=True),
        lambda snapshot, array: snapshot.update(time="nan"),
        lambda snapshot, array: snapshot.update(time=float("nan")),
        lambda snapshot, array: snapshot.update(relocations=[{"old": "a", "new": "b", "n_prefixes": 1}] * 257),
    ],
)
def test_a_snapshot_that_contradicts_itself_is_malformed(change):
    with pytest.raises(MalformedFileError):
        read(changed(change))


def test_a_cell_beyond_its_chunk_is_not_read():
    with pytest.raises(ManifestError, match="shows elements 0 to 6 of a decoded chunk of 4"):
        read(changed(lambda snapshot, array: array["encodings"][0].update(strides=[2])))


@pytest.mark.parametrize(
    "text",
    [
        b"[" * 10**6,
        b'{"a":' * 10**6,
        b'{"rows":[' + b"[]," * (documents.MAX_JSON_VALUES // 2) + b"[]]}",
        b" " * (documents.MAX_DOCUMENT_BYTES + 1),
        b"null",
        b"",
    ],
    ids=["lists", "objects", "values", "spaces", "null", "empty"],
)
def test_a_document_that_is_a_trap_is_malformed(text):
    with pytest.raises(MalformedFileError):
        documents.load(gzip.compress(text, 1), url="x")


@pytest.mark.parametrize("n", [0, 15, 16, 20, -1])
def test_a_frame_that_is_cut_off_is_not_decompressed(n):
    """Blosc reads what lies behind it in memory."""
    frame = blosc.compress(np.random.default_rng(0).integers(0, 9, 1000), b"zstd", 3, 2)
    assert decompressed(frame, least=8000, most=8000)
    with pytest.raises(ValueError, match=r"frame"):
        decompressed(frame[:n], least=0, most=8000)
    with pytest.raises(ValueError, match="holds 8000 bytes"):
        decompressed(frame, least=0, most=7999)


def test_chunks_much_longer_than_what_they_decode_to_are_not_read(tmp_path):
    """Sources with holes take no place, and the checksum of the page is right."""
    path = tmp_path / "a.bin"
    path.write_bytes(bytes(16))
    os.truncate(path, 1 << 42)
    options = {"location": Location(f"file://{path}", size=1 << 42), "codecs": [Codec.from_config("numcodecs.zlib")]}
    array = referenced(np.zeros(4, int), np.full(4, 1 << 40), (4,), **options)
    save(ManifestGroup(arrays={"v": array}), f"file://{tmp_path}/x.vstack", relative=True)
    with pytest.raises(MalformedFileError, match="more than its encoding can have"):
        read(f"file://{tmp_path}/x.vstack")
