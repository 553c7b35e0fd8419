"""Two writers: changes that do not touch each other both hold, and others are told."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from tests.data.arrays import referenced
from tests.vstack.growing import dataset, values, virtual, write
from virtualstack.combine.addition import appended
from virtualstack.combine.fitting import Fitting
from virtualstack.errors import CombineError, ConflictError
from virtualstack.manifests import ChunkGrid, ManifestGroup, Refusal, inline_array
from virtualstack.manifests.serialised.headers import ArrayHeader
from virtualstack.storage import ObjectStore, Storage
from virtualstack.vstack.format.snapshot import ArrayNode
from virtualstack.vstack.repository import Repository
from virtualstack.vstack.save import Stored
from virtualstack.vstack.write import conflicts


@pytest.fixture
def url(tmp_path):
    url = str(tmp_path / "x.vstack")
    virtual(write(tmp_path / "0.nc", dataset(range(4)))).virtual.to_vstack(url)
    return url


def stored(url):
    """Give the store as one writer sees it from now on."""
    return Stored.newest(ObjectStore(f"file://{url}/", Storage.from_option(None)))


def with_attribute(store, name, **attributes):
    array = store.group.arrays[name]
    changed = replace(array, attributes={**array.attributes, **attributes})
    return replace(store.group, arrays={**store.group.arrays, name: changed})


def longer(store, path):
    """Give what a store holds with a file behind it."""
    part = virtual(path).virtual.to_group()
    fitting = Fitting.from_options(join="exact", options=None, storage=Storage.from_option(None))
    return appended(store.group, part, "time", fitting, ordered=True)


def with_variable(store, name, n):
    ds = xr.Dataset({name: ("time", np.arange(float(n)))})
    array = ds.virtual.to_group().arrays[name]
    return replace(store.group, arrays={**store.group.arrays, name: array})


def test_an_attribute_that_another_one_set_is_not_lost(url):
    """When values of the same variable are written."""
    mine = vs.Repository.open(url)
    theirs = stored(url)
    theirs.write(with_attribute(theirs, "t", note="checked"))
    mine.write("t", {"time": 0}, 1.0)
    found = values(url)["t"]
    assert found.attrs["note"] == "checked"
    assert float(found[0].max()) == 1


def test_an_attribute_is_set_while_values_are_written(url):
    """Both hold."""
    mine = stored(url)
    vs.Repository.open(url).write("t", {"time": slice(0, 2)}, 1.0)
    mine.write(with_attribute(mine, "t", note="checked"))
    found = values(url)["t"]
    assert found.attrs["note"] == "checked"
    assert float(found[:2].max()) == 1


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_values_are_not_written_into_a_variable_that_another_one_replaced(tmp_path, url, dtype):
    """Its chunks may lie elsewhere, or hold numbers of another kind."""
    mine, theirs = vs.Repository.open(url), stored(url)
    other = dataset(range(4), seed=5)
    other["t"] = other["t"].astype(dtype)
    replaced = virtual(write(tmp_path / "other.nc", other)).virtual.to_group().arrays["t"]
    theirs.write(replace(theirs.group, arrays={**theirs.group.arrays, "t": replaced}))
    with pytest.raises(ConflictError, match=r"another writer changed variable '.?t'"):
        mine.write("t", {"time": 0}, 1.0)
    np.testing.assert_array_equal(values(url)["t"], other["t"])


def test_dimensions_keep_one_length(tmp_path, url):
    """A variable of the old length that came meanwhile does not fit to what has grown; nor the other way round."""
    path = write(tmp_path / "1.nc", dataset([9], seed=1))
    mine, theirs = stored(url), stored(url)
    theirs.write(with_variable(theirs, "w", 4))
    with pytest.raises(ConflictError, match="the length of dimension 'time' in group '/'"):
        mine.write(longer(mine, path))
    mine, theirs = stored(url), stored(url)
    theirs.write(replace(theirs.group, arrays={k: x for k, x in theirs.group.arrays.items() if k != "w"}))
    mine, theirs = stored(url), stored(url)
    theirs.write(longer(theirs, path))
    with pytest.raises(ConflictError, match="the length of dimension 'time' in group '/'"):
        mine.write(with_variable(mine, "w", 4))
    assert values(url).sizes["time"] == 5


def test_a_variable_needs_its_group(tmp_path):
    """One that was removed meanwhile."""
    url = str(tmp_path / "y.vstack")
    ds = xr.Dataset({"v": ("x", np.arange(3.0))})
    xr.DataTree.from_dict({"/": ds, "/a": ds}).virtual.to_vstack(url)
    mine, theirs = stored(url), stored(url)
    theirs.write(replace(theirs.group, groups={}))
    below = replace(mine.group.groups["a"], arrays={**mine.group.groups["a"].arrays, "w": mine.group.arrays["v"]})
    with pytest.raises(ConflictError, match="the groups around '/a"):
        mine.write(replace(mine.group, groups={"a": below}))
    assert list(xr.open_datatree(url, engine="virtualstack").children) == []


@pytest.mark.parametrize(
    ("mine", "theirs", "what"),
    [
        ("remove t", "write t", "variable '.?t'"),
        ("remove t", "note t", "variable '.?t'"),
        ("note t", "remove t", "variable '.?t'"),
        ("note t", "note t", "metadata of variable '.?t'|variable '.?t'"),
        ("add w", "add w", "variable '.?w'"),
        ("title", "title", "'title' of the attributes of group '/'"),
        ("remove group", "group title", "group '.?a'"),
        ("group title", "remove group", "group '.?a'"),
        ("add group", "add group", "group '.?b'"),
    ],
)
def test_changes_of_two_writers_to_the_same_conflict(mine, theirs, what, tmp_path):
    """The second writer is told what the first one changed, and nothing is committed."""
    url = str(tmp_path / "y.vstack")
    ds = xr.Dataset({"t": ("x", np.arange(3.0))})
    xr.DataTree.from_dict({"/": ds, "/a": ds}).virtual.to_vstack(url)

    def change(store, do, value):
        group = store.group
        array, below = group.arrays["t"], group.groups["a"]
        return {
            "remove t": lambda: replace(group, arrays={}),
            "write t": lambda: replace(
                group, arrays={"t": inline_array(np.full(3, value), name="t", dims=("x",), attributes={})}
            ),
            "note t": lambda: with_attribute(store, "t", note=value),
            "add w": lambda: replace(
                group, arrays={"t": array, "w": inline_array(np.array(value), name="w", dims=(), attributes={})}
            ),
            "title": lambda: replace(group, attributes={"title": value}),
            "remove group": lambda: replace(group, groups={}),
            "group title": lambda: replace(group, groups={"a": replace(below, attributes={"title": value})}),
            "add group": lambda: replace(group, groups={"a": below, "b": ManifestGroup(attributes={"title": value})}),
        }[do]()

    first, second = stored(url), stored(url)
    first.write(change(first, theirs, 1.0))
    with pytest.raises(ConflictError, match=f"another writer changed (the group )?{what} of"):
        second.write(change(second, mine, 2.0))
    assert vs.Repository.open(url).snapshot.number == 1


def test_variables_that_have_nothing_in_common_both_come(url):
    """In either order."""
    mine, theirs = stored(url), stored(url)
    theirs.write(with_variable(theirs, "w", 4))
    mine.write(with_variable(mine, "u", 4))
    assert {"u", "w"} <= set(values(url).variables)


def test_what_is_written_anew_does_not_lie_where_it_was(tmp_path, url):
    """Compaction would name the folder once more that another writer says the files have left; so would a refresh."""
    virtual(write(tmp_path / "1.nc", dataset([9], seed=1))).virtual.to_vstack(url, append_dim="time")
    expected = values(url)
    mine, theirs, other = (vs.Repository.open(url) for _ in range(3))
    shutil.copytree(tmp_path, tmp_path / "new", ignore=shutil.ignore_patterns("*.vstack"))
    theirs.relocate({tmp_path: tmp_path / "new"})
    with pytest.raises(ConflictError, match=f"the relocation of 'file://{tmp_path}/'"):
        mine.compact()
    write(tmp_path / "1.nc", dataset([9], seed=2).assign_attrs(note="longer" * 1000))
    with pytest.raises(ConflictError, match=f"the relocation of 'file://{tmp_path}/'"):
        other.refresh()
    xr.testing.assert_identical(values(url), expected)
    vs.Repository.open(url).compact()
    xr.testing.assert_identical(values(url), expected)


@pytest.mark.parametrize(("mine", "is_apart"), [(("a", "d"), False), (("c", "d"), False), (("b", "d"), True)])
def test_two_relocations(tmp_path, mine, is_apart):
    """Of different folders both hold; of one, or of where files came to meanwhile, the second one is told."""
    url = tmp_path / "x.vstack"
    for i, name in enumerate("abc"):
        (tmp_path / name).mkdir()
        options = {"append_dim": "time"} if i else {}
        path = write(tmp_path / name / "0.nc", dataset(range(4 * i, 4 * i + 4)))
        virtual(path).virtual.to_vstack(url, **options)
    first, second = vs.Repository.open(url), vs.Repository.open(url)
    first.relocate({tmp_path / "a": tmp_path / "c"})
    move = {tmp_path / mine[0]: tmp_path / mine[1]}
    if is_apart:
        assert second.relocate(move).snapshot.number == 4
    else:
        with pytest.raises(ConflictError, match="another writer changed the relocation of"):
            second.relocate(move)


@pytest.mark.parametrize("n", [1, 20])
def test_files_that_are_added_beside_a_folder_that_is_relocated(n, tmp_path):
    """Both hold, though a prefix of the store is that of all folders."""
    url = tmp_path / "x.vstack"
    for i, name in enumerate("abbb"):
        (tmp_path / name).mkdir(exist_ok=True)
        options = {"append_dim": "time"} if i else {}
        virtual(write(tmp_path / name / f"{i}.nc", dataset([i]))).virtual.to_vstack(url, **options)
    first, second = vs.Repository.open(url), vs.Repository.open(url)
    shutil.copytree(tmp_path / "a", tmp_path / "c")
    first.relocate({tmp_path / "a": tmp_path / "c"})
    added = [virtual(write(tmp_path / "b" / f"{i}.nc", dataset([i]))) for i in range(4, 4 + n)]
    second.update(added, dim="time")
    assert values(url).sizes["time"] == 4 + n
    assert vs.Repository.open(url).verify().is_good


@pytest.mark.parametrize(
    ("change", "is_grown"),
    [
        ({}, True),
        ({"grid": ChunkGrid.regular((6, 4), (2, 4))}, True),
        ({"grid": ChunkGrid.regular((3, 4), (2, 4))}, False),
        ({"grid": ChunkGrid.regular((4, 8), (2, 2))}, False),
        ({"dtype": np.dtype("i8")}, False),
        ({"dimension_names": ("y", "x")}, False),
        ({"attributes": {"a": 1}}, True),
    ],
)
def test_cells_of_a_longer_variable_are_in_their_places(change, is_grown):
    """Unless it was made anew, or is in the bundle, which has no cells."""
    header = ArrayHeader.from_array(referenced([[0], [8]], [[8], [8]], (2, 4), "u1"))
    before, now = ArrayNode(header=header), ArrayNode(header=replace(header, **change))
    assert conflicts._is_grown(before, now) == is_grown
    for other in (replace(now, bundled=(0, 5)), replace(now, generation=1)):
        assert not conflicts._is_grown(before, other)
    assert not conflicts._is_grown(replace(before, bundled=(0, 5)), now)


SETS = [(), ("a",), ("b",), ("a", "b")]


@pytest.mark.parametrize("base", SETS)
@pytest.mark.parametrize("theirs", SETS)
@pytest.mark.parametrize("ours", SETS)
def test_notes_of_a_group_are_those_of_both_writers(url, base, theirs, ours):
    """Each note is there once, if the writer has it who added or removed it."""
    head = stored(url).snapshot

    def group(names):
        return replace(head.groups[""], refusals=tuple(Refusal(path=f"/{x}", reason="", kind="noted") for x in names))

    head = replace(head, groups={"": group(theirs)})
    found = conflicts._merged("", group(ours), group(base), head, url).refusals
    changed = {x: (x in ours) if (x in ours) != (x in base) else (x in theirs) for x in "ab"}
    assert sorted(x.path for x in found) == [f"/{x}" for x in "ab" if changed[x]]


def part(labels, value=0.0):
    return xr.Dataset({"v": (("time", "x"), np.array(labels)[:, None] + np.full((1, 3), value))}, {"time": labels})


@pytest.mark.parametrize("mine", ["append", "update"])
@pytest.mark.parametrize("theirs", ["append", "update"])
def test_elements_of_two_writers_are_placed_again(mine, theirs, tmp_path):
    """The second writer places them in the snapshot of the first one, by the same rules."""
    stale = Repository.create(tmp_path / "x.vstack", part([0, 1]))
    getattr(stale, theirs)(part([2]), "time")
    made = getattr(stale, mine)(part([3]), "time")
    assert made.snapshot.number == 2
    assert made.open_dataset()["v"][:, 0].values.tolist() == [0, 1, 2, 3]


def test_the_same_label_of_two_writers(tmp_path):
    """It is refused as if the first one had been seen, and `prefer` decides if it is given."""
    stale = Repository.create(tmp_path / "x.vstack", part([0, 1]))
    stale.append(part([2]), "time")
    with pytest.raises(CombineError, match="time"):
        stale.append(part([2], 0.5), "time")
    with pytest.raises(CombineError, match="prefer"):
        stale.update(part([2], 0.5), "time")
    assert stale.update(part([2], 0.5), "time", prefer="last").open_dataset()["v"][2, 0] == 2.5


def test_elements_that_two_writers_replace(tmp_path):
    """The second writer is told, as its values may have been made of those that the first one has replaced."""
    stale = Repository.create(tmp_path / "x.vstack", part([0, 1]))
    stale.update(part([1], 0.5), "time", prefer="last")
    with pytest.raises(ConflictError, match="another writer changed variable '/v'"):
        stale.update(part([1], 0.25), "time", prefer="last")


def test_a_snapshot_that_was_chosen_is_not_left(tmp_path):
    """What its user adds to it is not added to a newer one instead."""
    Repository.create(tmp_path / "x.vstack", part([0, 1])).append(part([2]), "time")
    with pytest.raises(ConflictError, match="another writer changed"):
        Repository.open(tmp_path / "x.vstack", at=0).append(part([3]), "time")
