"""``append``, ``update`` and ``write``: values of the store are those of xarray and numpy."""

import json
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from tests.archives.forecast import pressure_levels
from tests.joins import MINIMAL
from virtualstack.cli.command import main

JOINED = MINIMAL | {"combine": "nested", "concat_dim": "time"}


def write(path, start, add=0.0):
    values = np.arange(8.0).reshape(2, 4) + start + add
    data = xr.Dataset({"t": (("time", "x"), values)}, {"time": [start, start + 1]})
    data.to_netcdf(path, unlimited_dims=["time"], engine="netcdf4")


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Four files of a series, in the working directory."""
    monkeypatch.chdir(tmp_path)
    for i in range(4):
        write(f"f{i}.nc", 2 * i)
    return [f"f{i}.nc" for i in range(4)]


def values(store):
    with xr.open_dataset(store, engine="virtualstack") as cube:
        return cube.load()


def expected(*files):
    with xr.open_mfdataset(files, **JOINED) as found:
        return found.load()


@pytest.mark.parametrize("name", ["a.vstack", "a.icechunk", "a.json", "a.parq"])
def test_append_adds_files_after_the_last_label(name, files, capsys):
    """In one snapshot, whatever the form; files that are there already are an error, and nothing changes."""
    assert main(["build", files[0], "-o", name]) == 0
    assert main(["append", name, files[2], files[1], "--dim", "time"]) == 0
    xr.testing.assert_identical(values(name)["t"].drop_attrs(), expected(*files[:3])["t"].drop_attrs())
    assert main(["append", name, files[1], "--dim", "time"]) == 1
    assert "'time'" in capsys.readouterr().err
    assert values(name).sizes["time"] == 6


@pytest.mark.parametrize("command", ["append", "update"])
def test_images_of_a_date_are_added_to_a_cube_of_dates(command, tmp_path, monkeypatch, capsys):
    """A new dimension of a build: files get their labels as they got them then, which the error names."""
    tifffile = pytest.importorskip("tifffile")
    monkeypatch.chdir(tmp_path)
    days = ["20240101", "20240103", "20240102"] if command == "update" else ["20240101", "20240102", "20240103"]
    for day in days:
        tifffile.imwrite(f"ndvi_{day}.tif", np.full((64, 64), int(day[-2:]), "f4"), tile=(16, 16))
    labels = ["--new-dim", r"time=ndvi_(\d{8}):%Y%m%d"]
    assert main(["build", *(f"ndvi_{day}.tif" for day in days[:2]), "-o", "a.vstack", *labels]) == 0
    words = [command, "a.vstack", f"ndvi_{days[2]}.tif"]
    assert main(words) == 1
    assert capsys.readouterr().err.strip().lower().endswith("add it with --new-dim name=pattern")
    assert main([*words, *labels]) == 0
    cube = values("a.vstack")
    assert [str(x)[:10] for x in cube["time"].values] == ["2024-01-01", "2024-01-02", "2024-01-03"]
    assert cube["band_data"].mean(("band", "y", "x")).values.tolist() == [1, 2, 3]


@pytest.mark.parametrize("command", ["append", "update"])
def test_labels_of_added_files_are_in_a_variable(command, tmp_path, monkeypatch, capsys):
    """A store that got its labels in Python: the error names the option that takes those of the files."""
    monkeypatch.chdir(tmp_path)
    for i in range(2):
        days = xr.Dataset({"t": ("time", [1.0 + i]), "when": ("time", [10.0 * i])})
        days.to_netcdf(f"f{i}.nc", engine="netcdf4")
    vds = vs.open_virtual_dataset("f0.nc").assign_coords(time=[0.0]).drop_vars("when")
    vds.virtual.to_vstack("a.vstack")
    words = [command, "a.vstack", "f1.nc", "--dim", "time", "--join", "outer"]
    assert main(words) == 1
    assert "--labels time=NAME" in capsys.readouterr().err
    assert main([*words, "--labels", "time=when"]) == 0
    cube = values("a.vstack")
    assert cube["time"].values.tolist() == [0, 10]
    assert cube["t"].values.tolist() == [1, 2]


def test_checksums_are_recorded(files, capsys):
    """`--checksums` of build, append and update covers all bytes of their files; only a vstack keeps them."""
    for i, file in enumerate(files):
        with Path(file).open("ab") as grown:
            grown.write(bytes([i]) * (1 << 19))
    plain = ["build", files[0], "-o", "plain.vstack"]
    commands = [
        ["build", files[0], "-o", "a.vstack", "--checksums"],
        ["append", "a.vstack", files[1], "--checksums"],
        ["update", "a.vstack", *files[2:], "--checksums"],
    ]
    for command in [plain, *commands]:
        assert main(command) == 0
    for store, is_covered in (("plain.vstack", False), ("a.vstack", True)):
        group = vs.open_virtual_dataset(store).virtual.to_group()
        found = group.arrays["t"].in_memory().locations
        assert {x.fingerprint.ranges == "all" for x in found} == {is_covered}
    assert {x.url.rpartition("/")[2] for x in found} == set(files)
    assert main(["build", files[0], "-o", "a.json", "--checksums"]) == 2
    assert "only a vstack keeps checksums" in capsys.readouterr().err


def test_append_writes_the_message_of_the_log(files, capsys):
    assert main(["build", files[0], "-o", "a.vstack", "-m", "first"]) == 0
    assert main(["append", "a.vstack", files[1], files[2], "--dim", "time", "-m", "two more"]) == 0
    assert [entry.message for entry in vs.Repository.open("a.vstack").log()] == ["two more", "first"]
    assert main(["append", "a.json", files[1], "--dim", "time", "-m", "two more"]) == 2
    assert "--message is for the log of a vstack" in capsys.readouterr().err


def test_update_puts_files_where_their_labels_are(files, capsys):
    """A late file goes between; one that is there already changes nothing."""
    assert main(["build", files[0], files[3], "-o", "a.vstack"]) == 0
    capsys.readouterr()
    assert main(["update", "a.vstack", "f[12].nc", "--dim", "time"]) == 0
    assert capsys.readouterr().out == "a.vstack: snapshot 1\n"
    xr.testing.assert_identical(values("a.vstack")["t"].drop_attrs(), expected(*files)["t"].drop_attrs())
    assert main(["update", "a.vstack", files[1], "--dim", "time"]) == 0
    assert capsys.readouterr().out == "a.vstack: nothing to do, snapshot 1 stays\n"


def test_update_prefers_a_file_if_told_which(files, capsys):
    """Two files with the same labels are an error that names the option."""
    write("new.nc", 2, add=100.0)
    assert main(["build", *files, "-o", "a.vstack"]) == 0
    capsys.readouterr()
    assert main(["update", "a.vstack", "new.nc", "--dim", "time"]) == 1
    assert capsys.readouterr().err == (
        "virtualstack: error: variable 't' has values at time 2 from 'f1.nc', which differ from those of 'new.nc'.\n"
        "  To resolve this, --prefer first keeps the existing values. Or --prefer last takes the later part. Or "
        "--prefer newest takes the file that was modified last\n"
    )
    assert main(["update", "a.vstack", "new.nc", "--dim", "time", "--prefer", "last"]) == 0
    xr.testing.assert_identical(
        values("a.vstack")["t"].drop_attrs(), expected("f0.nc", "new.nc", "f2.nc", "f3.nc")["t"].drop_attrs()
    )


def test_write_replaces_values_of_a_region(files, capsys):
    """By a number, a missing value, or values of a file; negative numbers are values and positions."""
    assert main(["build", *files, "-o", "a.vstack"]) == 0
    wanted = expected(*files)["t"].values.copy()
    np.save("new.npy", np.full((2, 4), 7.5))
    for arguments, index, value in (
        (["-1.5", "--region", "time=3"], np.s_[3], -1.5),
        (["nan", "--region", "time=0:2", "--region", "x=1"], np.s_[0:2, 1], np.nan),
        (["new.npy", "--region", "time=4:6"], np.s_[4:6], 7.5),
        (["9", "--region", "time=-1"], np.s_[-1], 9.0),
        (["2", "--region", "time=6:", "--region", "x=:2"], np.s_[6:, :2], 2.0),
    ):
        assert main(["write", "a.vstack", "t", *arguments]) == 0
        wanted[index] = value
        np.testing.assert_array_equal(values("a.vstack")["t"], wanted)
    capsys.readouterr()
    for arguments, message in (
        (["gone.npy"], "the values 'gone.npy' cannot be read"),
        (["new.npy"], r"shape"),
    ):
        assert main(["write", "a.vstack", "t", *arguments]) == 1
        assert message in capsys.readouterr().err
    for arguments in (["text"], ["--rgion", "time=3", "1"], ["1", "--region", "time=a"]):
        assert main(["write", "a.vstack", "t", *arguments]) == 2
    Path("bad.npy").write_bytes(b"no numpy")
    assert main(["write", "a.vstack", "t", "bad.npy"]) == 1


def test_inspect_shows_many_files_and_writes_a_page(files, capsys):
    """Patterns are expanded; a page has each file."""
    assert main(["inspect", "f*.nc"]) == 0
    out = capsys.readouterr().out
    assert [line for line in out.splitlines() if line.startswith("file://")] == [
        f"file://{Path.cwd()}/{name}" for name in files
    ]
    assert out.count("variable ") == 4
    assert main(["inspect", "f*.nc", "--html", "page.html"]) == 0
    assert "'page.html' is written" in capsys.readouterr().err
    page = Path("page.html").read_text()
    assert main(["inspect", "f*.nc", "--html", "json.html", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["files"]) == len(files)
    assert Path("json.html").read_text() == page
    assert all(name in page for name in files)
    assert main(["inspect", files[0], "--html", "none/page.html"]) == 1
    assert "'none/page.html' cannot be written" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["a.vstack", "a.icechunk", "a.json"])
@pytest.mark.parametrize(("join", "labels"), [("left", ([0, 1], [1, 2], [0, 3])), ("outer", ([0, 1], [1], [0]))])
@pytest.mark.parametrize("command", ["append", "build"])
def test_append_joins_other_labels_as_told(command, join, labels, name, tmp_path, monkeypatch, capsys):
    """Labels along other dimensions that the store lacks are left out, or files may lack some; xarray is the oracle."""
    monkeypatch.chdir(tmp_path)
    data = [
        xr.Dataset({"t": (("time", "x"), np.array([each]) + 10.0 * i)}, {"time": [i], "x": each})
        for i, each in enumerate(labels)
    ]
    for i, each in enumerate(data):
        each["t"].encoding["chunksizes"] = (1, 1)  # references cannot cut chunks
        each.to_netcdf(f"{i}.nc", unlimited_dims=["time"], engine="netcdf4")
    words = ["append", name, "--dim"] if command == "append" else ["build", "-o", name, "--append"]
    assert main(["build", "0.nc", "-o", name]) == 0
    assert main([*words, "time", "1.nc", "2.nc"]) == 1
    if join == "outer" and name == "a.icechunk":  # which cannot express that data is missing
        assert main([*words, "time", "1.nc", "2.nc", "--join", join]) == 1
        words = [*words[:-1], "--absent", "fill", words[-1]]
    assert main([*words, "time", "1.nc", "2.nc", "--join", join]) == 0
    expected = xr.concat(data, "time", join="outer").sel(x=[0, 1])
    np.testing.assert_array_equal(values(name)["t"], expected["t"])


@pytest.mark.parametrize("join", ["left", "outer"])
@pytest.mark.parametrize("name", ["a.vstack", "a.icechunk", "a.json", "a.parq"])
def test_a_gap_of_an_appended_file_is_refused_or_missing(name, join, tmp_path, monkeypatch, capsys):
    """Whatever the word of the join: Icechunk refuses it unless told, and every other form reads it as NaN."""
    monkeypatch.chdir(tmp_path)
    for i, x in enumerate(([0, 1], [0])):
        data = xr.Dataset({"t": (("time", "x"), np.array([x]) + 10.0 * i)}, {"time": [i], "x": x})
        data["t"].encoding["chunksizes"] = (1, 1)
        data.to_netcdf(f"{i}.nc", unlimited_dims=["time"], engine="netcdf4")
    assert main(["build", "0.nc", "-o", name]) == 0
    words = ["append", name, "1.nc", "--dim", "time", "--join", join]
    if name == "a.icechunk":
        capsys.readouterr()
        assert main(words) == 1
        assert "has 1 ABSENT chunk, which references of Icechunk cannot distinguish" in (
            said := capsys.readouterr().err
        )
        assert "--absent fill" in said
        assert values(name).sizes["time"] == 1
        words += ["--absent", "fill"]
    assert main(words) == 0
    np.testing.assert_array_equal(values(name)["t"], [[0, 1], [10, np.nan]])


def test_kerchunk_references_may_refuse_gaps(tmp_path, monkeypatch, capsys):
    """With ``--absent raise``; a vstack expresses them, and has no such option."""
    monkeypatch.chdir(tmp_path)
    for i, names in enumerate(("t", "tu")):
        data = xr.Dataset({name: ("time", [1.0]) for name in names}, {"time": [i]})
        chunks = {name: {"chunksizes": (1,)} for name in names}
        data.to_netcdf(f"{i}.nc", unlimited_dims=["time"], engine="netcdf4", encoding=chunks)
    words = ["build", "0.nc", "1.nc", "--join", "outer"]
    assert main([*words, "-o", "a.json", "--absent", "raise"]) == 1
    assert "ABSENT" in capsys.readouterr().err
    assert main([*words, "-o", "a.json"]) == 0
    assert main([*words, "-o", "a.vstack", "--absent", "raise"]) == 2


@pytest.mark.parametrize("name", ["a.vstack", "a.icechunk", "a.json"])
def test_append_joins_files_along_its_dimension(name, tmp_path, monkeypatch, capsys):
    """Files without labels are joined in their order before they are appended; xarray is the oracle."""
    monkeypatch.chdir(tmp_path)
    data = [xr.Dataset({"t": (("time", "x"), np.arange(8.0).reshape(2, 4) + 10 * i)}) for i in range(3)]
    for i, each in enumerate(data):
        each.to_netcdf(f"{i}.nc", engine="netcdf4", encoding={"t": {"chunksizes": (1, 4)}})
    assert main(["build", "0.nc", "-o", name]) == 0
    assert main(["append", name, "2.nc", "1.nc", "--dim", "time"]) == 1
    assert "no labels along 'time'" in capsys.readouterr().err
    assert main(["append", name, "2.nc", "1.nc", "--dim", "time", "--in-order"]) == 0
    xr.testing.assert_equal(values(name)["t"], xr.concat([data[0], data[2], data[1]], "time")["t"])


def test_files_with_one_label_each_are_joined_by_it(tmp_path, monkeypatch):
    """The time of a file that is no dimension becomes one; ``--verify`` agrees, and one file can be appended."""
    monkeypatch.chdir(tmp_path)
    days = np.datetime64("2020-01-01", "ns") + np.arange(5).astype("timedelta64[D]")
    data = [
        xr.Dataset({"t": ("x", np.arange(4.0) + 10 * i)}, {"time": day, "x": range(4)}) for i, day in enumerate(days)
    ]
    for i, each in enumerate(data):
        each.to_netcdf(f"{i}.nc", engine="netcdf4", encoding={"t": {"chunksizes": (4,)}})
    assert main(["build", "1.nc", "0.nc", "-o", "a.vstack", "--concat-dim", "time", "--verify"]) == 0
    assert main(["append", "a.vstack", "3.nc", "2.nc", "--dim", "time"]) == 0
    assert main(["append", "a.vstack", "4.nc", "--dim", "time"]) == 0
    xr.testing.assert_equal(values("a.vstack"), xr.concat(data, "time"))


@pytest.fixture
def trees(tmp_path, monkeypatch):
    """Files with two groups, whose times follow each other."""
    monkeypatch.chdir(tmp_path)
    made = []
    for i in range(4):
        t = np.arange(8.0).reshape(2, 4) + 10 * i
        a, b = (xr.Dataset({"t": (("time", "x"), each)}, {"time": [2 * i, 2 * i + 1]}) for each in (t, -t))
        made.append(xr.DataTree.from_dict({"/a": a, "/b/c": b}))
        made[-1].to_netcdf(f"{i}.nc", engine="netcdf4")
    return made


@pytest.mark.parametrize("name", ["a.vstack", "a.icechunk", "a.json", "a.parq"])
def test_append_adds_all_groups_of_a_store_with_groups(name, trees, capsys):
    """One file or several; files without these groups are an error, and nothing changes."""
    assert main(["convert", "0.nc", name]) == 0
    assert main(["append", name, "1.nc", "--dim", "time"]) == 0
    write("other.nc", 100)
    capsys.readouterr()
    assert main(["append", name, "other.nc", "--dim", "time"]) == 1
    assert "group '/a' is in" in capsys.readouterr().err
    assert main(["append", name, "3.nc", "2.nc", "--dim", "time", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["sizes"] == {"a/time": 8, "a/x": 4, "b/c/time": 8, "b/c/x": 4}
    assert told["variables"] == ["a/t", "a/time", "b/c/t", "b/c/time"]
    with xr.open_datatree(name, engine="virtualstack") as found:
        for path in ("a", "b/c"):
            expected = xr.concat([tree[path].to_dataset() for tree in trees], "time")
            xr.testing.assert_equal(found[path].to_dataset().load(), expected)


def test_update_adds_all_groups_of_a_store_with_groups(trees):
    vs.open_virtual_datatree("0.nc").virtual.to_vstack("a.vstack")
    assert main(["update", "a.vstack", "3.nc", "1.nc", "--dim", "time"]) == 0
    assert main(["update", "a.vstack", "2.nc", "--dim", "time"]) == 0
    for path in ("a", "b/c"):
        expected = xr.concat([tree[path].to_dataset() for tree in trees], "time")
        xr.testing.assert_equal(xr.load_dataset("a.vstack", engine="virtualstack", group=path), expected)


def test_one_file_at_a_time_if_labels_of_groups_are_left_out(trees, capsys):
    vs.open_virtual_datatree("0.nc").virtual.to_vstack("a.vstack")
    assert main(["append", "a.vstack", "1.nc", "2.nc", "--dim", "time", "--join", "left"]) == 2
    assert "Append one after another" in capsys.readouterr().err
    assert main(["append", "a.vstack", "1.nc", "--dim", "time", "--join", "left"]) == 0


def test_steps_of_a_forecast_are_appended_along_their_dimension(tmp_path):
    """A vstack keeps the dimension along which its files of GRIB differ."""
    paths, store = pressure_levels(tmp_path), str(tmp_path / "a.vstack")
    assert main(["build", *paths[:3], "-o", store]) == 0
    assert main(["append", store, *paths[3:5]]) == 0
    options = MINIMAL | {"coords": "different", "compat": "equals", "combine": "nested", "concat_dim": "step"}
    with xr.open_mfdataset(paths[:5], engine="cfgrib", backend_kwargs={"indexpath": ""}, **options) as found:
        for name in ("t", "u", "step", "valid_time"):
            np.testing.assert_array_equal(values(store)[name], found[name])
