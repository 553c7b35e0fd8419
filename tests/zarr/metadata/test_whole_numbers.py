import numpy as np
import pyarrow as pa
import pytest

from virtualstack.zarr.metadata.chunk_keys import whole_numbers

LARGEST = 2**63 - 1
NO_NUMBERS = "1 1, ,1 1,2,3 01,2 1,00 -1,2 -0,2 +1,2 1.0,2 1e3,2 0x1,2 x,2 nan,2 NULL,2 \u0661,2"


@pytest.fixture(params=[0, 10_000], ids=["few", "many"])
def others(request):
    """Texts of one kind and of two columns to stand before others: how many there are decides on the way."""
    return ["5,6"] * request.param


def columns(texts, n_columns, **options):
    got = whole_numbers(pa.array(texts, pa.large_string()), n_columns, delimiter=",", **options)
    return got if got is None else [column.tolist() for column in got]


def test_many_rows():
    """Numbers of any length up to 2^63 come back, of more rows than are read at once."""
    rng = np.random.default_rng(0)
    numbers = rng.integers(0, LARGEST, (200_000, 2), endpoint=True) >> rng.integers(0, 63, (200_000, 2))
    texts = pa.array([f"{a},{b}" for a, b in numbers.tolist()], pa.large_string())
    first, second = whole_numbers(texts, 2, delimiter=",")
    np.testing.assert_array_equal(first, numbers[:, 0])
    np.testing.assert_array_equal(second, numbers[:, 1])
    (first,) = whole_numbers(pa.array(["5", "7"], pa.large_string())[1:], 1, delimiter=",")
    assert first.tolist() == [7]


def test_blanks(others):
    """Blanks around numbers are for the caller to allow; within a number they never stand."""
    first, second = columns([*others, "1, 2", "3 , 4 "], 2, blanks=True)
    assert (first[-2:], second[-2:]) == ([1, 3], [2, 4])
    assert columns([*others, "1, 2"], 2) is None
    for text in ("1 1,2", " ,2", "1, 02"):
        assert columns([*others, text], 2, blanks=True) is None


def test_nothing():
    """No texts are no numbers, in as many columns."""
    assert columns([], 3) == [[], [], []]


@pytest.mark.parametrize(
    "text",
    [
        *NO_NUMBERS.split(),
        *(f"{LARGEST + 1},2", f"{'1' * 30},2", '"1",2'),
        *("", "1\n,2", "1,2\n", "1,2\n3,4", "\n1,2", "1,2\r", "1\t,2", "\0,2"),
    ],
)
def test_texts_of_another_form_leave_no_columns(text, others):
    """One text of another form, wherever it stands, leaves no columns."""
    for texts in ([text], [text, "0,0"], ["0,0", text], ["10,10", text, "20,20"]):
        assert columns([*others, *texts], 2) is None
