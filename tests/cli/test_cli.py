"""The command line: what it prints, writes and exits with."""

import importlib.util
import io
import json
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path
from unittest.mock import Mock

import h5py
import netCDF4
import numpy as np
import pandas as pd
import pytest
import xarray as xr

from tests.data.netcdf4 import netcdf4_file
from tests.joins import MINIMAL
from virtualstack import __version__, sample
from virtualstack.cli import building, inspect
from virtualstack.cli.command import main
from virtualstack.cli.files import sample_files
from virtualstack.cli.output import OutputError
from virtualstack.errors import MissingDependencyError, SourceNotFoundError
from virtualstack.verify import verify_against_files


def write(path, start, n=2, *, unlimited=("time",)):
    """Write one netCDF-4 file of a series; values differ from file to file."""
    variables = {
        "time": ("f8", "time", np.arange(start, start + n), {"units": DAYS}),
        "t": ("f4", "time x", np.arange(4 * n).reshape(n, 4) + start, {}, {"zlib": True, "chunksizes": (1, 4)}),
        "mask": ("i1", "x", [0, 1, 1, 0]),
    }
    sizes = {dim: None if dim in unlimited else length for dim, length in (("time", n), ("x", 4))}
    return str(netcdf4_file(path, sizes, variables))


DAYS = "days since 2000-01-01"
JOINED = MINIMAL | {"combine": "nested", "concat_dim": "time"}


@pytest.fixture
def files(tmp_path):
    return [write(tmp_path / f"f{i}.nc", 2 * i) for i in range(3)]


def error_of(capsys):
    """Give the one error on stderr, without the name of the program; what helps is on a line of its own."""
    err = capsys.readouterr().err
    assert re.fullmatch(r"virtualstack: error: .+(\n  \S.+)?\n", err), err
    return err.removeprefix("virtualstack: error: ").replace("\n  ", " ").rstrip()


# -- build ------------------------------------------------------------------------------------------------------


def test_chunks_that_were_written_anew_are_not_said_to_stay_in_the_files(files, tmp_path, capsys):
    """References in zarr have one encoding a variable, so those of a file that is packed otherwise are values."""
    netcdf4_file(
        tmp_path / "plain.nc",
        {"time": None, "x": 4},
        {
            "time": ("f8", "time", [6.0], {"units": DAYS}),
            "t": ("f4", "time x", np.full((1, 4), 6.0), {}, {"chunksizes": (1, 4)}),
            "mask": ("i1", "x", [0, 1, 1, 0]),
        },
    )
    target = str(tmp_path / "x.json")
    assert main(["build", files[0], str(tmp_path / "plain.nc"), "-o", target, "--rewrite", "100%", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    refs = [x for x in json.loads(Path(target).read_text())["refs"].values() if isinstance(x, list)]
    assert found["references"] == len(refs)
    assert found["stored_bytes"] == sum(x[2] for x in refs)
    assert {x[0] for x in refs} == {Path(files[0]).as_uri()}


@pytest.mark.parametrize("suffix", ["json", "parq", "vstack", "icechunk"])
def test_build_writes_a_cube_and_shows_it(files, tmp_path, capsys, suffix):
    """The unlimited dimension is found; values equal those of the files."""
    output = str(tmp_path / f"refs.{suffix}")
    assert main(["build", *files, "-o", output]) == 0
    seen = capsys.readouterr()
    assert "<xarray.Dataset>" in seen.out
    assert re.search(r"time: 6", seen.out)
    assert f"{output}: 7 references to 3 files" in seen.out
    assert re.search(r"\n[\d.]+ k?B of chunks stay in the files, and '.*' takes [\d.]+ k?B\n", seen.out)
    assert seen.err == ""
    with xr.open_dataset(output, engine="virtualstack") as cube:
        np.testing.assert_array_equal(cube["t"][:, 0], [0, 4, 2, 6, 4, 8])


def test_verify_says_that_all_is_equal(files, tmp_path, capsys):
    """Every variable, in every file."""
    assert main(["build", *files, "-o", str(tmp_path / "refs.json"), "--verify"]) == 0
    assert capsys.readouterr().out.endswith("verified: 3 variables equal in 3 files\n")


def test_verify_fails_where_a_value_differs(files, tmp_path, capsys, monkeypatch):
    """Exit status 1, and the variable, file and values on stderr."""

    def verify_wrong(cube, *args, **options):
        return verify_against_files(cube.assign(t=cube["t"].where(cube["t"] != 9, 0)), *args, **options)

    monkeypatch.setattr(building, "verify_against_files", verify_wrong)
    assert main(["build", *files, "-o", str(tmp_path / "refs.json"), "--verify"]) == 1
    seen = capsys.readouterr()
    assert seen.out.endswith("verified: 2 variables equal in 3 files, 1 differ\n")
    assert re.search(
        r"^virtualstack: error: variable 't', compared with 'file://.*f1\.nc': 1 of 8 values differ, the first at "
        r"\(1, 3\): 0\.0 in the cube, 9\.0 in the file$",
        seen.err,
        re.MULTILINE,
    )


def test_build_makes_a_new_snapshot_of_a_store_that_is_there(files, tmp_path, capsys):
    """Earlier ones stay; values are compared in the newest."""
    output = str(tmp_path / "cube.vstack")
    assert main(["build", *files[:2], "-o", output]) == 0
    assert main(["build", *files, "-o", output, "--verify", "--rewrite", "1%", "--overwrite"]) == 0
    assert "verified: " in capsys.readouterr().out
    for at, n in ((0, 4), (1, 6)):
        with xr.open_dataset(output, engine="virtualstack", at=at) as cube:
            assert cube.sizes["time"] == n


def test_build_orders_files_by_their_labels(files, tmp_path, capsys):
    """Names such as apr, feb, jan tell no order, and an axis that does not ascend cannot be sliced."""
    given, output = [files[2], files[0], files[1]], str(tmp_path / "refs.json")
    assert main(["build", *given, "-o", output, "--verify"]) == 0
    assert "3 variables equal in 3 files" in capsys.readouterr().out
    with xr.open_dataset(output, engine="virtualstack") as cube, xr.open_mfdataset(files, **JOINED) as expected:
        np.testing.assert_array_equal(cube.t, expected.t)
        assert cube.indexes["time"].is_monotonic_increasing
    assert main(["build", *given, "-o", output, "--in-order", "--overwrite", "--verify"]) == 0
    with xr.open_dataset(output, engine="virtualstack") as cube:
        assert cube.time.dt.day.values.tolist() == [5, 6, 1, 2, 3, 4]


def test_build_refuses_labels_that_are_there_twice(files, tmp_path, capsys):
    """Two copies of one day gave an axis with duplicates."""
    copy = tmp_path / "copy.nc"
    copy.write_bytes(Path(files[0]).read_bytes())
    assert main(["build", *files, str(copy), "-o", str(tmp_path / "refs.json")]) == 1
    assert "copy.nc" in error_of(capsys)
    assert not (tmp_path / "refs.json").exists()


@pytest.mark.parametrize("name", ["a.vstack", "a.json", "a.parq", "a.icechunk", "a.json.zst", "a.json.parq"])
def test_build_replaces_nothing_unasked(name, files, tmp_path, capsys):
    """A second build put a store of one day in the place of four, without a word."""
    output = str(tmp_path / name)
    assert main(["build", *files, "-o", output]) == 0
    capsys.readouterr()
    assert main(["build", files[0], "-o", output]) == 1
    assert "already exists. Replace it with --overwrite," in error_of(capsys)
    with xr.open_dataset(output, engine="virtualstack") as cube:
        assert cube.sizes["time"] == 6
    assert main(["build", files[0], "-o", output, "--overwrite"]) == 0
    with xr.open_dataset(output, engine="virtualstack") as cube:
        assert cube.sizes["time"] == 2


@pytest.mark.parametrize("name", ["a.vstack", "a.json", "a.icechunk"])
def test_build_adds_to_what_is_there(name, files, tmp_path, capsys):
    """The remedy that the message names adds other days, and refuses days that are there."""
    output = str(tmp_path / name)
    assert main(["build", *files[:2], "-o", output]) == 0
    assert main(["build", files[2], "-o", output, "--append", "time"]) == 0
    with xr.open_dataset(output, engine="virtualstack") as cube, xr.open_mfdataset(files, **JOINED) as expected:
        np.testing.assert_array_equal(cube.t, expected.t)
    capsys.readouterr()
    assert main(["build", files[2], "-o", output, "--append", "time"]) == 1
    assert "'time'" in error_of(capsys)


def test_build_does_not_take_its_output_for_an_input(files, tmp_path, capsys):
    """A pattern may match the store that is to be written."""
    output = str(tmp_path / "f.vstack")
    assert main(["build", files[0], "-o", output]) == 0
    capsys.readouterr()
    for option in ([], ["--overwrite"], ["--append", "time"]):
        assert main(["build", str(tmp_path / "f*"), "-o", output, *option]) == 1
        assert "is the output and one of the files to be joined" in error_of(capsys)


def test_build_writes_stores_of_local_files_to_buckets(files, s3_server, monkeypatch, capsys):
    """They are read as given there, though stores in buckets name no local files on their own; a second time too."""
    for name in ("access_key_id", "secret_access_key"):
        monkeypatch.setenv(f"AWS_{name.upper()}", s3_server.options[name])
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server.endpoint)
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    for given, options in ((files[:2], []), (files, ["--overwrite"])):
        assert main(["build", *given, "-o", "s3://bucket/built/cube.vstack", "--verify", *options]) == 0
        seen = capsys.readouterr()
        assert f"time: {2 * len(given)}" in seen.out
        assert "verified: " in seen.out
        assert seen.err == ""


def test_build_appends_local_files_to_references_in_buckets(files, s3_server, monkeypatch, capsys):
    """References in a bucket name no local files on their own: those of the files that are given are allowed."""
    for name in ("access_key_id", "secret_access_key"):
        monkeypatch.setenv(f"AWS_{name.upper()}", s3_server.options[name])
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server.endpoint)
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    output = "s3://bucket/built/refs.json"
    for given, options, n in ((files[:1], [], 2), (files[1:2], ["--append", "time"], 4)):
        assert main(["build", *given, "-o", output, *options]) == 0
        seen = capsys.readouterr()
        assert f"time: {n}" in seen.out
        assert seen.err == ""


