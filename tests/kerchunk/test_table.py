import numpy as np
import pytest

from tests.data.arrays import bytes_metadata as metadata
from virtualstack.errors import MalformedFileError, UnsupportedFeatureError
from virtualstack.kerchunk.references import WHOLE
from virtualstack.kerchunk.table import ReferenceTable
from virtualstack.zarr.metadata.attributes import parse_json


def table(refs, **parts):
    return ReferenceTable.from_references({"version": 1, "refs": refs, **parts}, where="r")


def test_references_of_all_kinds():
    """References, whole files, text, base64 and JSON become columns."""
    (got,) = table(
        {"a/0": ["u", 5, 6], "a/1": ["w"], "a/2": "text", "a/3": "base64:/w==", "a/4": {"x": 1}, "a/9": ["u", 0, 1]}
    ).read("a", metadata(6))
    assert got.n_outside == 1
    assert got.cells.tolist() == [0, 1, 2, 3, 4]
    assert [got.urls[row] for row in got.rows[:2]] == ["u", "w"]
    assert got.rows[2:].tolist() == [-1, -1, -1]
    assert (got.offsets[:2].tolist(), got.lengths[:2].tolist()) == ([5, 0], [6, WHOLE])
    assert got.inline == (b"text", b"\xff", b'{"x": 1}')


def test_arrays_whose_names_begin_alike():
    """Only keys below the array's own path are its chunks."""
    refs = {"a/0": ["u", 0, 1], "ab/0": ["u", 1, 1], "a-b/0": ["u", 2, 1], "a/.zarray": "{}", "b/a/0": ["u", 3, 1]}
    (got,) = table(refs).read("a", metadata(1))
    assert got.offsets.tolist() == [0]


TEMPLATES = {"u": "s3://bucket", "nested": "{{u}}/x", "long": "x" * 4096}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("{{u}}/a.nc", "s3://bucket/a.nc"),
        ("{{ u }}{{u}}", "s3://buckets3://bucket"),
        ("file:///{0}", "file:///{0}"),
    ],
)
def test_templates(text, expected):
    """Names in double braces stand for texts; braces of other kinds stay."""
    assert table({}, templates=TEMPLATES).render(text) == expected


@pytest.mark.parametrize("text", ["{{nobody}}", "{{u.upper()}}", "{{nested}}", "{{u", "{{long}}" * 5])
def test_templates_that_are_not_expanded(text):
    """Expressions, templates in templates and long texts are refused, and nothing runs."""
    with pytest.raises(UnsupportedFeatureError, match="'r' has the template"):
        table({}, templates=TEMPLATES).render(text)


def test_generators_are_refused():
    """fsspec leaves their chunks out unless it is asked to expand them."""
    generator = {"key": "a/{{i}}", "url": "u", "offset": "{{i}}", "length": "1", "dimensions": {"i": [1, 2]}}
    with pytest.raises(UnsupportedFeatureError, match="generators"):
        table({"a/0": ["u", 0, 1]}, gen=[generator])


def test_version_0_is_the_references_themselves():
    """Without a version the object is the references."""
    (got,) = ReferenceTable.from_references({"a/0": ["u", 0, 1]}, where="r").read("a", metadata(1))
    assert got.urls == ["u"]


def test_metadata_is_parsed_and_consolidated_metadata_fills_in():
    """Metadata stands as text or object; what only .zmetadata has is taken from there."""
    refs = {
        ".zgroup": {"zarr_format": 2},
        "a/.zarray": '{"shape":[1],"fill_value":NaN}',
        ".zmetadata": '{"metadata":{"a/.zarray":{"shape":[9]},"b/.zarray":{"shape":[2]}}}',
        "a/.zattrs": "base64:e30=",
    }
    got = table(refs).metadata()
    assert got["a/.zarray"]["shape"] == [1]
    assert got["b/.zarray"] == {"shape": [2]}
    assert got["a/.zattrs"] == {}


def test_strays_are_counted():
    """References below no array are counted by folder."""
    refs = {"a/0": "x", "b/0": "x", "b/1": "x", "c/.zattrs": "{}", "top": "x"}
    assert table(refs).strays(["a"]) == {"b": 2, "": 1}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "'r' is not a set of kerchunk references"),
        ({"version": 2}, "'r' is not a set of kerchunk references"),
        ({"version": 1, "refs": []}, "'r' has 'refs' or 'templates' that are not objects"),
        ({"version": 1, "templates": {"u": 5}}, "or templates that are not text"),
        ({5: "x"}, "'r' has keys that are not text"),
        ({b"a/0": "x"}, "'r' has keys that are not text"),
        ({"\ud800/0": "x"}, "'r' has keys that are not text"),
    ],
)
def test_tables_that_are_no_references_are_refused(data, message):
    """Other JSON is told from references."""
    with pytest.raises(MalformedFileError, match=message):
        ReferenceTable.from_references(data, where="r")


@pytest.mark.parametrize(
    "value",
    [
        ["u", -1, 5],
        ["u", 0, -2],
        ["u", 1.5, 2],
        ["u", "0", 2],
        ["u", 2**63, 1],
        ["u", 2**70, 1],
        [None, 0, 1],
        [5, 0, 1],
        ["u", 1],
        [],
        7,
        None,
        [["u"], 0, 1],
        ["u", [0], 1],
        ["u", 0, [1]],
        ["u", True, 1],
        ["u", 0, False],
        ["\ud800", 0, 1],
    ],
    ids=str,
)
def test_rows_that_are_no_references_are_refused(value):
    """A reference of another form is named with its key, alone and among good ones."""
    for others in ({}, {"a/0": ["u", 0, 1]}, {"a/0": "text"}):
        with pytest.raises(MalformedFileError, match=r"'a/1' of 'r' is .*; expected text"):
            list(table({**others, "a/1": value}).read("a", metadata(2)))


def test_data_that_does_not_parse():
    """Broken base64, text and JSON, deep JSON and metadata in another file are named with their key."""
    with pytest.raises(MalformedFileError, match=r"'a/0' of 'r' is '\\ud800', which is not text"):
        list(table({"a/0": "\ud800"}).read("a", metadata(1)))
    with pytest.raises(MalformedFileError, match="'a/0' of 'r' is not base64"):
        list(table({"a/0": "base64:?"}).read("a", metadata(1)))
    with pytest.raises(MalformedFileError, match=r"'a/.zarray' of 'r' is not JSON"):
        table({"a/.zarray": "{"}).metadata()
    with pytest.raises(MalformedFileError, match=r"'a/.zarray' of 'r' is .*expected metadata as text or an object"):
        table({"a/.zarray": ["u", 0, 5]}).metadata()
    with pytest.raises(MalformedFileError, match="'deep' is not JSON"):
        parse_json("[" * 10**6, where="deep")
    assert np.isnan(parse_json("NaN", where="r"))
