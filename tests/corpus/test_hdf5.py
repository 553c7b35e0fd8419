"""Every dataset of real HDF5 files beside h5py, and the page that says so."""

from pathlib import Path

import pytest

from tests.corpus.report import CORPUS, corpus_files, judge
from tests.formats.groups import CHECKED, group_of

pytestmark = pytest.mark.skipif(not corpus_files(), reason=f"no corpus at {CORPUS}")

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "formats.md"

# What h5py itself cannot read, or zarr has no data type for; everything else is equal.
REFUSED = {
    "tfilters.h5": {"/external", "/myfilter"},
    "vlen2.h5": {"/vlen_str"},
    "hdfeos_sample_swath.h5": {"/HDFEOS/SWATHS/Swath1/Profile Fields/Profile-2000"},
}


@pytest.mark.parametrize("path", corpus_files(), ids=lambda path: path.name)
def test_every_dataset_is_equal_or_refused_by_name(path):
    """Values equal h5py's, raw, or the dataset carries a refusal; none is wrong."""
    pytest.importorskip("hdf5plugin", reason="some files have filters of hdf5plugin")
    verdict = judge(path)
    assert not verdict.error
    assert not verdict.wrong
    assert {name for name, _ in verdict.refused} == REFUSED.get(path.name, set())
    row = f"| {path.name} | {verdict.equal} | {len(verdict.inlined)} | "
    assert row in PAGE.read_text(), f"run tests/corpus/report.py for {PAGE.name}"


@pytest.mark.parametrize("path", corpus_files(), ids=lambda path: path.name)
def test_the_parsers_and_the_library_agree(path):
    """On every name, attribute, shape, fill value and chunk."""
    group_of(path, CHECKED)