def test_build_rewrites_within_a_budget(tmp_path, capsys):
    """Files of an odd length in longer chunks, which kerchunk cannot take."""
    chunks = {"zlib": True, "chunksizes": (10, 4000)}
    for i, n in enumerate((25, 25, 20)):
        values = np.random.default_rng(i).random((n, 4000))
        variables = {"time": ("f8", "time", np.arange(n) + 25 * i), "t": ("f8", "time x", values, {}, chunks)}
        netcdf4_file(tmp_path / f"{i}.nc", {"time": None, "x": 4000}, variables)
    build = ["build", str(tmp_path / "*.nc"), "-o", str(tmp_path / "refs.json"), "--verify"]
    assert main(build) == 1
    named = re.search(r"'t' cannot be written .* 3 of 7 chunks .* Allow --rewrite ([0-9]+%)", error_of(capsys))
    assert main([*build, "--rewrite", named[1]]) == 0
    assert "verified: 2 variables equal in 3 files" in capsys.readouterr().out


@pytest.mark.parametrize("options", [[], ["--unpack", "all"], ["--unpack", "differing"]])
def test_build_unpacks_what_files_pack_differently(options, tmp_path, capsys):
    """Unless the user wants them as they are."""
    for i in range(2):
        t = ("i2", "time", [i + 1], {"scale_factor": 0.5 * (i + 1)})
        netcdf4_file(tmp_path / f"{i}.nc", {"time": None}, {"time": ("f8", "time", [i]), "t": t})
    build = ["build", str(tmp_path / "*.nc"), "-o", str(tmp_path / "refs.json"), "--verify"]
    assert main([*build, "--unpack", "never"]) == 1
    assert "scale_factor" in error_of(capsys)
    assert main([*build, *options]) == 0
    said = capsys.readouterr()
    assert "verified: 2 variables equal in 2 files" in said.out
    assert said.err.count("'t' is packed differently") == ("all" not in options)


def test_build_joins_coordinates_that_differ(tmp_path, capsys):
    """Within a tolerance, or the outer ones; these are not those of a file, and so not compared with it."""
    files = []
    for i in range(2):
        files.append(str(tmp_path / f"{i}.nc"))
        data = xr.Dataset({"t": (("time", "x"), np.full((1, 2), i + 1.0))}, {"time": [i], "x": [0.0, 1 + i * 1e-9]})
        data.to_netcdf(files[-1], unlimited_dims=["time"])
    output = str(tmp_path / "refs.json")
    assert main(["build", *files, "-o", output]) == 1
    assert "'x'" in error_of(capsys)
    assert main(["build", *files, "-o", output, "--tolerance", "1e-6"]) == 0
    assert re.search(r"x: 2\b", capsys.readouterr().out)
    assert main(["build", *files, "-o", output, "--join", "outer", "--overwrite"]) == 0
    assert re.search(r"x: 3\b", capsys.readouterr().out)
    with xr.open_dataset(output, engine="virtualstack") as cube, xr.open_mfdataset(files, join="outer") as expected:
        np.testing.assert_array_equal(cube["t"], expected["t"])
    assert main(["build", *files, "-o", output, "--join", "outer", "--verify", "--overwrite"]) == 2
    assert error_of(capsys).startswith("--verify compares with unchanged files, so it cannot be used with --join outer")


@pytest.mark.filterwarnings("default:left out")
def test_build_leaves_out_files_that_cannot_be_opened(files, tmp_path, capsys):
    """With a warning each, those that cannot be decoded too; where none is left, that is an error."""
    (tmp_path / "bad.nc").write_bytes(b"CDF\x01")
    time = ("f8", "time", [1], {"units": DAYS, "calendar": "lunar"})
    netcdf4_file(tmp_path / "odd.nc", {"time": None}, {"time": time})
    bad = [str(tmp_path / "bad.nc"), str(tmp_path / "odd.nc")]
    build = ["build", *bad, *files, "-o", str(tmp_path / "refs.json"), "--verify"]
    assert main(build) == 1
    assert "bad.nc" in error_of(capsys)
    assert main([*build, "--on-error", "skip"]) == 0
    seen = capsys.readouterr()
    assert [line.split("': ")[0].rsplit("/", 1)[1] for line in seen.err.splitlines()] == ["bad.nc", "odd.nc"]
    assert seen.err.count("virtualstack: warning: left out ") == 2
    assert "verified: 3 variables equal in 3 files" in seen.out
    assert main(["build", *bad, "-o", str(tmp_path / "none.json"), "--on-error", "skip"]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(" ")[1] for line in lines] == ["warning:", "error:", ""]
    assert ["bad.nc" in line for line in lines] == [True, False, False]
    assert "odd.nc" in lines[1]
    assert not (tmp_path / "none.json").exists()


@pytest.mark.parametrize("executor", ["threads", "processes"])
def test_build_reads_by_workers_and_from_a_cache(executor, files, tmp_path, capsys):
    """The cube is the same."""
    options = ["--executor", executor, "--cache", str(tmp_path / "cache"), "--verify", "--overwrite"]
    for _ in range(2):
        assert main(["build", *files, "-o", str(tmp_path / "refs.json"), *options]) == 0
        assert "3 variables equal in 3 files" in capsys.readouterr().out
    assert any((tmp_path / "cache").iterdir())


