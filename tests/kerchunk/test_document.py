import base64
import json

import numpy as np

from tests.data.arrays import referenced
from virtualstack.kerchunk.document import reference_dict, reference_json
from virtualstack.location import Location
from virtualstack.manifests import ABSENT, EMPTY, FIRST, INLINE, ChunkEncoding, ChunkManifest, Fill
from virtualstack.zarr.metadata.version2 import ZarrHierarchy

ENCODING = ChunkEncoding.c_order("u1", (1, 1))


def manifest():
    codes = np.array([[FIRST, EMPTY, INLINE], [FIRST + 1, ABSENT, INLINE]])
    lengths = np.array([[7, -1, 2], [8, -1, 3]])
    return ChunkManifest.from_arrays(
        np.array([[1, 0, 0], [2**62, 0, 0]]),
        lengths,
        location=[Location('file:///a "quoted" \\ é.nc'), Location("s3://b/ü/c.nc")],
        encoding=ENCODING,
        fill=Fill.zero("u1"),
        location_codes=codes,
        inline=b"\xff{x",
    )


EXPECTED = {
    "version": 1,
    "refs": {
        ".zgroup": '{"zarr_format":2}',
        'g"é/v/0.0': ['file:///a "quoted" \\ é.nc', 1, 7],
        'g"é/v/1.0': ["s3://b/ü/c.nc", 2**62, 8],
        'g"é/v/0.2': "base64:" + base64.b64encode(b"\xff{").decode(),
        'g"é/v/1.2': "base64:" + base64.b64encode(b"\xff{x").decode(),
    },
}


def hierarchy(*, path='g"é/v'):
    return ZarrHierarchy(metadata={".zgroup": {"zarr_format": 2}}, manifests={path: manifest()})


def test_dict_has_references_and_inline_chunks_and_no_holes():
    """Keys are indexes in the grid; EMPTY and ABSENT chunks are absent."""
    assert reference_dict(hierarchy()) == EXPECTED


def test_json_is_the_dict():
    """Text made by array operations parses to the dict, quotes, backslashes and non-ASCII names included."""
    assert json.loads(reference_json(hierarchy())) == EXPECTED


def test_blocks_do_not_show(monkeypatch):
    """Many blocks of chunks give what one gives."""
    monkeypatch.setattr("virtualstack.kerchunk.document._BLOCK_CHUNKS", 2)
    assert json.loads(reference_json(hierarchy())) == EXPECTED
    assert reference_dict(hierarchy()) == EXPECTED


def test_urls_are_changed_on_the_way():
    """The caller says what stands for a URL."""
    refs = json.loads(reference_json(hierarchy(path="v"), url=lambda url: url[-4:]))["refs"]
    assert refs["v/0.0"] == ["é.nc", 1, 7]
    assert reference_dict(hierarchy(path="v"), url=lambda url: url[-4:])["refs"] == refs


def test_scalar_and_empty_arrays():
    """A scalar's key is 0; an array without elements has none."""
    scalar = referenced(3, 4, (), "i4", location="file:///a").manifest
    none = ChunkManifest.empty((0, 3), Fill.zero("i4"))
    made = ZarrHierarchy(metadata={"k": {}}, manifests={"s": scalar, "n": none})
    assert reference_dict(made)["refs"] == {"k": "{}", "s/0": ["file:///a", 3, 4]}
    assert json.loads(reference_json(ZarrHierarchy(metadata={"k": {}}, manifests={"s": scalar}))) == {
        "version": 1,
        "refs": {"k": "{}", "s/0": ["file:///a", 3, 4]},
    }
