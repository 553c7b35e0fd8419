"""Fragments of the changelog: their names say of which kind they are, and they hold sentences for users."""

import re
import tomllib

import pytest

from tests.docs.page import CHANGES, ROOT

FRAGMENTS = sorted(path for path in CHANGES.iterdir() if path.name != ".gitkeep")
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["towncrier"]
KINDS = [kind["directory"] for kind in SETTINGS["type"]]


@pytest.mark.parametrize("path", FRAGMENTS, ids=lambda path: path.name)
def test_a_fragment_is_well_formed(path):
    """Its name has a kind; its text is sentences on one line, whose links start in the folder of the changelog."""
    assert re.fullmatch(rf"\+[a-z0-9]+(-[a-z0-9]+)*\.({'|'.join(KINDS)})\.md", path.name)
    text = path.read_text()
    assert re.fullmatch(r"[A-Z`].+\.\)?\n", text)
    for target in re.findall(r"\]\((?!https?://|#)([^)#]+)", text):
        assert (CHANGES.parent / target).exists(), target


def test_the_contributing_page_lists_the_kinds():
    """In the order of the changelog."""
    section = (ROOT / "docs" / "contributing.md").read_text().split("### Add a fragment of the changelog")[1]
    assert re.findall(r"^\| `(\w+)` \|", section.split("\n## ")[0], re.MULTILINE) == KINDS


def test_the_changelog_has_the_place_for_fragments():
    """Once, where a release puts them."""
    assert (ROOT / SETTINGS["filename"]).read_text().count(SETTINGS["start_string"]) == 1