@pytest.mark.parametrize("reader", ["tiff", "zarr", "grib"])
def test_verify_refuses_other_formats_before_it_writes_or_asks_to_install(tmp_path, monkeypatch, capsys, reader):
    """Without h5netcdf and eccodes too: after their installation it would be refused all the same."""
    find = importlib.util.find_spec
    hidden = "h5netcdf", "netCDF4", "eccodes", "cfgrib"
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in hidden else find(name))
    path = tmp_path / f"a.{reader}"
    if reader == "zarr":
        xr.Dataset({"v": ("x", [1.0])}).to_zarr(path, zarr_format=2)
    else:
        path.write_bytes(b"II*\0\x08\0\0\0" if reader == "tiff" else b"GRIB" + bytes(20))
    assert main(["build", str(path), "-o", str(tmp_path / "cube.json"), "--verify"]) == 1
    said = error_of(capsys)
    assert said.startswith("--verify compares with netCDF and HDF5 files, and '")
    assert said.endswith("'virtualstack verify cube.vstack --sample 100%'")
    assert not (tmp_path / "cube.json").exists()


@pytest.mark.parametrize("start", [b"II*\0\x08\0\0\0", b"GRIB" + bytes(20)], ids=["tiff", "grib"])
def test_verify_refuses_a_later_file_of_another_format_too(tmp_path, capsys, start):
    """Before anything is scanned or written, as if it were the first one."""
    netcdf4_file(str(tmp_path / "a.nc"), {"x": 2}, {"v": ("f8", "x", [1, 2])})
    (tmp_path / "b.nc").write_bytes(start)
    assert main(["build", str(tmp_path / "*.nc"), "-o", str(tmp_path / "cube.json"), "--verify"]) == 1
    assert re.match("--verify compares with netCDF and HDF5 files, and '.*b.nc' is ", error_of(capsys))
    assert not (tmp_path / "cube.json").exists()


def test_two_bands_at_one_time_are_told_apart_by_one_more_dimension(tmp_path, capsys):
    """The message leads to both bands, and not to leaving one of them out."""
    files = [str(path) for path in sample.scenes(tmp_path / "scenes")]
    build = ["build", *files, "-o", str(tmp_path / "cube.json"), "--new-dim", r"time=_(\d{4}-\d\d-\d\d)"]
    assert main(build) == 1
    said = error_of(capsys)
    assert re.search(r"both have .*time 2024-04-06\. --new-dim 'part=.* tells them apart$", said)
    assert "--keep" not in said
    assert main([*build, "--new-dim", r"name=_(B\d\d)"]) == 0
    with xr.open_dataset(tmp_path / "cube.json", engine="virtualstack") as cube:
        assert dict(cube["band_data"].sizes) == {"name": 2, "time": 4, "band": 1, "y": 256, "x": 256}


@pytest.mark.filterwarnings("default")
def test_grib_variables_at_other_levels_are_named_with_what_leaves_them_out(tmp_path, capsys):
    """In a few words, without a list of all files."""
    pytest.importorskip("cfgrib")
    from tests.data.make_grib import message
    from tests.data.make_grib import write as write_grib

    for step in range(3):
        keys = {"typeOfLevel": "heightAboveGround", "step": step}
        fields = [message({"shortName": name, "level": level, **keys}) for name, level in (("2t", 2), ("10u", 10))]
        write_grib(tmp_path / f"{step}.grib2", fields)
    output = str(tmp_path / "cube.vstack")
    assert main(["build", str(tmp_path / "*.grib2"), "-o", output]) == 1
    said = error_of(capsys)
    assert re.match("3 files '.*0.grib2', ...: 1 variable cannot be referenced", said)
    assert "'/u10': its coordinate 'heightAboveGround' is 10.0, but 2.0 for others" in said
    assert said.endswith("Leave it out with --drop-variable u10, or --unsupported skip")
    assert main(["build", str(tmp_path / "*.grib2"), "-o", output, "--unsupported", "skip"]) == 0
    assert "these files: left out '/u10'" in capsys.readouterr().err


def test_build_makes_one_index_of_grib_files(tmp_path, capsys):
    """Runs are stacked along time, though each file has its time alone; what cannot be compared is said before."""
    pytest.importorskip("cfgrib")
    from tests.data.make_grib import message
    from tests.data.make_grib import write as write_grib

    values = np.arange(2 * 2 * 24.0).reshape(2, 2, 4, 6)
    for day, run in enumerate(values):
        keys = {"shortName": "t", "dataDate": 20200101 + day}
        fields = [message(keys | {"step": 6 * n}, values=field) for n, field in enumerate(run)]
        write_grib(tmp_path / f"{day}.grib2", fields)
    output, pattern = str(tmp_path / "cube.vstack"), str(tmp_path / "*.grib2")
    assert main(["build", pattern, "--verify", "-o", output]) == 1
    said = error_of(capsys)
    assert said.startswith("--verify compares with netCDF and HDF5 files, and '")
    assert "0.grib2' is GRIB. Build a vstack without --verify, and compare its chunks with" in said
    assert said.endswith(f"'virtualstack verify {output} --sample 100%'")
    assert not (tmp_path / "cube.vstack").exists()
    assert main(["build", pattern, "-o", output]) == 0
    assert main(["verify", output, "--sample", "100%"]) == 0
    assert "chunks compared with their sources: 4 equal" in capsys.readouterr().out
    with xr.open_dataset(output, engine="virtualstack") as cube:
        assert cube.t.dims == ("time", "step", "latitude", "longitude")
        np.testing.assert_allclose(cube.t.values, values, atol=1e-3)
    one = str(tmp_path / "one.json")
    assert main(["build", str(tmp_path / "0.grib2"), "-o", one]) == 0
    with xr.open_dataset(one, engine="virtualstack") as cube:
        np.testing.assert_allclose(cube.t.values, values[0], atol=1e-3)


def test_patterns_are_in_natural_order(tmp_path, capsys):
    """9 before 10, whatever the order of letters."""
    for i in (9, 10, 11):
        write(tmp_path / f"n{i}.nc", 2 * i)
    assert main(["build", str(tmp_path / "n*.nc"), "-o", str(tmp_path / "refs.json"), "--verify"]) == 0
    assert "3 variables equal in 3 files" in capsys.readouterr().out
    with xr.open_dataset(tmp_path / "refs.json", engine="virtualstack") as cube:
        assert cube.indexes["time"].is_monotonic_increasing


def test_build_takes_one_file(files, tmp_path, capsys):
    """There is nothing to join then."""
    assert main(["build", files[0], "-o", str(tmp_path / "refs.json"), "--verify"]) == 0
    assert "3 references to 1 file\n" in capsys.readouterr().out
    netcdf4_file(tmp_path / "one.nc", {"x": 2}, {"v": ("f4", "x", [1, 2])})
    assert main(["build", str(tmp_path / "one.nc"), "-o", str(tmp_path / "one.json")]) == 0
    assert ": 1 reference to 1 file\n" in capsys.readouterr().out


def test_build_expands_relative_globs_and_file_urls(files, tmp_path, capsys, monkeypatch):
    """Both are local paths."""
    monkeypatch.chdir(tmp_path)
    assert main(["build", "f[01].nc", f"file://{tmp_path}/f[2].nc", "-o", "refs.json", "--verify"]) == 0
    assert "3 variables equal in 3 files" in capsys.readouterr().out


