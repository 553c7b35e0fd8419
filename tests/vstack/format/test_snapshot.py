"""Snapshots: what their JSON may say, to the last number, and what is refused."""

import gzip
import json
from dataclasses import replace

import numpy as np
import pytest

from tests.data.arrays import inline_chunks, referenced
from tests.vstack.stores import create
from virtualstack.errors import MalformedFileError, WriterError
from virtualstack.manifests import ManifestGroup
from virtualstack.vstack.format.documents import dump
from virtualstack.vstack.format.snapshot import Snapshot, check_names, decode_uses

VALID = [
    (["time"], 5),
    (["message"], "text"),
    (["prefixes"], []),
    (["relocations"], [{"old": "a", "new": "b", "n_prefixes": 0}]),
    (["bundle"], {"name": "0" * 24, "size": 0, "crc32": 1}),
    (["arrays", "/v", "generation"], 3),
    (["arrays", "/v", "merged"], {"from": 7, "into": 1}),
    (["arrays", "/v", "bundled"], [0, 9]),
    (["arrays", "/v", "encodings", 0, "shape"], [1 << 28, (1 << 32) - 1]),
    (["arrays", "/v", "encodings", 0, "strides"], [(1 << 61) - 2, 1]),
    (["groups", "/a/b.c/..."], "as the root"),
    (["groups", "/g" * 100], "as the root"),
]
INVALID = [
    (["time"], "5", "is not a time"),
    (["time"], True, "is not a time"),
    (["message"], 5, "5"),
    (["changes"], [None], "None"),
    (["prefixes"], [3], "3"),
    (["relocations"], [{"old": "a", "new": "b", "n_prefixes": -1}], "-1"),
    (["relocations"], [{"old": "a", "new": 0, "n_prefixes": 1}], "0"),
    (["bundle"], {"name": "0" * 24, "size": -1, "crc32": 1}, "-1"),
    (["bundle"], {"name": 1, "size": 0, "crc32": 1}, "1"),
    (["heap"], "?", "base64"),
    (["groups"], [], "is not a JSON object"),
    (["arrays", "/v", "generation"], -1, "-1"),
    (["arrays", "/v", "merged"], {"from": 0, "into": 2}, "has 1 placement, fewer than the 2 that were merged"),
    (["arrays", "/v", "bundled"], [0], "unpack"),
    (["arrays", "/v", "bundled"], [0, -1], "-1"),
    (["arrays", "/v", "fill_values"], [], "has 2 axes and 0 fill values; expected at most 64 axes"),
    (["arrays", "/v", "encodings", 0, "dtype"], "<i8", "dtype 'int32' has an encoding of dtype 'int64'"),
    (["arrays", "/v", "encodings", 0, "strides"], [1], "array '/v' of 2 axes has an encoding with 1 strides"),
    (["arrays", "/v", "encodings", 0, "strides"], [(1 << 61) - 1, 1], "2\\^62 bytes or more"),
    (["arrays", "/v", "encodings", 0, "strides"], [1, -(1 << 61)], "2\\^62 bytes or more"),
    (["arrays", "/v", "encodings", 0, "shape"], [1 << 28, 1 << 32], "2\\^62 bytes or more"),
    (["arrays", "/v", "encodings", 0, "shape"], [0, 1 << 60], "2\\^62 bytes or more"),
    (["groups", "/g" * 101], "as the root", "has more than 100 parts"),
    *[(["groups", path], "as the root", "is not a path of a group or array") for path in ("a", "/", "/a//b", "/..")],
]  # fmt: skip


@pytest.fixture
def document(tmp_path):
    """Return the JSON of a snapshot with an array of two axes, in chunks of 2 x 2 numbers of four bytes."""
    create(tmp_path / "x.vstack", {"v": referenced([[0, 16]], [[16, 16]], (2, 2), ">i4")})
    (path,) = (tmp_path / "x.vstack/.vstack/snapshots").iterdir()
    return json.loads(gzip.decompress(path.read_bytes()))


def changed(document, keys, value):
    """Put a value into a document."""
    *outer, last = keys
    place = document
    for key in outer:
        place = place[key]
    place[last] = document["groups"][""] if value == "as the root" else value
    return Snapshot.decode(dump(document), number=0, url="u")


@pytest.mark.parametrize(("keys", "value"), VALID, ids=str)
def test_a_snapshot_is_written_as_it_was_read(document, keys, value):
    found = changed(document, keys, value)
    assert json.loads(gzip.decompress(found.encode())) == document


@pytest.mark.parametrize(("keys", "value", "message"), INVALID, ids=str)
def test_invalid_values_in_a_snapshot_are_refused(document, keys, value, message):
    with pytest.raises(MalformedFileError, match=f"'u' is not a snapshot of a vstack: .*{message}"):
        changed(document, keys, value)


@pytest.mark.parametrize(
    "keys", [["groups"], ["arrays"], ["arrays", "/v", "merged"], ["segments"], ["bundle"]], ids=str
)
def test_missing_keys_in_a_snapshot_are_refused(document, keys):
    *outer, last = keys
    place = document
    for key in outer:
        place = place[key]
    del place[last]
    with pytest.raises(MalformedFileError, match=f"'u' is not a snapshot of a vstack: KeyError\\('{last}'\\)"):
        Snapshot.decode(dump(document), number=0, url="u")


def test_placements_that_were_merged_count(document):
    """All that were ever made: as many as now, and those that others took the place of."""
    assert changed(document, ["arrays", "/v", "merged"], {"from": 7, "into": 1}).arrays["/v"].n_placed == 7


def test_uses_are_the_objects_of_all_tables(document):
    document["bundle"] = {"name": "b", "size": 0, "crc32": 1}
    document["arrays"]["/v"]["placements"] = {"pages": [["p", 2, 0, 0, 3, 4]], "tail": [[0] * 10]}
    found = decode_uses(document, url="u")
    (table,) = found.placements
    assert (found.bundle, found.segments.n, table.n) == ("b", 1, 3)
    (page,) = table.pages
    assert (page.name, page.n, page.low, page.high) == ("p", 2, (0, 0), (3, 4))
    for bad in (["p", 0, 0, 0, 3, 4], ["p", 2, 0, 0, 3], [5, 2, 0, 0, 3, 4], ["p", 2, 0, 0, 3, -4]):
        document["arrays"]["/v"]["placements"]["pages"] = [bad]
        with pytest.raises(MalformedFileError):
            decode_uses(document, url="u")


def nested(depth, **inside):
    group = ManifestGroup(**inside)
    for _ in range(depth):
        group = ManifestGroup(groups={"g": group})
    return group


ARRAY = inline_chunks((1,), "u1", b"a", dimension_names=("x",))


@pytest.mark.parametrize(
    ("group", "is_good"),
    [
        (nested(100), True),
        (nested(99, arrays={"v": ARRAY}), True),
        (nested(100, arrays={"v": ARRAY}), False),
        (nested(101), False),
        (nested(100, arrays={"v": ARRAY}, groups={"g": ManifestGroup()}), False),
    ],
)
def test_paths_have_at_most_100_parts(group, is_good):
    if is_good:
        check_names(group)
        return
    with pytest.raises(WriterError, match="groups are nested more than 100 deep"):
        check_names(group)


def test_what_is_shown_counts_variables(document):
    one = changed(document, ["message"], None)
    assert repr(one).endswith(": 1 variable>")
    assert repr(replace(one, arrays={})).endswith(": 0 variables>")
    assert np.isfinite(one.time)
