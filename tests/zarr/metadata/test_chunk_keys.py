import pyarrow as pa
import pytest

from tests.data.arrays import bytes_metadata as metadata
from virtualstack.errors import MalformedFileError
from virtualstack.printable import printable
from virtualstack.zarr.metadata.chunk_keys import cells_of_keys

NO_INDEX = "0 0.1.2 0.x -1.0 +1.0 00.1 0.01 0. . 0.9999999999999999999 0x1.0 1_0.0 1e1.0 \u0663.0 nan.0 1,0"


@pytest.mark.parametrize(
    ("keys", "described", "cells"),
    [
        (["a/0.1", "a/1.0", "a/1.2"], metadata(2, 3), [1, 3, 5]),
        (["a/0/1", "a/1/2"], metadata(2, 3, separator="/"), [1, 5]),
        (["a/c/0/1"], metadata(2, 3, separator="/", prefix="c/"), [1]),
        (["a/c.0.1"], metadata(2, 3, prefix="c."), [1]),
        (["a/0"], metadata(), [0]),
        (["a/c"], metadata(separator="/", prefix="c/"), [0]),
        (["a/2.0", "a/0.0", "a/0.3"], metadata(2, 3), [-1, 0, -1]),
        ([], metadata(3), []),
    ],
)
def test_cells_of_keys(keys, described, cells):
    """Keys of both versions and separators are cells; those outside of the grid are told."""
    assert cells_of_keys(pa.array(keys, pa.large_string()), "a", described, where="r").tolist() == cells


@pytest.mark.parametrize(
    "index",
    [
        *NO_INDEX.split(),
        *("", " 1.0", "1.0 ", "1\n.0", "1.0\n1.0", "1.0\r", '"1".0'),
    ],
)
def test_keys_that_are_no_index(index):
    """A key that is not an index is named with the number of axes, wherever it stands among others."""
    keys = [f"a/{i}.0" for i in range(5)]
    for at in (0, 1, 4, 5):
        names = pa.array([*keys[:at], f"a/{index}", *keys[at:]], pa.large_string())
        with pytest.raises(MalformedFileError) as caught:
            cells_of_keys(names, "a", metadata(2, 3), where="r")
        assert str(caught.value).startswith(f"'a/{printable(index)}' of 'r' is not a chunk of an array of 2 axes")


def test_many_keys():
    """Keys of more cells than are looked at together are cells, and the one that is none is found."""
    keys = [f"a/{i}.{i % 3}" for i in range(200_000)]
    cells = cells_of_keys(pa.array(keys, pa.large_string()), "a", metadata(150_000, 3), where="r")
    assert cells.tolist() == [*(3 * i + i % 3 for i in range(150_000)), *[-1] * 50_000]
    keys[170_000] = "a/170000.02"
    with pytest.raises(MalformedFileError, match=r"'a/170000.02' of 'r' is not a chunk"):
        cells_of_keys(pa.array(keys, pa.large_string()), "a", metadata(150_000, 3), where="r")
