"""Mistakes on the command line: each gives a right message of at most three lines, and the documented exit status."""

import re
from pathlib import Path

import h5py
import numpy as np
import pytest

from tests.data.netcdf4 import netcdf4_file
from virtualstack.cli.command import main

LINE = 120
"""Characters of a line of a terminal."""


def write(path, start, *, name="t", scale=None, dtype="f4", x=4):
    """Write one file of a series."""
    packing = {} if scale is None else {"scale_factor": scale}
    variables = {
        "time": ("f8", "time", [start, start + 1], {"units": "days since 2000-01-01"}),
        name: (dtype if scale is None else "i2", "time x", np.arange(2 * x).reshape(2, x), packing),
    }
    netcdf4_file(path, {"time": None, "x": x}, variables)


@pytest.fixture
def folder(tmp_path, monkeypatch, capsys):
    """An archive of a user, who works in its folder."""
    monkeypatch.chdir(tmp_path)
    for name in ("data", "packed", "kinds", "empty"):
        Path(name).mkdir()
    for i in range(2):
        write(f"data/f{i}.nc", 2 * i)
        write(f"packed/f{i}.nc", 2 * i, scale=0.5 * (i + 1))
    write("data.nc", 9)
    write("wide.nc", 5, x=5)
    for dim in "ab":
        with h5py.File(f"kinds/{dim}.h5", "w") as file:
            file[dim] = [1, 2]
            file[dim].make_scale(dim)
    Path("readme.txt").write_text("no data")
    Path("empty.nc").write_bytes(b"")
    Path("empty.txt").write_text("\n")
    Path("cut.nc").write_bytes(Path("data.nc").read_bytes()[:300])
    Path("file").write_text("")
    Path("empty.npy").write_bytes(b"")
    with h5py.File("text.h5", "w") as file:
        file["v"] = np.arange(3)
        file["text"] = np.array(["x" * 40] * 40_000, object)
    assert main(["build", "data/*.nc", "-o", "cube.vstack"]) == 0
    capsys.readouterr()


