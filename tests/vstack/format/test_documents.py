"""Documents of a store: JSON as gzip, of bounded size."""

import gzip
import json

import pytest

from virtualstack.errors import MalformedFileError, WriterError
from virtualstack.vstack.format.documents import MAX_DOCUMENT_BYTES, MAX_JSON_VALUES, dump, load


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"a": None, "b": [1, 2.5, True, "ä€😀"], "c": {"d": []}},
        {"long": "x" * (1 << 20)},
        {"longer": ["abc"] * 400_000},
    ],
)
def test_documents_are_json_in_gzip(document):
    raw = dump(document)
    assert json.loads(gzip.decompress(raw)) == load(raw, url="x") == document


@pytest.mark.parametrize("more", [0, 1])
def test_documents_have_at_most_64_mebibytes(more):
    """What may be written may be read, to the last byte."""
    document = {"a": "x" * (MAX_DOCUMENT_BYTES - len('{"a":""}') + more)}
    if not more:
        assert load(dump(document), url="x") == document
        return
    with pytest.raises(WriterError, match="the metadata have 67108865 bytes"):
        dump(document)
    with pytest.raises(MalformedFileError, match="'x' is cut off, or has more than 67108864 bytes"):
        load(gzip.compress(json.dumps(document, separators=(",", ":")).encode(), 1), url="x")


@pytest.mark.parametrize("more", [0, 1])
@pytest.mark.parametrize("mark", ["[", "{", ","])
def test_documents_have_a_bounded_number_of_values(mark, more):
    """Commas and opening brackets; those in texts count, too. The document itself is one."""
    document = {"a": mark * (MAX_JSON_VALUES - 1 + more)}
    if not more:
        assert load(dump(document), url="x") == document
        return
    with pytest.raises(WriterError, match="8388608 values"):
        dump(document)
    with pytest.raises(MalformedFileError, match="has more than 8388608 values"):
        load(gzip.compress(json.dumps(document, separators=(",", ":")).encode(), 1), url="x")


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (gzip.compress(b"[1]"), "'x' is not an object of a vstack"),
        (gzip.compress(b"{}") + b"more", "'x' is cut off"),
        (gzip.compress(b"{}")[:-1], "'x' is cut off"),
        (gzip.compress(b"{"), "'x' is damaged"),
        (b"{}", "'x' is damaged"),
    ],
    ids=["a list", "more bytes", "less bytes", "half of JSON", "no gzip"],
)
def test_other_bytes_are_no_documents(raw, message):
    with pytest.raises(MalformedFileError, match=message) as caught:
        load(raw, url="x")
    assert caught.value.url == "x"


def test_keys_lead_to_what_json_cannot_hold():
    with pytest.raises(WriterError, match=r"cannot be written as JSON: .* \(in 'a': 1: 'b'\)"):
        dump({"ok": 1, "a": [0, {"c": 2, "b": {1j}}]})
    deep = 1j
    for _ in range(30):
        deep = {"k": deep}
    with pytest.raises(WriterError, match=r"\(in ('k': ){20}\.\.\.\)"):
        dump(deep)
