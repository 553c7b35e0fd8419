"""The table of the page about usual archives is what a run gives, and no advice leads to a wrong cube."""

import pytest

from tests.archives import matrix

pytestmark = pytest.mark.filterwarnings("ignore")  # of other packages; those of virtualstack are read by the matrix


@pytest.fixture(scope="module")
def found(archive, tmp_path_factory):
    """What becomes of each archive in each column."""
    return matrix.outcomes(archive, tmp_path_factory.mktemp("made"))


def test_no_cell_is_wrong(found):
    """Values are right, with an option at most, or xarray raises an error, too."""
    bad = [f"{name}, {column}: {x}" for name, row in found.items() for column, x in row.items() if not x.is_right]
    assert not bad, "\n".join(bad)


def test_most_cells_need_no_option(found):
    """At least four of five."""
    cells = [x for row in found.values() for x in row.values()]
    assert sum(not x.options for x in cells) >= 0.8 * len(cells)


def test_the_page_is_what_the_run_gives(found):
    """Run ``python -m tests.archives.matrix`` to write it again."""
    assert matrix.written(matrix.PAGE.read_text()) == matrix.table(found)


@pytest.mark.parametrize("way", ["join", "build"])
@pytest.mark.parametrize("name", matrix.ARCHIVES)
def test_no_advice_leads_to_a_wrong_cube(archive, tmp_path, name, way):
    """Every option that a message names is followed, alone and after others; what is dropped is named."""
    made = matrix.Archive(name, archive(name), tmp_path)
    bad = [f"{options}: {tried.wrong}" for options, tried in matrix.follow_all(getattr(made, way)) if tried.wrong]
    assert not bad, "\n".join(bad)