def test_a_name_with_brackets_is_that_file_if_it_is_there(tmp_path, capsys):
    """And no pattern."""
    write(tmp_path / "f[0].nc", 0)
    assert main(["build", str(tmp_path / "f[0].nc"), "-o", str(tmp_path / "refs.json")]) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{}/g*.nc"], r"^nothing matches '.*/g\*\.nc'\. "),
        (
            ["{}/f0.nc", "{}/*.nc"],
            r"f0\.nc' is given twice\. --keep-first keeps the first of them\. Or --keep-last keeps",
        ),
        (["{}/gone.nc"], r"gone\.nc"),
        (["{}/f0.nc", "--concat-dim", "day"], "has no dimension 'day' to join along"),
        (
            ["{}/f0.nc", "--reader", "hdf6"],
            "there is no reader 'hdf6'. Did you mean 'hdf5'\\? See all readers with 'virtualstack readers'",
        ),
    ],
    ids=["a glob without a match", "a file given twice", "a file that is not there", "a dim", "a reader"],
)
def test_what_is_not_there_is_named_in_one_line(arguments, message, files, tmp_path, capsys):
    assert main(["build", *(x.format(tmp_path) for x in arguments), "-o", str(tmp_path / "refs.json")]) == 1
    assert re.search(message, error_of(capsys))


def test_files_without_an_unlimited_dimension_are_joined_where_their_labels_differ(tmp_path, capsys):
    """As downloads of reanalyses are."""
    files = [write(tmp_path / f"f{i}.nc", 2 * i, unlimited=()) for i in range(2)]
    assert main(["build", *files, "-o", str(tmp_path / "refs.json"), "--verify"]) == 0
    seen = capsys.readouterr()
    assert "3 variables equal in 2 files" in seen.out


def test_several_files_with_no_dimension_to_choose_need_a_dim(tmp_path, capsys):
    """The error names what tells the files apart; the user may want another dimension."""
    for i in range(2):
        time = ("f8", "step", [i, i + 1.0])
        netcdf4_file(tmp_path / f"f{i}.nc", {"step": 2, "x": 3}, {"time": time, "v": ("f4", "step x", np.ones((2, 3)))})
    build = ["build", str(tmp_path / "f*.nc"), "-o", str(tmp_path / "refs.json")]
    assert main(build) == 1
    assert re.search(r"their order is not known. Say what tells them apart with --new-dim 'part=", error_of(capsys))
    assert main([*build, "--concat-dim", "step", "--in-order"]) == 0


def test_twelve_months_as_era5_has_them_are_built(tmp_path, monkeypatch):
    """Their time has a fixed length, and each is packed in its own way."""
    monkeypatch.chdir(tmp_path)
    assert main(["sample", "monthly", "data"]) == 0
    assert main(["build", "data/*.nc", "-o", "cube.vstack", "--verify"]) == 0
    with (
        xr.open_dataset("cube.vstack", engine="virtualstack") as cube,
        xr.open_mfdataset("data/*.nc", **JOINED) as expected,
    ):
        np.testing.assert_allclose(cube["t2m"], expected["t2m"], rtol=1e-6)


def test_of_several_unlimited_dimensions_the_one_whose_labels_differ_is_joined(tmp_path):
    """The other one is the same in all files."""
    files = [write(tmp_path / f"f{i}.nc", 2 * i, unlimited=("time", "x")) for i in range(2)]
    assert main(["build", *files, "-o", str(tmp_path / "refs.json"), "--verify"]) == 0


def test_files_that_do_not_fit_are_an_error(files, tmp_path, capsys):
    """What clashes is said in one line."""
    with netCDF4.Dataset(files[1], "a") as file:
        file["mask"][0] = 7
    assert main(["build", *files, "-o", str(tmp_path / "refs.json")]) == 1
    assert "variable 'mask'" in error_of(capsys)
    assert not (tmp_path / "refs.json").exists()
    assert main(["build", *files, "-o", str(tmp_path / "refs.json"), "--drop-variable", "mask", "--verify"]) == 0
    assert "2 variables equal in 3 files" in capsys.readouterr().out


def test_a_group_is_built(tmp_path, capsys):
    """The root is left out, and the comparison is with the group."""
    for i in range(2):
        netcdf4_file(
            tmp_path / f"g{i}.nc", {"inner/n": None}, {"inner/v": ("i4", "n", [i, i + 1], {}, {"chunksizes": (1,)})}
        )
    arguments = ["build", str(tmp_path / "g*.nc"), "-o", str(tmp_path / "refs.json"), "--group", "inner", "--verify"]
    assert main(arguments) == 1
    assert "has no labels along 'n' that decide the order. --in-order --concat-dim n" in error_of(capsys)
    arguments.append("--in-order")
    assert main(arguments) == 0
    assert "1 variable equal in 2 files" in capsys.readouterr().out


def test_a_group_without_variables_is_an_error(tmp_path, capsys):
    """Nothing would be written and nothing compared, and both would look well."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["inner/v"] = [1, 2]
    assert main(["build", str(tmp_path / "a.h5"), "-o", str(tmp_path / "refs.json"), "--verify"]) == 1
    assert re.search(
        r"a\.h5': the group '/' has no variables, but groups below it have: .*--group '?/inner", error_of(capsys)
    )


@pytest.mark.parametrize(("dim", "reason"), [("x", "refs.json' is written, but"), ("t", "a.nc'")])
def test_times_that_xarray_cannot_decode_are_an_error(tmp_path, capsys, dim, reason):
    """As they would be in the source; a coordinate is decoded when it is opened."""
    netcdf4_file(tmp_path / "a.nc", {dim: 2}, {"t": ("f8", dim, [1, 2], {"units": DAYS, "calendar": "lunar"})})
    assert main(["build", str(tmp_path / "a.nc"), "-o", str(tmp_path / "refs.json")]) == 1
    assert re.search(rf"{re.escape(reason)} cannot be decoded: .*'lunar'", error_of(capsys))


def test_files_of_other_lengths_are_an_error(files, tmp_path, capsys):
    """Along another dimension than that which they are joined along."""
    variables = {"time": ("f8", "time", [9]), "t": ("f4", "time x", np.ones((1, 5)), {}, {"chunksizes": (1, 4)})}
    netcdf4_file(tmp_path / "long.nc", {"time": None, "x": 5}, variables)
    options = ["-o", str(tmp_path / "refs.json"), "--drop-variable", "mask", "--in-order"]
    assert main(["build", files[0], str(tmp_path / "long.nc"), *options]) == 1
    assert re.search(r"'x'.*4.*5", error_of(capsys))


def test_files_without_a_dimension_in_common_are_an_error(tmp_path, capsys):
    """There is nothing to choose from."""
    for dim in "ab":
        with h5py.File(tmp_path / f"{dim}.h5", "w") as file:
            file[dim] = [1, 2]
            file[dim].make_scale(dim)
    assert main(["build", str(tmp_path / "*.h5"), "-o", str(tmp_path / "refs.json")]) == 1
    said = error_of(capsys)
    assert re.search(r"have no dimension in common .*: '.*a\.h5' has \['a'\], '.*b\.h5' has \['b'\]\. Give files", said)


def test_references_cannot_be_compared_as_files(files, tmp_path, capsys):
    """The error says what can."""
    first, second = str(tmp_path / "1.json"), str(tmp_path / "2.json")
    assert main(["build", files[0], "-o", first]) == 0
    assert main(["build", first, "-o", second]) == 0
    capsys.readouterr()
    assert main(["build", first, "-o", second, "--verify", "--overwrite"]) == 1
    assert "1.json' is kerchunk references. Build a vstack without --verify" in error_of(capsys)


@pytest.fixture
def large_text(tmp_path):
    """A file with a variable that has no byte-range form and is too large to inline."""
    with h5py.File(tmp_path / "text.h5", "w") as file:
        file["v"] = np.arange(3)
        file["text"] = np.array(["x" * 40] * 40_000, object)
    return str(tmp_path / "text.h5")


@pytest.mark.parametrize("how", [[], ["--unsupported", "raise"]])
def test_a_variable_that_cannot_be_referenced_is_an_error(large_text, tmp_path, capsys, how):
    """It is named, with what can be done."""
    assert main(["build", large_text, "-o", str(tmp_path / "refs.json"), *how]) == 1
    assert re.search(r"'/text'.*--drop-variable text, or --unsupported skip", error_of(capsys))


def test_texts_in_pieces_are_subject_to_unsupported(tmp_path, capsys):
    """As any variable that has no byte-range form."""
    build = ["build", str(tmp_path / "a.nc"), "-o", str(tmp_path / "refs.json"), "--overwrite"]
    long = ("S1", "t k", None, {}, {"chunksizes": (1, 1 << 19)})
    netcdf4_file(tmp_path / "a.nc", {"t": 2, "k": 1 << 20}, {"v": ("f4", "t", [1, 2]), "long": long})
    assert main(build) == 1
    assert "--inline-limit 2097152" in error_of(capsys)
    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        assert main([*build, "--unsupported", "skip"]) == 0
    assert "left out: variable '/long'" in capsys.readouterr().err
    netcdf4_file(tmp_path / "a.nc", {"t": 2, "k": 4}, {"short": ("S1", "t k", None, {}, {"chunksizes": (1, 2)})})
    assert main(build) == 0
    assert main([*build, "--unsupported", "raise"]) == 1
    assert "'/short'" in error_of(capsys)


def test_a_variable_can_be_skipped_with_a_warning(large_text, tmp_path, capsys):
    """The comparison then leaves it out too."""
    output = str(tmp_path / "refs.json")
    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        assert main(["build", large_text, "-o", output, "--unsupported", "skip", "--verify"]) == 0
    seen = capsys.readouterr()
    assert seen.err.startswith("virtualstack: warning: ")
    assert "'/text'" in seen.err
    assert "1 variable equal in 1 file" in seen.out


def test_a_terminal_gets_a_progress_bar(files, tmp_path, capsys, monkeypatch):
    """On stderr; an error stands on its own line."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("NO_COLOR", "1")
    assert main(["build", *files, "-o", str(tmp_path / "refs.json"), "--verify"]) == 0
    seen = capsys.readouterr()
    assert "scan" not in seen.out
    assert re.search(r"scan .*1/3", seen.err)
    assert re.search(r"verify .*3/3", seen.err)
    assert main(["build", files[0], str(tmp_path / "gone.nc"), "-o", "refs.json"]) == 1
    assert "\r\x1b[Kvirtualstack: error: " in capsys.readouterr().err


