"""Variables and groups are added to a store, and edited in it, by name; the rest stays as it is."""

import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from virtualstack.errors import ConflictError, WriterError


def write(path, group=None, n=4, **names):
    """Write variables of one dimension, one chunk for each element."""
    data = {name: ("time", np.arange(n) + float(value), {"units": "K"}) for name, value in names.items()}
    times = ("time", np.arange(n), {"units": "days since 2001-01-01"})
    encoding = {name: {"chunksizes": (1,), "zlib": True} for name in data}
    xr.Dataset(data, {"time": times}, {"title": "t"}).to_netcdf(path, engine="netcdf4", group=group, encoding=encoding)
    return vs.open_virtual_dataset(path, group=group)


def files(store):
    return {x.relative_to(store) for x in store.rglob("*") if x.is_file()}


@pytest.fixture
def store(tmp_path):
    """A store of one variable, and its values."""
    path = tmp_path / "a.vstack"
    write(tmp_path / "t.nc", t=0).virtual.to_vstack(path)
    return path


def values(store, group=None):
    with xr.open_dataset(store, engine="virtualstack", group=group, chunks=None) as opened:
        return opened.load()


def test_a_variable_is_added(store, tmp_path):
    """As ``to_zarr(mode="a")`` adds it; references that are there are not written again."""
    before = values(store)
    write(tmp_path / "u.nc", u=10).assign_attrs(history="more").virtual.to_vstack(store, mode="a")
    with xr.open_mfdataset([tmp_path / "t.nc", tmp_path / "u.nc"], engine="netcdf4") as wanted:
        xr.testing.assert_equal(values(store), wanted.load())
    assert values(store).attrs == {"title": "t", "history": "more"}
    repo = vs.Repository.open(store)
    assert repo.snapshot.changes == ("u: new, time 4",) or "u: new" in repo.snapshot.changes[0]
    assert set(repo.diff(0).changed) == {"/"}
    assert not repo.diff(0).removed
    xr.testing.assert_identical(vs.Repository.open(store, at=0).open_dataset(chunks=None).load(), before)


def test_a_variable_is_replaced(store, tmp_path):
    """The other variables stay."""
    write(tmp_path / "u.nc", t=50).virtual.to_vstack(store, mode="a")
    np.testing.assert_array_equal(values(store)["t"], np.arange(4) + 50.0)


def test_a_new_store(tmp_path):
    """There need not be one, nor need there be the groups above."""
    vds = write(tmp_path / "t.nc", t=0)
    vds.virtual.to_vstack(tmp_path / "a.vstack", mode="a")
    vds.virtual.to_vstack(tmp_path / "b.vstack", group="/model/run")
    xr.testing.assert_identical(values(tmp_path / "a.vstack"), values(tmp_path / "b.vstack", "model/run"))


def test_a_group_is_added(store, tmp_path):
    """A parent beside an existing child, and a child below an existing parent."""
    u = write(tmp_path / "u.nc", u=10)
    u.virtual.to_vstack(store, group="deep/inner")
    write(tmp_path / "w.nc", w=20).virtual.to_vstack(store, group="deep")
    with xr.open_datatree(store, engine="virtualstack", chunks=None) as tree:
        assert set(tree.groups) == {"/", "/deep", "/deep/inner"}
        for path, name, first in (("", "t", 0), ("deep", "w", 20), ("deep/inner", "u", 10)):
            np.testing.assert_array_equal(tree[f"{path}/{name}"], np.arange(4.0) + first)
    with pytest.raises(WriterError, match="exists already") as error:
        u.virtual.to_vstack(store, group="deep/inner")
    assert "mode='a'" in str(error.value)
    write(tmp_path / "x.nc", x=30).virtual.to_vstack(store, group="deep/inner", mode="w")
    assert set(values(store, "deep/inner").data_vars) == {"x"}
    assert set(values(store, "deep").data_vars) == {"w"}


def test_a_group_grows(tmp_path):
    """``append_dim`` and ``region`` of a group leave the others alone."""
    store = tmp_path / "b.vstack"
    write(tmp_path / "t.nc", t=0).virtual.to_vstack(store, group="other")
    write(tmp_path / "u.nc", u=10).virtual.to_vstack(store, group="deep")
    later = write(tmp_path / "v.nc", n=6, u=10).isel(time=slice(4, 6))
    later.virtual.to_vstack(store, group="deep", append_dim="time")
    write(tmp_path / "w.nc", u=70).isel(time=[1]).drop_vars("time").virtual.to_vstack(
        store, group="deep", region={"time": slice(1, 2)}
    )
    np.testing.assert_array_equal(values(store, "deep")["u"], [10, 71, 12, 13, 14, 15])
    np.testing.assert_array_equal(values(store, "other")["t"], np.arange(4.0))
    with pytest.raises(KeyError, match="nowhere"):
        later.virtual.to_vstack(store, group="nowhere", append_dim="time")


