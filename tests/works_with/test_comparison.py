"""The table of the comparison page is what a run gives."""

import importlib.metadata

import pytest

from tests.docs.page import ROOT
from tests.works_with.comparison import CASES, TOOLS, outcome

TEXT = (ROOT / "docs" / "explanation" / "comparison.md").read_text()


def shown():
    """Return the outcomes on the page, by case and tool."""
    rows = TEXT.split("<!-- joins -->\n")[1].split("\n\n")[0].splitlines()
    assert rows[0] == f"| Files | {' | '.join(TOOLS)} |"
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[2:]]
    return {name: dict(zip(TOOLS, found, strict=True)) for name, *found in cells}


def test_the_page_has_all_cases():
    """In their order."""
    assert list(shown()) == list(CASES)


@pytest.mark.filterwarnings("ignore")  # of other packages
@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("case", CASES)
def test_an_outcome_is_as_shown(case, tool, tmp_path):
    """For the versions that the page names; newer versions of others may do more."""
    if tool != "virtualstack":
        pytest.importorskip(tool, reason=f"{tool} is not installed")
        version = importlib.metadata.version(tool)
        if f" {version}" not in TEXT:
            pytest.skip(f"the page is not about {tool} {version}; run python -m tests.works_with.comparison again")
    assert outcome(tool, CASES[case], tmp_path) == shown()[case][tool]