@pytest.mark.parametrize("suffix", ["json", "parq", "vstack", "icechunk"])
def test_convert_shows_its_progress_on_a_terminal(suffix, files, tmp_path, capsys, monkeypatch):
    """One step for each variable; --quiet shows none."""
    source, target = str(tmp_path / "cube.vstack"), str(tmp_path / f"refs.{suffix}")
    assert main(["build", *files, "-o", source]) == 0
    capsys.readouterr()
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "120")
    assert main(["convert", source, target]) == 0
    assert re.search(r"convert .*([1-3])/\1", capsys.readouterr().err)
    assert main(["convert", source, target, "--quiet"]) == 0
    assert capsys.readouterr().err == ""


def test_refresh_shows_its_progress_on_a_terminal(files, tmp_path, capsys, monkeypatch):
    """One step for each changed source; a source that was only touched is none."""
    store = str(tmp_path / "cube.vstack")
    assert main(["build", *files, "-o", store]) == 0
    os.utime(files[0], (1, 1))
    with h5py.File(files[1], "r+") as file:
        file["t"][0, 0] = 99
    os.utime(files[1], (1, 1))
    capsys.readouterr()
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "120")
    assert main(["refresh", store]) == 0
    assert re.search(r"scan .*1/1", capsys.readouterr().err)


def test_quiet_and_verbose(files, tmp_path, capsys):
    """Notes are left out, or each step is one; results and errors are shown in any case."""
    netcdf4_file(tmp_path / "groups.nc", {"x": 2}, {"v": ("f4", "x", [1, 2]), "deep/w": ("f4", "x", [3, 4])})
    build = ["build", str(tmp_path / "groups.nc"), "-o", str(tmp_path / "refs.json"), "--overwrite"]
    assert main(["--quiet", *build]) == 0
    seen = capsys.readouterr()
    assert (seen.err, ": 1 reference to 1 file" in seen.out) == ("", True)
    assert main([*build, "--verbose"]) == 0
    steps = capsys.readouterr().err.splitlines()
    assert [re.sub(r"[0-9.]+ s$", "N s", x.partition(": note: ")[2]) for x in steps] == [
        "scan 1 file: N s",
        "groups ['deep'] below '/' are left out; choose one with --group",
        "join the files: N s",
        f"write '{tmp_path}/refs.json': N s",
    ]
    assert main(["build", *files, "-o", str(tmp_path / "x.json"), "-q", "--concat-dim", "day"]) == 1
    assert "'day'" in error_of(capsys)


def test_verbose_shows_the_whole_message(tmp_path, capsys):
    """Without it, remedies that do not fit in three lines are left out."""
    assert main(["sample", "monthly", str(tmp_path)]) == 0
    build = ["build", f"{tmp_path}/*.nc", "-o", str(tmp_path / "refs.json"), "--unpack", "differing", "--quiet"]
    assert main(build) == 1
    short = error_of(capsys)
    assert main([*build[:-1], "--verbose"]) == 1
    *_, what, helps = capsys.readouterr().err.splitlines()
    assert len(short) < len(what) + len(helps)
    assert len(short) <= 360
    assert "--rewrite" in short
    assert "write a vstack" in short.lower()  # which helps always


# -- samples ----------------------------------------------------------------------------------------------------