def test_what_disagrees(store, tmp_path):
    """Lengths, labels and names that would make another variable wrong are errors, and nothing is written."""
    before = files(store)
    longer = write(tmp_path / "u.nc", n=5, u=0)
    with pytest.raises(WriterError, match="'time'"):
        longer.virtual.to_vstack(store, mode="a")
    with pytest.raises(WriterError, match="length 5"):
        longer.drop_vars("time").virtual.to_vstack(store, mode="a")
    with pytest.raises(WriterError, match="length 5"):
        longer.virtual.to_vstack(store, group="below")
    other = write(tmp_path / "v.nc", v=0)
    other["time"] = other["time"] + np.timedelta64(1, "D")
    with pytest.raises(WriterError, match="labels of 'time' differ") as error:
        other.virtual.to_vstack(store, mode="a")
    assert "Repository.update" in str(error.value)
    with pytest.raises(WriterError, match="'t' would name both"):
        write(tmp_path / "w.nc", w=0).virtual.to_vstack(store, group="t")
    assert files(store) == before
    with pytest.raises(ValueError, match="mode='r'"):
        other.virtual.to_vstack(store, mode="r")
    with pytest.raises(ValueError, match="append_dim='time'"):
        other.virtual.to_vstack(store, mode="a", append_dim="time")


def test_a_variable_keeps_its_lengths(store, tmp_path):
    """As in xarray, whoever wants to append says so; ``mode="w"`` replaces."""
    part = write(tmp_path / "u.nc", n=5, t=3)
    with pytest.raises(WriterError, match=r"'time': 4.*'time': 5") as error:
        part.virtual.to_vstack(store, mode="a")
    assert "append_dim=" in str(error.value)
    np.testing.assert_array_equal(values(store)["t"], np.arange(4.0))


def test_an_edit(store, tmp_path):
    """Names, attributes, encodings and variables change in one snapshot, and no reference is written again."""
    write(tmp_path / "u.nc", u=10).virtual.to_vstack(store, mode="a")
    write(tmp_path / "w.nc", w=10).virtual.to_vstack(store, group="deep")
    repo, before = vs.Repository.open(store), files(store)

    def change(vds):
        vds = vds.drop_vars("u").rename(t="tas").assign_attrs(title="edited")
        vds["tas"].attrs["units"] = "degC"
        return vds

    edited = repo.edit(change, message="mend names")
    assert edited.snapshot.number == repo.snapshot.number + 1
    found = edited.open_dataset(chunks=None).load()
    np.testing.assert_array_equal(found["tas"], np.arange(4.0))
    assert (set(found.data_vars), found.attrs["title"], found["tas"].attrs["units"]) == ({"tas"}, "edited", "degC")
    assert not [x for x in files(store) - before if "segments" in str(x)]
    np.testing.assert_array_equal(edited.open_dataset(group="deep", chunks=None)["w"], np.arange(4) + 10.0)
    np.testing.assert_array_equal(repo.open_dataset(chunks=None)["t"], np.arange(4.0))
    with pytest.raises(ConflictError):
        repo.edit(lambda vds: vds.drop_vars("t"))


def test_an_edit_of_a_group(tmp_path):
    """Labels that the group inherits are not written into it; an edit of nothing makes no snapshot."""
    rain = xr.Dataset({"rain": ("time", [1.0, 2.0])})
    tree = xr.DataTree.from_dict({"/": xr.Dataset(coords={"time": [5, 6]}), "/gauge": rain, "/gauge/inner": rain})
    tree.to_netcdf(tmp_path / "a.nc", engine="netcdf4")
    repo = vs.Repository.create(tmp_path / "a.vstack", vs.open_virtual_datatree(tmp_path / "a.nc"))
    assert repo.edit(lambda vds: vds, group="gauge").snapshot.number == 0
    assert repo.edit(lambda vds: vds).snapshot.number == 0
    edited = repo.edit(lambda vds: vds.rename(rain="pr"), group="gauge")
    with edited.open_datatree(chunks=None) as found:
        assert set(found["gauge"].to_dataset(inherit=False).variables) == {"pr"}
        np.testing.assert_array_equal(found["gauge/inner/rain"], [1, 2])
        np.testing.assert_array_equal(found["gauge"]["time"], [5, 6])


def test_two_writers_add_different_variables(store, tmp_path):
    """Neither is lost."""
    first = vs.Repository.open(store)
    write(tmp_path / "u.nc", u=10).virtual.to_vstack(store, mode="a")
    edited = first.edit(lambda vds: vds.assign_attrs(note="n"))
    assert set(edited.open_dataset().data_vars) == {"t", "u"}
