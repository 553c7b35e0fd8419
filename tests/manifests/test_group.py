"""Groups of virtual arrays."""

from dataclasses import replace

import numpy as np
import pytest

from virtualstack.errors import ManifestError
from virtualstack.manifests import ManifestGroup
from virtualstack.testing.strategies import store_array

ARRAY = store_array(np.arange(6).reshape(2, 3), (1, 3), url="memory://group").array


def test_nodes_are_found_by_path():
    """A path leads to an array or a group; a wrong one says what there is."""
    child = ManifestGroup(arrays={"v": ARRAY})
    root = ManifestGroup(groups={"science": child}, arrays={"t": ARRAY}, url="file:///a")
    assert root["science/v"] is ARRAY
    assert root["/science/"] is child
    assert root[""] is root
    assert [path for path, _ in root.walk()] == ["", "/science"]
    with pytest.raises(KeyError, match=r"there is no array or group 'science/w'; there are \['v'\]"):
        root["science/w"]
    with pytest.raises(KeyError, match="there is no array or group 't/x'"):
        root["t/x"]
    assert repr(root) == "ManifestGroup(1 array, 1 group, url='file:///a')"


def test_arrays_change_at_every_depth():
    """map_arrays reaches the arrays of child groups."""
    root = ManifestGroup(groups={"a": ManifestGroup(arrays={"v": ARRAY})})
    renamed = root.map_arrays(lambda array: array.rename_locations({"memory://group": "memory://other"}))
    assert renamed["a/v"].a_url() == "memory://other"


def test_contradictions_are_refused():
    """Arrays of a group have dimension names, and no name is both an array and a group."""
    with pytest.raises(ManifestError, match="has no dimension names"):
        ManifestGroup(arrays={"v": replace(ARRAY, dimension_names=None)})
    with pytest.raises(ManifestError, match="both an array and a group"):
        ManifestGroup(arrays={"v": ARRAY}, groups={"v": ManifestGroup()})
