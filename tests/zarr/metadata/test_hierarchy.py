import numpy as np
import pytest

from virtualstack.errors import MalformedFileError
from virtualstack.kerchunk.references import References, build_manifest
from virtualstack.location import Location
from virtualstack.manifests import EMPTY, FIRST
from virtualstack.zarr.metadata.hierarchy import build_group

ZARRAY = {"shape": [2], "chunks": [1], "dtype": "<i4", "compressor": None, "filters": None, "fill_value": None}


def build(metadata, *, rows=(0, 0), lengths=(4, 4), offsets=(0, 4), n_outside=0, **options):
    references = References(
        cells=np.arange(len(rows)),
        rows=np.array(rows),
        offsets=np.array(offsets),
        lengths=np.array(lengths),
        urls=("u",),
    )

    def read(path, described):
        manifest = build_manifest(
            [references],
            described,
            locate=lambda url: Location(f"file:///{url}"),
            measure=lambda locations: [Location(x.url, size=100) for x in locations],
            where=f"{path}' of 'r",
        )
        return manifest, n_outside

    return build_group(metadata, read, where="r", **options)


def test_groups_of_paths():
    """Groups stand where paths have them, declared or not; names that also are attributes do not confuse."""
    group = build(
        {
            ".zattrs": {"a": "a/b", "title": "t"},
            "a/b/.zgroup": {"zarr_format": 2},
            "a/b/.zattrs": {"b": 1},
            "a/b/c/.zarray": ZARRAY,
            "a/b/c/.zattrs": {"_ARRAY_DIMENSIONS": ["x"], "c": "a"},
            "d/zarr.json": {"node_type": "group", "attributes": {"e": 2}},
        }
    )
    assert group.attributes == {"a": "a/b", "title": "t"}
    assert group["a/b"].attributes == {"b": 1}
    assert group["d"].attributes == {"e": 2}
    array = group["a/b/c"]
    assert (array.name, array.dimension_names, array.attributes) == ("a/b/c", ("x",), {"c": "a"})


def test_dimensions_without_names_are_named_by_the_array():
    """Unnamed dimensions of two arrays never clash."""
    assert build({"v/.zarray": ZARRAY})["v"].dimension_names == ("v_dim_0",)
    names = {"_ARRAY_DIMENSIONS": [None]}
    assert build({"v/.zarray": ZARRAY, "v/.zattrs": names})["v"].dimension_names == ("v_dim_0",)


@pytest.mark.parametrize("document", [{}, {"node_type": "table"}, [], None])
def test_nodes_of_no_kind_are_not_passed_over(document):
    """What is neither an array nor a group would be lost."""
    with pytest.raises(MalformedFileError, match=r"'v/zarr\.json' of 'r' has node_type"):
        build({"zarr.json": {"node_type": "group"}, "v/zarr.json": document})


def test_coordinates():
    """The attribute of a group is xarray's and is taken off; those of arrays are left alone."""
    group = build(
        {
            ".zattrs": {"coordinates": "lat"},
            **{f"{name}/.zarray": ZARRAY for name in ("v", "lat", "lon")},
            "v/.zattrs": {"coordinates": "lon gone"},
        }
    )
    assert group.coordinates == {"lat", "lon"}
    assert (group.attributes, group["v"].attributes) == ({}, {"coordinates": "lon gone"})
    assert build({".zattrs": {"coordinates": "some text"}}).attributes == {"coordinates": "some text"}


def test_whole_files_have_the_size_of_their_source():
    """A length that is not given is asked for."""
    manifest = build({"v/.zarray": ZARRAY}, lengths=(-1, 4))["v"].manifest
    assert manifest.entries["length"].tolist() == [100, 4]


def test_absent_chunks_are_empty():
    """What no reference names is EMPTY."""
    manifest = build({"v/.zarray": ZARRAY}, rows=(0,), lengths=(4,), offsets=(0,))["v"].manifest
    assert manifest.entries["location"].tolist() == [FIRST, EMPTY]


@pytest.mark.parametrize(
    ("metadata", "path", "reason"),
    [
        ({"v/.zarray": {**ZARRAY, "dtype": "|O"}}, "/v", "holds Python objects"),
        ({".zarray": ZARRAY}, "/", "is an array that contains other arrays"),
        ({"v/zarr.json": {"node_type": "array", "shape": [1], "chunk_grid": "other"}}, "/v", "chunk grid 'other'"),
        ({"v/.zarray": {**ZARRAY, "shape": [2**40]}}, "/v", "has a grid of 1099511627776 chunks"),
    ],
)
def test_features_without_a_form_are_refusals(metadata, path, reason):
    """One array that has no form does not fail the others."""
    group = build({**metadata, "good/.zarray": ZARRAY})
    (refusal,) = group.refusals
    assert (refusal.path, refusal.kind) == (path, "refused")
    assert reason in refusal.reason
    assert group.arrays.keys() == {"good"}


def test_references_outside_of_the_grid_are_noted():
    """They change no value, and are recorded."""
    (refusal,) = build({"v/.zarray": ZARRAY}, n_outside=3).refusals
    assert (refusal.path, refusal.kind) == ("/v", "noted")
    assert refusal.reason.startswith("3 references outside of its grid")


def test_arrays_that_are_not_wanted_are_not_read():
    """Paths can be left out."""
    group = build({"v/.zarray": ZARRAY, "w/.zarray": {"broken": True}}, wanted=lambda path: path == "v")
    assert group.arrays.keys() == {"v"}


def test_contradictions():
    """An array inside of an array, metadata of another kind and impossible ranges are named."""
    with pytest.raises(MalformedFileError, match=r"'r' contradicts itself: \['a'\] name both an array and a group"):
        build({"a/.zarray": ZARRAY, "a/b/.zarray": ZARRAY})
    with pytest.raises(MalformedFileError, match="'a' of 'r' has metadata 5; expected an object"):
        build({"a/.zarray": 5})
    with pytest.raises(MalformedFileError, match=r"'.zattrs' of 'r' has attributes \[\]"):
        build({".zattrs": []})
    with pytest.raises(MalformedFileError, match=r"'a' of 'r': chunk .* ends at 2\^63 bytes or more"):
        build({"a/.zarray": ZARRAY}, offsets=(2**62, 0), lengths=(2**62, 1))
