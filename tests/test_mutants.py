"""Small files of every format, damaged at random: no crash, no hang, no untyped error and no silent difference."""

import pytest

from tests import mutants


@pytest.mark.parametrize("n", [20, *(pytest.param(n, marks=pytest.mark.apart) for n in (220, 20_000))])
def test_damaged_files_are_read_right_or_are_typed_errors(n, tmp_path):
    """The values are those that the format's library reads, or the same as before, or there is an error of ours."""
    folder = tmp_path / "subjects"
    folder.mkdir()
    mutants.make_subjects(folder)
    mutants.prepare(folder)
    ends = mutants.run(folder, n, seed=0)
    assert len(ends) == n
    assert not [end for end in ends if end[2] not in mutants.SOUND]
