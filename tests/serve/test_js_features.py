"""The JavaScript reader reads what the plain reader of the specification reads: the same tests, with another reader."""

from collections.abc import Iterator

import numpy as np
import pytest

from tests.serve.javascript import as_javascript, put_together, through_zarrita, untagged, url_of
from tests.vstack import test_plain_reader as plain
from virtualstack.reading import read_array

test_any_array = plain.test_any_array_is_read_alike
test_attributes_of_any_kind = plain.test_attributes_of_any_kind_are_read_alike
test_loaded_values_of_any_dtype = plain.test_loaded_values_of_any_dtype_are_read_alike
test_dtypes_that_zarr_does_not_have = plain.test_chunks_of_files_are_read_alike_where_zarr_has_no_such_dtype
test_shuffled_checksums = plain.test_shuffled_checksums_are_read_alike
test_fields_with_bytes_between_them = plain.test_fields_with_bytes_between_them_are_read_alike
test_codecs = plain.test_codecs_are_those_of_zarr
test_files_joined_appended_and_moved = plain.test_files_joined_appended_and_moved_are_read_alike
test_sources_that_nothing_shows_any_more = plain.test_sources_that_nothing_shows_any_more_are_not_read


@pytest.fixture(autouse=True)
def in_javascript(node, disk, monkeypatch) -> Iterator[None]:
    """Compare in JavaScript, beside the plain reader."""

    def reads_alike(folder, at=None):
        found = assert_reads_alike_in_javascript(node, disk, folder, at)
        assert_reads_alike(folder, **({} if at is None else {"at": at}))
        return found

    assert_reads_alike = plain.assert_reads_alike
    with monkeypatch.context() as patch:
        patch.setattr(plain, "assert_reads_alike", reads_alike)
        yield


def assert_reads_alike_in_javascript(node, disk, folder, at):
    """Compare every group and array with what virtualstack reads: values, names and attributes."""
    options = {"moves": [["file:///", disk.root]], "absent": "fill"} | ({} if at is None else {"snapshot": at})
    found = node("everything", url_of(disk.root, folder), options=options)
    group = plain.group_of(folder, **({} if at is None else {"at": at}))
    groups = {x["path"]: x for x in found["groups"]}
    arrays = {x["path"]: x for x in found["arrays"]}
    given = {path: {"values": None} for path in arrays}
    assert groups.keys() == {path for path, _ in group.walk()}
    for path, node_ in group.walk():
        np.testing.assert_equal(untagged(groups[path]["attributes"]), as_javascript(dict(node_.attributes)))
        assert groups[path]["dimensions"] == dict(node_.dimensions)
        assert set(groups[path]["unlimited"]) == node_.unlimited
        assert set(groups[path]["coordinates"]) == node_.coordinates
        for name, array in node_.arrays.items():
            one = arrays.pop(f"{path}/{name}")
            assert tuple(one["dimensionNames"]) == array.dimension_names
            np.testing.assert_equal(untagged(one["attributes"]), as_javascript({**array.attributes, **array.cf}))
            given[f"{path}/{name}"]["values"] = assert_same_values(one, read_array(array, ..., None))
    assert not arrays
    return given


def assert_same_values(found, wanted):
    """Compare cells, and what zarrita shows, with an array of numpy."""
    is_text = found["dtype"] == "string"
    if is_text:
        wanted = np.asarray(wanted, object)
    dtype = wanted.dtype if is_text else plain_order(wanted.dtype)
    values = put_together(found, dtype)
    assert values.shape == wanted.shape
    np.testing.assert_array_equal(values, wanted)
    if found["zarr"] is None:
        assert wanted.dtype.kind in "cV"
    else:
        shown = through_zarrita(found)
        if wanted.dtype.kind in "mM":
            wanted = wanted.astype("i8")
        elif wanted.dtype.kind == "S":
            wanted = np.char.decode(wanted, "latin1").astype(object)
        elif wanted.dtype.kind == "U":
            wanted = wanted.astype(object)
        np.testing.assert_array_equal(shown, wanted)
    return values


def plain_order(dtype):
    """Return a data type with little-endian numbers."""
    return dtype.newbyteorder("<")
