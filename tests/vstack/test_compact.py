"""Many commits become one segment, and nothing else changes."""

from __future__ import annotations

import shutil
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.amount import examples
from tests.properties.test_vstack import SERIAL, described, growing, read
from tests.vstack.stores import Change, added, appended, create, opened, removed, values_of, virtual, written
from virtualstack.errors import ConflictError, WriterError
from virtualstack.manifests import ManifestGroup
from virtualstack.testing.strategies import model_read
from virtualstack.vstack.repository import Repository
from virtualstack.vstack.save import save


@pytest.fixture
def url(tmp_path):
    """Twenty rows by ten commits, some of them overwritten."""
    url = tmp_path / "x.vstack"
    create(url, {"v": virtual(tmp_path, [0, 1])})
    for n in range(2, 20, 2):
        Change(url, appended(range(n + 2), v=virtual(tmp_path, [n, n + 1]))).commit()
    Change(url, lambda group: group, overlays=written("v", 3, virtual(tmp_path, [33]))).commit()
    return url


WANTED = [0, 1, 2, 33, *range(4, 20)]


def test_one_placement_is_left(url):
    """In a new snapshot, which reads the same; the earlier ones do too."""
    before = opened(url)[2].arrays["v"]
    made = Repository.open(url).compact(message="compacted")
    assert made.snapshot.number == 11
    assert made.snapshot.arrays["/v"].placements.n == 1
    after = opened(url)[2].arrays["v"]
    assert after.equals(before)
    assert described(after.in_memory()) == described(before.in_memory())
    assert values_of(url) == WANTED
    assert values_of(url, at=9) == list(range(20))
    entry = made.log(limit=1)[0]
    assert (entry.message, entry.changes) == ("compacted", ("v: compacted",))


def test_a_compact_store_stays_as_it_is(url):
    """No snapshot is committed."""
    made = Repository.open(url).compact()
    assert made.compact().snapshot.number == made.snapshot.number == 11
    assert Repository.open(url, at=0).compact().snapshot.number == 0


def test_some_variables(url, tmp_path):
    """Others stay as they are; one that is not there is an error."""
    Change(url, added(w=virtual(tmp_path, range(20), "w"))).commit()
    Change(url, lambda group: group, overlays=written("w", 3, virtual(tmp_path, [33], "w"))).commit()
    nodes = Repository.open(url).compact("w").snapshot.arrays
    assert (nodes["/v"].placements.n, nodes["/w"].placements.n) == (11, 1)
    with pytest.raises(WriterError, match=r"has no variable '/u'; it has \['/time', '/v', '/w'\]"):
        Repository.open(url).compact(["/w", "u"])


def test_a_compaction_keeps_what_others_write_meanwhile(url, tmp_path):
    """An append and a region are there after a compaction that was begun before them."""
    repository = Repository.open(url)
    Change(url, appended(range(21), v=virtual(tmp_path, [20]))).commit()
    Change(url, lambda group: group, overlays=written("v", 5, virtual(tmp_path, [55]))).commit()
    made = repository.compact()
    assert made.snapshot.arrays["/v"].placements.n == 3
    assert values_of(url) == [*WANTED[:5], 55, *WANTED[6:], 20]


def test_an_edit_begun_before_a_compaction_is_kept(url, tmp_path):
    """Its data are in the store after it, and a second compaction takes them along."""
    changes = [
        Change(url, appended(range(21), v=virtual(tmp_path, [20]))),
        Change(url, lambda group: group, overlays=written("v", 5, virtual(tmp_path, [55]))),
    ]
    Repository.open(url).compact()
    for change in changes:
        change.commit()
    assert values_of(url) == [*WANTED[:5], 55, *WANTED[6:], 20]
    made = Repository.open(url).compact().snapshot
    assert made.arrays["/v"].placements.n == 1
    assert values_of(url) == [*WANTED[:5], 55, *WANTED[6:], 20]


@pytest.mark.parametrize("compact_first", [True, False])
def test_a_variable_that_goes_meanwhile(url, compact_first):
    """Its removal holds where it comes second; a compaction that does is told."""
    change, repository = Change(url, removed("v")), Repository.open(url)
    if compact_first:
        repository.compact()
        change.commit()
    else:
        change.commit()
        with pytest.raises(ConflictError, match="changed variable '/v'"):
            repository.compact()
    assert "v" not in opened(url)[2].arrays