MISTAKES = [
    # usage: exit status 2
    (["biuld", "data/*.nc", "-o", "x.vstack"], 2, r"no such command 'biuld'\. Did you mean 'build'\?"),
    (["build", "data/*.nc"], 2, r"missing option '-o' / '--output'\. See 'virtualstack build --help'"),
    (["build", "-o", "x.vstack"], 2, r"missing argument 'FILE\.\.\.'"),
    (["build", "data/*.nc", "-o", "x.vstack", "--concatdim", "time"], 2, "Did you mean '--concat-dim'"),
    (["build", "data/*.nc", "-o", "x.zarr"], 2, r"'x\.zarr' has none of the suffixes \.vstack"),
    (["build", "data/*.nc", "-o", "x.vstack", "--unpack", "yes"], 2, "'yes' is not one of 'all', 'differing'"),
    (["build", "data/*.nc", "-o", "x.vstack", "--overwrite", "--append", "time"], 2, "leave one out"),
    (["build", "data/*.nc", "-o", "x.vstack", "--storage", "{s3"], 2, "this is no JSON object such as"),
    (["inspect", "data.nc", "--anonymous"], 2, "--anonymous is for buckets on the command line"),
    (["build", "data/*.nc", "-o", "x.vstack", "--keep-all"], 2, "--keep-all needs --in-order"),
    (["build", "data/*.nc", "-o", "x.vstack", "--tolerance", "abc"], 2, "'abc' is neither a number nor a duration"),
    (["serve", "cube.vstack", "--threads", "0"], 2, "'0' is not a whole number from 1"),
    (["serve", "cube.vstack", "--timeout", "-1"], 2, "-1.0 is not in the range x>0"),
    (["expire", "cube.vstack", "--older-than", "30y"], 2, "'30y' is not a duration such as"),
    (["verify", "cube.vstack", "--sample", "200%"], 2, "'200%' is not a count of chunks"),
    (["verify", "cube.vstack", "--sample", "1.5"], 2, "'1.5' is not a count of chunks, or a percentage up to 100%"),
    (["diff", "cube.vstack", "--bfore"], 2, "'--bfore' is not a time such as"),
    (["write", "cube.vstack", "t", "1", "--region", "time"], 2, "'time' is not a dimension and positions, such as"),
    (["serve", "cube.vstack", "--chunk", "time"], 2, "'time' is not a dimension and a length"),
    (["write", "cube.vstack", "t", "1", "--region", "time=0", "--region", "time=1"], 2, "'time' is given 2 times"),
    (["build", "data/*.nc", "-o", "x.vstack", "--new-dim", "m=a", "--new-dim", "m=b"], 2, "'m' is given 2 times"),
    (["serve", "cube.vstack", "--chunk", "time=1", "--chunk", "time=2"], 2, "'time' is given 2 times"),
    (["build", "data.nc", "-o", "cube.vstack", "--append", "time", "--join", "inner"], 2, "Use exact, left or outer"),
    (["build", "data/*.nc", "-o", "x.vstack", "--inline-limit", "-5"], 2, "'-5' is not a number of bytes, such as"),
    (["build", "data/*.nc", "-o", "x.vstack", "--new-dim", "t=(a)(b)"], 2, r"has 2 groups, .* as \(\?:\.\.\.\)"),
    (["build", "data/*.nc", "-o", "x.vstack", "--cache", ""], 2, "the path of the folder is empty"),
    (["build", "data/*.nc", "-o", "x.vstack", "--allow", ""], 2, "the place is empty"),
    (["allow", "s3://other/"], 2, "no such command 'allow'"),
    (["build", "data/*.nc", "-o", "x.json", "-m", "x"], 2, "--message is for .* See 'virtualstack build --help'"),
    (["convert", "cube.vstack", "x.json", "-m", "x"], 2, "--message is for .* See 'virtualstack convert --help'"),
    (["convert", "cube.vstack", "x.json", "--at", "0", "--reader", "hdf5"], 2, "--at is an option of vstacks"),
    (["inspect", "data.nc", "--remote-protocol", "s3", "--reader", "hdf5"], 2, "is for kerchunk references"),
    (["serve", "cube.vstack", "--port", "70000"], 2, "70000 is not in the range"),
    (["report", "data/*.nc", "-o", "x.html", "--in-order"], 2, "add --concat-dim DIM"),
    (["report", "data/*.nc", "-o", "none/x.html"], 1, "'none/x.html' cannot be written"),
    (["report", "data/*.nc", "-o", "x.html", "--concat-dim", "day"], 1, "no dimension 'day' to join along"),
    (["survey", "data.nc", "--table", "none/x.csv"], 1, "'none/x.csv' cannot be written"),
    (["rechunk", "cube.vstack", "t", "--chunks", "time", "--name", "s"], 2, "'time' is not a list of dimensions and"),
    (["rechunk", "cube.vstack", "t", "--chunks", "day=1", "--name", "s"], 1, "not 'day'"),
    (["write", "cube.vstack", "t", "empty.npy"], 1, "the values 'empty.npy' cannot be read"),
    (["sample", "hourly", "file"], 1, "the sample 'hourly' cannot be written"),
    (["sample", "hourli"], 2, "Did you mean 'hourly'"),
    # files that are not there, or are others: exit status 1
    *(
        ([*words, "@empty.txt"], 1, "the list 'empty.txt' is empty")
        for words in (["build", "-o", "x.vstack"], ["survey"])
    ),
    (["inspect", "dat.nc"], 1, r"there is no file at 'dat\.nc'\. Check the path"),
    (["build", "data/*.nv", "-o", "x.vstack"], 1, r"nothing matches 'data/\*\.nv'"),
    (["build", "data", "-o", "x.vstack"], 1, r"'data' is a directory, .* such as 'data/\*\.nc'"),
    (["inspect", "readme.txt"], 1, "has no known format.*See all readers with 'virtualstack readers'"),
    (["inspect", "empty.nc"], 1, r"'empty\.nc' is empty \(0 bytes\)"),
    (["inspect", "cut.nc"], 1, r"'cut\.nc'"),
    (["inspect", "data.nc", "--reader", "hdf6"], 1, "Did you mean 'hdf5'.*See all readers with 'virtualstack readers'"),
    (["inspect", "data.nc", "--group", "science"], 1, "'science'"),
    (["build", "sample:monthli", "-o", "x.vstack"], 2, r"Did you mean 'monthly'\? 'virtualstack sample' lists"),
    (["survey", "@files.txt"], 1, r"the list 'files\.txt' cannot be read"),
    # files that do not join
    (["build", "data/*.nc", "-o", "cube.vstack"], 1, "already exists. Replace it with --overwrite, add .*--append DIM"),
    (
        ["build", "packed/*.nc", "-o", "x.vstack", "--unpack", "never"],
        1,
        "scale_factor = 0.5 in 'packed/f0.nc' and 1.0 .*--unpack differing",
    ),
    (["build", "kinds/*", "-o", "x.vstack"], 1, r"no dimension in common .*'kinds/a.h5' has \['a'\], 'kinds/b.h5' has"),
    (["build", "data/f0.nc", "wide.nc", "-o", "x.vstack"], 1, r"wide\.nc'"),
    (["build", "data/f0.nc", "data/*.nc", "-o", "x.vstack"], 1, r"'data/f0\.nc' is given twice\. --keep-first"),
    (
        ["build", "data/*.nc", "-o", "x.vstack", "--concat-dim", "day"],
        1,
        r"no dimension 'day' .* it has \['time', 'x'\]",
    ),
    (["build", "data/*.nc", "-o", "x.vstack", "--drop-variable", "tt"], 1, "no file has the variable 'tt'"),
    (["build", "text.h5", "-o", "x.vstack"], 1, "'/text'.*--drop-variable text, or --unsupported skip"),
    (["append", "cube.vstack", "data/f0.nc", "--dim", "time"], 1, "'time'.*'virtualstack update'"),
    (["append", "gone.vstack", "data.nc", "--dim", "time"], 1, "'gone.vstack'"),
    # stores and targets
    (["log", "data.vstack"], 1, "'data.vstack' is not a vstack.*'virtualstack build'"),
    (["log", "data.nc"], 1, "'data.nc' is not a vstack: it is a file.*'virtualstack build --append DIM'"),
    (["verify", "cube.vstack", "--at", "7"], 1, "has no snapshot 7: .* See 'virtualstack log'"),
    (["relocate", "cube.vstack", "dat", "data"], 1, "no source of 'cube.vstack/' is in 'dat/'.*'data/'"),
    (["relocate", "cube.vstack", "data", "empty"], 1, "there is no file in the new folder 'empty'"),
    (["write", "cube.vstack", "tt", "1"], 1, "'tt'"),
    (["write", "cube.vstack", "t", "1", "--region", "day=1"], 1, r"\['day'\]; the dimensions are \['time', 'x'\]"),
    (["compact", "cube.vstack", "tt"], 1, r"has no variable '/tt'; it has \['/t', '/time'\]"),
    (["build", "data/*.nc", "-o", "file/x.vstack"], 1, "cannot be written.*'file' is a file, not a folder"),
    (["build", "data/*.nc", "-o", "/proc/none/x.vstack"], 1, "cannot be written"),
    (["convert", "cube.vstack", "x.json", "--at", "5"], 1, "has no snapshot 5"),
    (["convert", "cube.vstack", "x.json", "--drop-variable", "timee"], 1, "Did you mean 'time'"),
    (["serve", "cube.vstack", "data/../cube.vstack"], 1, "would both have the name 'cube'"),
]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("arguments", "status", "message"), MISTAKES, ids=lambda x: " ".join(x) if isinstance(x, list) else ""
)
def test_a_mistake_has_a_right_message_of_three_lines(arguments, status, message, capsys):
    """It names what was wrong and what to do in the words of the command line; stdout stays empty."""
    assert main(arguments) == status
    seen = capsys.readouterr()
    assert seen.out == ""
    what, *helps = [line for line in seen.err.splitlines() if ": note: " not in line]
    assert what.startswith("virtualstack: error: ")
    assert [line[:2] for line in helps] in ([], ["  "]), seen.err
    error = " ".join([what, *(line[2:] for line in helps)])
    assert len(error) <= 3 * LINE, (len(error), error)
    assert re.search(message, error), error
    assert not re.search(r"file://|\bvs\.|vds\.|xr\.|_[a-z]+=|np\.|Traceback", error), error
    assert "reader=" not in error
    assert not Path("x.vstack").exists()
