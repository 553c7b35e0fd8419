"""The table of the comparison page is what a run gives."""

import importlib.metadata

import pytest

from tests.docs.page import ROOT
from tests.works_with.comparison import ALIKE, CASES, TOOLS, WAYS, outcome

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


def skip_other_versions(tool):
    """Only the versions that the page names are as it says; newer ones of others may do more."""
    if tool != "virtualstack":
        pytest.importorskip(tool, reason=f"{tool} is not installed")
        version = importlib.metadata.version(tool)
        if f" {version}" not in TEXT:
            pytest.skip(f"the page is not about {tool} {version}; run python -m tests.works_with.comparison again")


@pytest.mark.filterwarnings("ignore")  # of other packages
@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("case", CASES)
def test_an_outcome_is_as_shown(case, tool, tmp_path):
    """With the options of the tools' tutorials."""
    skip_other_versions(tool)
    assert outcome(tool, CASES[case], tmp_path) == shown()[case][tool]


@pytest.mark.filterwarnings("ignore")
def test_options_change_the_last_row_as_the_page_says(tmp_path):
    """Of each tool that has one."""
    *_, packing = CASES.values()
    assert outcome("virtualstack", packing, tmp_path / "a", unpack=False) == "error (CombineError)"
    skip_other_versions("virtualizarr")
    found = outcome("virtualizarr", packing, tmp_path / "b", combine_attrs="no_conflicts")
    assert found.startswith("error (")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("tool", "form"), WAYS)
def test_what_is_measured_has_the_right_values(tool, form, tmp_path):
    """In each form of references."""
    for name in {tool, "icechunk" if form == "icechunk" else "kerchunk"} - {"virtualstack"}:
        pytest.importorskip(name, reason=f"{name} is not installed")
    assert outcome(tool, [ALIKE] * 3, tmp_path, form=form) == "right values"