def test_two_compactions(url, tmp_path):
    """Both succeed where they are of the same snapshot; one that merges less than another has, is told."""
    first, second, third = (Repository.open(url) for _ in range(3))
    first.compact()
    assert second.compact().snapshot.arrays["/v"].placements.n == 1
    Change(url, lambda group: group, overlays=written("v", 5, virtual(tmp_path, [55]))).commit()
    Repository.open(url).compact()
    with pytest.raises(ConflictError, match="changed variable '/v'"):
        third.compact()
    assert values_of(url) == [*WANTED[:5], 55, *WANTED[6:]]


def test_a_variable_that_is_made_anew_meanwhile(url, tmp_path):
    """Its chunks do not come back."""
    repository = Repository.open(url)
    Change(url, added(v=virtual(tmp_path, range(100, 120)))).commit()
    with pytest.raises(ConflictError, match="changed variable '/v'"):
        repository.compact()
    assert values_of(url) == list(range(100, 120))


def test_sources_that_were_moved(url, tmp_path):
    """They are found where they are, before and after, and can be moved again."""
    (tmp_path / "other").mkdir()
    for path in tmp_path.glob("*.bin"):
        path.rename(tmp_path / "other" / path.name)
    Repository.open(url).relocate({str(tmp_path): str(tmp_path / "other")})
    Repository.open(url).compact()
    assert values_of(url) == WANTED
    (tmp_path / "other").rename(tmp_path / "third")
    Repository.open(url).relocate({str(tmp_path / "other"): str(tmp_path / "third")})
    assert values_of(url) == WANTED


def save_row(url, n, *, relative):
    """Put a row behind the others, from a file beside the store."""
    new = virtual(url.parent, [n])
    joined = np.concatenate([opened(url)[2].arrays["v"], new], 0) if n else new
    joined = replace(joined, name="v", dimension_names=("time", "x"))
    save(ManifestGroup(arrays={"v": joined}), url, relative=relative, mode="w")


def test_sources_that_are_relative_to_the_store(tmp_path):
    """They stay so: store and data can be moved together."""
    url = tmp_path / "a" / "x.vstack"
    save_row(url, 0, relative=True)
    save_row(url, 1, relative=True)
    Repository.open(url).compact()
    (tmp_path / "a").rename(tmp_path / "b")
    assert values_of(tmp_path / "b" / "x.vstack") == [0, 1]


@pytest.mark.parametrize("first", [True, False])
def test_each_source_stays_relative_or_absolute(tmp_path, first):
    """In a store that has both, of files in one folder."""
    url = tmp_path / "a" / "x.vstack"
    for n, relative in enumerate([first, not first]):
        save_row(url, n, relative=relative)
    Repository.open(url).compact()
    assert values_of(url) == [0, 1]
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    shutil.rmtree(tmp_path / "a")
    read = opened(tmp_path / "b" / "x.vstack")[2].arrays["v"].in_memory().locations
    folders = {True: f"file://{tmp_path}/b", False: f"file://{tmp_path}/a"}
    assert [x.url.rpartition("/")[0] for x in read] == [folders[first], folders[not first]]


def test_many_placements(tmp_path):
    """More than stand in a snapshot: pages are read."""
    url = tmp_path / "x.vstack"
    create(url, {"v": virtual(tmp_path, range(300))})
    change = Change(url, lambda group: group)
    change.overlays = {"/v": [written("v", n, virtual(tmp_path, [1000 + n]))["/v"][0] for n in range(299, 0, -1)]}
    change.commit()
    late = Change(url, lambda group: group, overlays=written("v", 7, virtual(tmp_path, [7])))
    early = Repository.open(url)
    assert len(early.snapshot.arrays["/v"].placements.pages) == 1
    late.commit()
    made = early.compact().snapshot
    assert (made.arrays["/v"].placements.n, made.arrays["/v"].n_placed) == (2, 301)
    wanted = [0, *range(1001, 1300)]
    wanted[7] = 7
    assert values_of(url) == wanted


@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_any_array_is_the_same_after_it(data):
    """Whatever its encodings, starts, holes and inline chunks: entries and values are."""
    url = f"memory://compact/{next(SERIAL)}.vstack"
    versions = list(growing(data, url))
    if not versions:
        return
    before, values, sources = versions[-1]
    made = Repository.open(url).compact().snapshot
    assert made.arrays["/v"].placements.n == 1
    after = read(url).arrays["v"]
    assert after.equals(before)
    assert replace(after, manifest=before.manifest).equals(before)
    assert described(after.in_memory()) == described(before.in_memory())
    np.testing.assert_array_equal(model_read(after.whole(), sources), values)