def test_the_sample_is_built_and_compared(tmp_path, capsys):
    """Three months of NEMO: what the README does."""
    pytest.importorskip("iris_sample_data", reason="needs iris-sample-data, the extra 'sample'")
    assert main(["build", "sample:nemo", "-o", str(tmp_path / "nemo.parq"), "--verify"]) == 1
    assert "--labels time_counter=time_centered" in error_of(capsys)
    build = ["build", "sample:nemo", "-o", str(tmp_path / "nemo.parq"), "--verify"]
    assert main([*build, "--in-order"]) == 1
    assert "would repeat" in error_of(capsys)
    assert main([*build, "--labels", "time_counter=time_centered"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"time_counter: 3\b", out)
    assert "verified: 7 variables equal in 3 files" in out  # the labels are another variable of the files


def test_a_path_is_no_sample():
    """It is left to others."""
    assert sample_files("a.nc") is None


# -- convert ----------------------------------------------------------------------------------------------------


def test_convert_writes_another_form(files, tmp_path, capsys):
    """And back; the snapshot of a store can be chosen."""
    refs, store, back = (str(tmp_path / name) for name in ("refs.json", "cube.vstack", "back.json"))
    assert main(["build", *files, "-o", refs]) == 0
    capsys.readouterr()
    assert main(["convert", refs, store, "-m", "from kerchunk"]) == 0
    assert capsys.readouterr().out == f"{store}: 3 variables of {refs}\n"
    assert main(["convert", files[0], store]) == 0
    assert main(["convert", store, back, "--at", "0"]) == 0
    assert json.loads(Path(back).read_text()) == json.loads(Path(refs).read_text())


def test_convert_takes_its_target_as_other_commands_do(files, tmp_path, capsys):
    """By ``-o`` too, once."""
    target = str(tmp_path / "refs.json")
    assert main(["convert", files[0], "-o", target]) == 0
    assert (tmp_path / "refs.json").exists()
    assert main(["convert", files[0]]) == 2
    assert main(["convert", files[0], target, "-o", target]) == 2
    assert "name one target: virtualstack convert SOURCE TARGET" in capsys.readouterr().err


def test_convert_says_what_belongs_to_no_array(files, tmp_path, capsys):
    """It has no place in other forms."""
    refs = tmp_path / "refs.json"
    refs.write_text(json.dumps({".zgroup": '{"zarr_format": 2}', "stray/0": ["a.nc", 0, 1]}))
    assert main(["convert", str(refs), str(tmp_path / "cube.vstack")]) == 0
    assert capsys.readouterr().err == "virtualstack: note: '/stray': 1 reference outside of all arrays\n"


def test_convert_takes_a_snapshot_of_stores_alone(files, tmp_path, capsys):
    """A reader of something else is not left aside."""
    store, refs = str(tmp_path / "a.vstack"), str(tmp_path / "a.json")
    assert main(["convert", files[0], store]) == 0
    assert main(["convert", store, refs, "--at", "0", "--reader", "kerchunk"]) == 2
    assert "not of --reader kerchunk" in capsys.readouterr().err
    assert main(["convert", store, refs, "--at", "0", "--reader", "vstack"]) == 0


@pytest.mark.parametrize("command", ["convert", "inspect"])
def test_references_without_a_protocol(command, tmp_path, capsys):
    """The option has the name that fsspec gives it."""
    zarray = {"shape": [2], "chunks": [2], "dtype": "<f8", "zarr_format": 2, "compressor": None, "filters": None,
              "order": "C", "fill_value": 0}  # fmt: skip
    refs = {".zgroup": '{"zarr_format": 2}', "rain/.zarray": json.dumps(zarray), "rain/0": ["bucket/a.nc", 5, 16],
            "rain/.zattrs": '{"_ARRAY_DIMENSIONS": ["x"]}'}  # fmt: skip
    source, target = tmp_path / "refs.json", tmp_path / "new.json"
    source.write_text(json.dumps({"version": 1, "refs": refs}))
    arguments = [command, str(source), *([str(target)] if command == "convert" else [])]
    assert main([*arguments, "--remote-protocol", "s3"]) == 0
    text = target.read_text() if command == "convert" else capsys.readouterr().out
    assert "s3://bucket/a.nc" in text
    wrong = {("s3://",): "s3:// is not a protocol", ("s3", "--reader", "hdf5"): "is for kerchunk references, not for"}
    for more, why in wrong.items():
        assert main([*arguments, "--remote-protocol", *more]) == 2
        assert f"--remote-protocol {why}" in capsys.readouterr().err


def test_convert_of_nothing_is_an_error(tmp_path, capsys):
    """And leaves no target."""
    store = tmp_path / "cube.vstack"
    assert main(["convert", str(tmp_path / "gone.json"), str(store)]) == 1
    assert "gone.json" in error_of(capsys)
    assert not store.exists()


# -- inspect ----------------------------------------------------------------------------------------------------


def table(out):
    """Read the first table: rows by their first column, each a dict by heading."""
    lines = out.split("\n\n")[0].splitlines()
    spans = [(m.group(), m.start()) for m in re.finditer(r"\S+", lines[0])]
    assert len({len(re.split(r"  +", line.strip())) for line in lines}) == 1, out
    names = [name for name, _ in spans]
    rows = [dict(zip(names, re.split(r"  +", line.strip()), strict=True)) for line in lines[1:]]
    return {row["variable"]: row for row in rows}


def test_inspect_shows_variables_and_where_their_bytes_are(files, capsys):
    """Offsets are those that h5py reports."""
    assert main(["inspect", files[0]]) == 0
    out = capsys.readouterr().out
    row = table(out)["t"]
    with h5py.File(files[0]) as file:
        chunks = [file["t"].id.get_chunk_info(i) for i in range(2)]
    first, last = min(c.byte_offset for c in chunks), max(c.byte_offset + c.size for c in chunks)
    assert row == {
        "variable": "t",
        "dims": "time=2 x=4",
        "dtype": "float32",
        "chunk": "1 x 4",
        "codecs": row["codecs"],
        "refs": "2",
        "INLINE": "0",
        "EMPTY": "0",
        "ABSENT": "0",
        "bytes": str(sum(c.size for c in chunks)),
        "at": f"{first}-{last}",
        "source": "1",
    }
    assert "zlib" in row["codecs"]
    assert re.search(r"\n  1  file://\S*f0\.nc  [\d,]+ bytes\n$", out)


def test_inspect_shows_inlined_and_empty_chunks(tmp_path, capsys):
    """Each kind has its column."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        data = file.create_dataset("holes", (6,), "i4", chunks=(2,))
        data[:2] = 1
        file["text"] = np.array(["a", "bc"], object)
        file["scalar"] = 1.5
    assert main(["inspect", str(tmp_path / "a.h5")]) == 0
    out = capsys.readouterr().out
    rows = table(out)
    assert (rows["holes"]["refs"], rows["holes"]["EMPTY"]) == ("1", "2")
    assert (rows["text"]["INLINE"], rows["text"]["at"], rows["text"]["source"]) == ("1", "-", "-")
    assert rows["scalar"]["dims"] == "scalar"
    assert re.search(r"not taken over as references\n  /text +inlined +\S", out)


def test_inspect_shows_references_to_many_files(files, tmp_path, capsys):
    """Sources are numbered, runs of numbers drawn together."""
    main(["build", *files, "-o", str(tmp_path / "refs.json")])
    capsys.readouterr()
    assert main(["inspect", str(tmp_path / "refs.json")]) == 0
    out = capsys.readouterr().out
    assert table(out)["t"]["source"] == "1-3"
    assert table(out)["mask"]["source"] == "1"
    assert len(re.findall(r"\n  \d  file://", out)) == 3


def test_inspect_shows_groups_or_one_of_them(tmp_path, capsys):
    """Variables stand with their path."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["v"] = 1
        file["a/b/w"] = 2
    main(["inspect", str(tmp_path / "a.h5")])
    assert set(table(capsys.readouterr().out)) == {"v", "/a/b/w"}
    main(["inspect", str(tmp_path / "a.h5"), "--group", "a"])
    assert set(table(capsys.readouterr().out)) == {"/a/b/w"}
    assert main(["inspect", str(tmp_path / "a.h5"), "--group", "z"]) == 1
    assert "'z'" in error_of(capsys)


def test_runs_of_numbers_are_drawn_together():
    """As people write them."""
    assert inspect._ranges([1, 2, 3, 7, 9, 10]) == "1-3,7,9-10"


# -- survey -----------------------------------------------------------------------------------------------------


def test_survey_shows_what_files_share(files, tmp_path, capsys):
    """In the order of their dimension, whatever the order given."""
    assert main(["survey", str(tmp_path / "*.nc")]) == 0
    seen = capsys.readouterr()
    assert seen.out.startswith("3 files, along 'time'; 0 failed\n")
    assert "era 1: 2000-01-01 to 2000-01-06, 3 files\n" in seen.out
    assert seen.err == ""


def test_survey_goes_on_after_a_bad_file_and_exits_with_1(files, tmp_path, capsys):
    """The file is named with the reason."""
    assert main(["survey", *files, str(tmp_path / "gone.nc")]) == 1
    out = capsys.readouterr().out
    assert out.startswith("3 files, along 'time'; 1 failed\n")
    assert re.search(r"failed\n  file://.*gone\.nc: SourceNotFoundError: ", out)


def test_survey_reads_lists(files, tmp_path, capsys, monkeypatch):
    """Of a file, or of stdin, one name a line."""
    (tmp_path / "list.txt").write_text("\n".join(files[:2]) + "\n\n")
    assert main(["survey", f"@{tmp_path}/list.txt", files[2]]) == 0
    assert capsys.readouterr().out.startswith("3 files")
    monkeypatch.setattr("sys.stdin", io.StringIO(files[0]))
    assert main(["survey", "@-"]) == 0
    assert capsys.readouterr().out.startswith("1 file,")
    assert main(["survey", f"@{tmp_path}/gone.txt"]) == 1
    assert re.search(r"^the list '.*gone\.txt' cannot be read: ", error_of(capsys))


def test_survey_goes_on_after_a_name_that_is_none(files, tmp_path, capsys):
    """In a list, too; patterns in it are expanded."""
    (tmp_path / "list.txt").write_text(f"ftp://host/a.nc\n{tmp_path}/f*.nc\n")
    assert main(["survey", f"@{tmp_path}/list.txt", "--executor", "threads"]) == 1
    out = capsys.readouterr().out
    assert out.startswith("3 files, along 'time'; 1 failed\n")
    assert "ftp://host/a.nc: StorageError: " in out


def test_survey_writes_a_table(files, tmp_path, capsys):
    """One line a file."""
    assert main(["survey", *files, "--table", str(tmp_path / "files.csv"), "--cache", str(tmp_path / "cache")]) == 0
    table = pd.read_csv(tmp_path / "files.csv")
    assert table["url"].tolist() == [f"file://{path}" for path in files]
    assert table["steps"].tolist() == [2, 2, 2]
    assert any((tmp_path / "cache").iterdir())
    assert main(["survey", *files, "--table", str(tmp_path)]) == 1
    assert "cannot be written" in capsys.readouterr().err


def test_survey_takes_a_dimension_and_shows_all(files, tmp_path, capsys):
    """An unknown one is an error; all lines on request."""
    assert main(["survey", *files, "--dim", "y"]) == 1
    assert error_of(capsys) == "no file has a dimension 'y'; they have ['time', 'x']"
    gone = [str(tmp_path / f"gone{i}.nc") for i in range(20)]
    main(["survey", *gone])
    assert "... and 8 more" in capsys.readouterr().out
    main(["survey", *gone, "--all"])
    assert "more" not in capsys.readouterr().out


def test_labels_of_a_new_dimension_are_in_the_names_of_files(tmp_path, capsys):
    """Numbers, or dates with a format; the files are compared too, whatever their order."""
    for n in (3, 1, 2):
        made = xr.Dataset({"v": ("x", [1.0 * n, 2.0])}, coords={"x": [0, 1]})
        made.to_netcdf(tmp_path / f"run_2020010{n}.nc", engine="netcdf4")
    files, cube = str(tmp_path / "*.nc"), str(tmp_path / "cube.vstack")
    assert main(["build", files, "-o", cube, "--new-dim", r"time=_(\d{8}):%Y%m%d", "--verify"]) == 0
    assert "verified: 2 variables equal in 3 files" in capsys.readouterr().out
    with xr.open_dataset(cube, engine="virtualstack", allow=str(tmp_path)) as found:
        assert found["v"].values.tolist() == [[1, 2], [2, 2], [3, 2]]
        assert found["time"].values.astype("M8[D]").astype(str).tolist() == ["2020-01-01", "2020-01-02", "2020-01-03"]
    for new in (["--new-dim", "time"], ["--new-dim", "t=("], ["--new-dim", "t=a", "--concat-dim", "x"]):
        assert main(["build", files, "-o", cube, "--overwrite", *new]) == 2
    assert main(["build", files, "-o", cube, "--overwrite", "--new-dim", "t=nothing"]) == 1


# -- readers ----------------------------------------------------------------------------------------------------


def test_readers_lists_formats_and_what_they_need(capsys):
    """Aligned, one a line."""
    assert main(["readers"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert re.split(r"  +", lines[0]) == ["name", "format", "suffixes", "pip extra", "installed"]
    assert any(re.match(r"hdf5 +HDF5 / netCDF-4 +\.nc .*- +yes$", line) for line in lines)
    assert max(map(len, lines)) <= 100


def test_readers_says_what_is_not_installed(monkeypatch, capsys):
    """The extra stands beside it."""
    missing = Mock(side_effect=MissingDependencyError("reading HDF5", extra="hdf5"))
    monkeypatch.setattr("virtualstack.formats.registry.load_reader", missing)
    main(["readers"])
    assert re.search(r"^hdf5 .* no$", capsys.readouterr().out, re.MULTILINE)


# -- what every command does ------------------------------------------------------------------------------------


def test_the_version_is_that_of_the_package(capsys):
    """And nothing else is done."""
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"virtualstack {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["biuld"], "no such command 'biuld'. Did you mean 'build'? See 'virtualstack --help'"),
        (["build", "-o", "refs.json"], "missing argument 'FILE...', or --recipe. See 'virtualstack build --help'"),
        (["build", "a.nc"], "missing option '-o' / '--output'"),
        (
            ["build", "a.nc", "-o", "refs.json", "--overwrit"],
            "no such option '--overwrit'. Did you mean '--overwrite'?",
        ),
        (
            ["build", "a.nc", "-o", "refs.zarr"],
            "'refs.zarr' has none of the suffixes .vstack, .icechunk, .json, .json.gz, .json.zst, .parq, .parquet",
        ),
        (
            ["build", "a.nc", "-o", "refs.json", "--unsupported", "drop"],
            "'drop' is not one of 'inline', 'raise', 'skip'",
        ),
        (["build", "a.nc", "-o", "refs.json", "--rewrite", "much"], "rewrite='much'"),
        (["build", "a.nc", "-o", "a.vstack", "--workers", "2", "--sample", "1"], "leave out --sample, --workers"),
        (["build", "a.nc", "--recipe", "r.toml", "-o", "a.vstack", "--no-decode-times"], "--no-decode-times, files"),
    ],
)
def test_wrong_usage_exits_with_2(arguments, reason, capsys):
    """And says what is wrong."""
    assert main(arguments) == 2
    assert reason in capsys.readouterr().err


def test_an_error_is_one_line_without_a_traceback(tmp_path, capsys):
    """Exit status 1, nothing on stdout."""
    assert main(["inspect", str(tmp_path)]) == 1
    seen = capsys.readouterr()
    assert seen.out == ""
    assert re.fullmatch(r"virtualstack: error: .*\n  Name its files, .*\n", seen.err)


@pytest.mark.parametrize("arguments", [["--debug", "inspect"], ["inspect", "--debug"]])
def test_debug_shows_the_traceback(arguments, tmp_path, capsys):
    """Before the command and after it."""
    with pytest.raises(SourceNotFoundError):
        main([*arguments, str(tmp_path / "gone.nc")])


def test_a_wish_to_stop_exits_with_130(files, capsys, monkeypatch):
    """Without a traceback, unless it is asked for."""
    monkeypatch.setattr("virtualstack.cli.files.scan", Mock(side_effect=KeyboardInterrupt))
    assert main(["build", files[0], "-o", "refs.json"]) == 130
    assert error_of(capsys) == "interrupted"
    with pytest.raises(KeyboardInterrupt):
        main(["--debug", "build", files[0], "-o", "refs.json"])


def test_a_reader_of_our_output_that_leaves_is_no_error():
    """As in ``virtualstack readers | head -1``."""
    program = "import sys; from virtualstack.cli.command import main; sys.exit(main(['readers']))"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        err = process.stderr.read()
        assert process.wait(timeout=120) == 141
    assert err == b""


def test_build_says_which_groups_are_left_out(tmp_path, capsys):
    """A cube is of one group; the others are not lost silently."""
    path = tmp_path / "groups.nc"
    netcdf4_file(path, {"x": 2}, {"v": ("f4", "x", [1, 2]), "deep/w": ("f4", "x", [3, 4])})
    assert main(["build", str(path), "-o", str(tmp_path / "refs.json")]) == 0
    assert "groups ['deep'] below '/' are left out; choose one with --group" in capsys.readouterr().err


# -- output that goes nowhere -----------------------------------------------------------------------------------

COMMAND = f"{sys.executable} -c 'import sys; from virtualstack.cli.command import main; sys.exit(main())'"


def in_shell(command):
    return subprocess.run(["sh", "-c", command.replace("virtualstack", COMMAND, 1)], capture_output=True, text=True)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full is one of Linux")
@pytest.mark.parametrize(
    "arguments",
    [
        "--help",
        "build {} -o {}.json",
        *(pytest.param(x, marks=pytest.mark.apart) for x in ("readers", "inspect {}", "survey {}")),
    ],
)
def test_a_full_stdout_is_one_line_on_stderr(arguments, files):
    done = in_shell(f"virtualstack {arguments.replace('{}', files[0])} >/dev/full")
    assert done.stderr == "virtualstack: error: stdout cannot be written: [Errno 28] No space left on device\n"
    assert done.returncode == 1


def test_there_is_one_error_though_stdout_is_full_too(tmp_path):
    done = in_shell(f"virtualstack inspect {tmp_path}/gone.nc >/dev/full")
    assert done.returncode == 1
    assert done.stderr.startswith("virtualstack: error: there is no file at ")
    assert done.stderr.count("\n") == 2


def test_a_closed_stream_is_one_line_on_stderr_or_nothing(files):
    done = in_shell(f"virtualstack inspect {files[0]} >&-")
    assert (done.returncode, done.stderr) == (1, "virtualstack: error: stdout is closed, and nothing can be shown\n")
    done = in_shell("virtualstack survey @- <&-")
    assert (done.returncode, done.stderr) == (1, "virtualstack: error: the list '-' cannot be read: stdin is closed\n")
    done = in_shell("virtualstack inspect /gone.nc 2>&-")
    assert (done.returncode, done.stdout) == (1, "")


def test_an_error_of_the_system_elsewhere_is_not_taken_for_one_of_stdout(monkeypatch):
    monkeypatch.setattr("virtualstack.readers.list_readers", Mock(side_effect=OSError("elsewhere")))
    with pytest.raises(OSError, match="elsewhere"):
        main(["readers"])


def test_a_sample_is_written_and_built(tmp_path, monkeypatch, capsys):
    """Into a folder of its name, beside the cube that refers to it."""
    monkeypatch.chdir(tmp_path)
    assert main(["build", "sample:model", "-o", "model.vstack", "--dry-run"]) == 1
    assert "'virtualstack sample model sample/model'" in error_of(capsys)
    assert not any(tmp_path.iterdir())
    assert main(["build", "sample:model", "-o", "model.vstack"]) == 0
    assert "model.vstack: 36 references to 3 files\n" in capsys.readouterr().out
    assert len(list((tmp_path / "sample" / "model").iterdir())) == 3
    assert main(["build", "sample:model", "-o", "again.vstack"]) == 0
    with xr.open_dataset("model.vstack", engine="virtualstack") as cube:
        assert cube["tas"].values.all(), "the files of the first cube are as they were"


def test_a_table_is_written_though_the_reader_of_the_report_leaves(files, tmp_path, monkeypatch):
    """The table is complete before the report is shown."""
    monkeypatch.setattr("virtualstack.cli.survey.report", Mock(side_effect=OutputError("closed")))
    monkeypatch.setattr("virtualstack.cli.command.os.dup2", Mock())  # stdout is a file of pytest, which it reads
    table = tmp_path / "files.csv.gz"
    assert main(["survey", *files, "--table", str(table)]) == 1
    assert len(pd.read_csv(table)) == len(files)


def test_a_list_may_begin_with_a_mark_of_its_encoding(files, tmp_path, capsys):
    """Some editors of Windows write one."""
    (tmp_path / "list.txt").write_text("\n".join(files), encoding="utf-8-sig")
    assert main(["survey", f"@{tmp_path / 'list.txt'}"]) == 0


def test_sizes_of_bytes_have_units(files, tmp_path, capsys):
    for size in ("1 MiB", "0", "65536"):
        assert main(["build", files[0], "-o", str(tmp_path / "a.json"), "--overwrite", "--inline-limit", size]) == 0


def test_a_sample_that_cannot_be_written_is_an_error(tmp_path, monkeypatch, capsys):
    """Also if its files are built at once."""
    monkeypatch.chdir(tmp_path)
    Path("sample").write_text("")
    for arguments in (["sample", "hourly"], ["build", "sample:hourly", "-o", "a.vstack"]):
        assert main(arguments) == 1
        assert "the sample 'hourly' cannot be written" in capsys.readouterr().err


def test_a_variable_without_the_dimension_gets_it(tmp_path, capsys):
    """The message of `build` names the option, which `append` has too; `--verify` compares such variables."""
    parts = [
        xr.Dataset({"v": ("time", [1.0, i]), "k": ("x", [0.0, i])}, {"time": [2 * i, 2 * i + 1], "h": 3.0 * i})
        for i in range(3)
    ]
    paths = [str(tmp_path / f"{i}.nc") for i in range(3)]
    for path, part in zip(paths, parts, strict=True):
        part.to_netcdf(path, engine="netcdf4")
    cube = str(tmp_path / "c.vstack")
    assert main(["build", *paths[:2], "-o", cube]) == 1
    assert ": 1 of 2 values differ" in (said := capsys.readouterr().err)
    assert "Join it along 'time' too with --expand k. Or leave it out with --drop-variable k" in said
    expand = ["--expand", "k", "--expand", "h"]
    assert main(["build", *paths[:2], "-o", cube, *expand, "--verify"]) == 0
    assert main(["append", cube, paths[2], "--dim", "time", *expand]) == 0
    expected = xr.concat(parts, "time", data_vars=["k"], coords=["h"])
    xr.testing.assert_equal(xr.open_dataset(cube, engine="virtualstack").load(), expected)
    capsys.readouterr()
    assert main(["build", *paths, "-o", cube, "--overwrite", "--expand", "kk"]) == 1
    assert "no file has the variable 'kk' of --expand. Did you mean 'k'?" in capsys.readouterr().err
    assert main(["build", paths[0], "-o", cube, "--overwrite", "--expand", "k"]) == 2
    assert "Name it with --concat-dim" in capsys.readouterr().err


@pytest.mark.parametrize("which", ["all", "differing"])
@pytest.mark.parametrize("command", ["append", "update"])
def test_packed_files_are_added_to_a_store_that_was_built_unpacked(command, which, tmp_path, capsys):
    """Without an option: the store says what is unpacked."""
    paths = [str(tmp_path / f"{i}.nc") for i in range(4)]
    for i, path in enumerate(paths):
        t = ("i2", "time", [i + 1], {"scale_factor": 0.5 * (i + 1)})
        netcdf4_file(path, {"time": None}, {"time": ("f8", "time", [i]), "t": t})
    cube = str(tmp_path / "cube.vstack")
    assert main(["build", *paths[:2], "-o", cube, "--unpack", which]) == 0
    for path in paths[2:]:
        assert main([command, cube, path, "--dim", "time"]) == 0
    with xr.open_dataset(cube, engine="virtualstack") as found:
        assert found["t"].values.tolist() == [0.5, 2, 4.5, 8]


def test_other_libraries_write_nothing_to_stderr(tmp_path):
    """Icechunk warns of each folder on this machine, in colours."""
    pytest.importorskip("icechunk")
    netcdf4_file(tmp_path / "a.nc", {"x": 2}, {"v": ("f4", "x", [1, 2])})
    program = "import sys; from virtualstack.cli.start import main; sys.exit(main())"
    arguments = ["convert", "--quiet", str(tmp_path / "a.nc"), str(tmp_path / "a.icechunk")]
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert (tmp_path / "a.icechunk").exists()
