"""Every remedy in the code, as each command would print it: what can be typed after the command, or plain words."""

import ast
import re
import shlex
from pathlib import Path

import click
import netCDF4
import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from virtualstack.cli.command import main
from virtualstack.cli.group import cli
from virtualstack.cli.remedies import in_command_words
from virtualstack.errors import Code, Remedy
from virtualstack.planning.questions import new_dimensions

ROOT = Path(vs.__file__).parent
PYTHON = re.compile(r"\w\(|\w=|\bvs\.|\bxr\.|\bnp\.|\bpd\.|\.virtual|xarray\.|sortby|isel|squeeze|astype|mode='w'")
"""What is no plain word: calls, arguments and names of Python."""

LIKELY = {
    "allow": ["file:///"],
    "drop_variables": ["x y"],
    "group": "a/b",
    "inline_limit": 4096,
    "labels": {"t": "Times"},
    "new_dim": new_dimensions({"time": vs.FromName(r"_(\d{8})", format="%Y%m%d"), "member": vs.FromAttribute("label")}),
    "reader": "hdf5",
    "region": {"t": Code("slice(0, 2)", "0:2")},
    "rewrite": "64 MiB",
    "storage": {"s3://b/": {"region": "eu-west-1"}},
    "tolerance": Code("pd.Timedelta('1min')", "1min"),
}
"""Values of arguments that the code computes."""


def text_of(node):
    """Return the text of a literal; values that are put into it are ``'x'``."""
    if isinstance(node, ast.JoinedStr):
        return "".join(x.value if isinstance(x, ast.Constant) else "x" for x in node.values)
    return node.value if isinstance(node, ast.Constant) else "use"


def value_of(name, node):
    """Return the value of an argument, or one that is like it."""
    try:
        return ast.literal_eval(node)
    except ValueError:
        pass
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Code":
        return Code(*(text_of(x) for x in node.args))
    if name == "combine_options":
        return {ast.literal_eval(node.keys[0]) if isinstance(node.keys[0], ast.Constant) else "coords": ["x"]}
    return LIKELY.get(name, "x")


@pytest.fixture(scope="module")
def remedies():
    """Return where each remedy of the code is, and what it is."""
    found = []
    for path, text in ((path, path.read_text(encoding="utf-8")) for path in sorted(ROOT.rglob("*.py"))):
        for node in ast.walk(ast.parse(text)) if "Remedy(" in text else ():
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Remedy":
                given = {x.arg: value_of(x.arg, x.value) for x in node.keywords if x.arg}
                where = f"{path.relative_to(ROOT)}:{node.lineno}"
                found.append((where, Remedy(*map(text_of, node.args[:2]), **given)))
    return found


def test_the_remedies_are_found(remedies):
    assert len(remedies) > 250


def check_typed(command, arguments):
    """Let click parse options with their values; a placeholder is that of its option."""
    context = click.Context(command)
    given, rest, _ = command.make_parser(context).parse_args(arguments)
    assert not rest
    for param in (x for x in command.params if isinstance(x, click.Option)):
        value = given.get(param.name)
        if value not in (None, param.metavar, [param.metavar], "|".join(getattr(param.type, "choices", ()))):
            param.type_cast_value(context, value)


@pytest.mark.parametrize("name", sorted(cli.commands))
def test_each_remedy_can_be_typed_or_is_plain(remedies, name):
    """As this command prints it: it takes the options that are named with their values, and no Python is left."""
    command, n_typed = cli.commands[name], 0
    for where, remedy in remedies:
        if in_command_words(remedy, command, cli.commands) is None:
            continue
        assert not PYTHON.search(remedy.words), (where, remedy.words)
        options = Remedy("{}", remedy.function, **remedy.arguments)
        typed = in_command_words(options, command, cli.commands)
        other = re.fullmatch(r"'virtualstack (\S+)(.*)'", typed)
        try:
            check_typed(cli.commands[other[1]] if other else command, shlex.split(other[2] if other else typed))
        except click.ClickException as error:
            raise AssertionError(f"{where}: {typed}: {error.format_message()}") from error
        n_typed += bool(typed)
    assert n_typed > 20 or name not in ("build", "append", "update")


def options_of(capsys, status=1):
    """Return the options with which the last line on stderr ends, and the line."""
    said = capsys.readouterr().err.strip().splitlines()[-1]
    return shlex.split(said[said.index(" --") :].split(", which")[0]), said


def months_since(path, numbers):
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("time", None)
        file.createVariable("time", "f8", ("time",)).setncatts({"units": "months since 2000-01-01"})
        file["time"][:] = numbers
        file.createVariable("t", "f4", ("time",))[:] = np.asarray(numbers) * 10


def test_months_are_numbers_with_the_option_that_is_named(tmp_path, monkeypatch, capsys):
    """In `build`, `append` and `update`; the numbers are those of the files."""
    monkeypatch.chdir(tmp_path)
    for i in range(4):
        months_since(f"{i}.nc", [2 * i + 0.5, 2 * i + 1.5])
    for n, line in enumerate((["build", "0.nc", "1.nc", "-o", "a.vstack"], ["append", "a.vstack", "2.nc"])):
        assert main(line) == 1
        more, said = options_of(capsys)
        assert "decode_times" not in said
        assert main([*line, *more]) == 0, n
    assert main(["update", "a.vstack", "3.nc", "--no-decode-times"]) == 0
    with xr.open_dataset("a.vstack", engine="virtualstack", decode_times=False) as found:
        files = [xr.load_dataset(f"{i}.nc", decode_times=False) for i in range(4)]
        xr.testing.assert_identical(found.load(), xr.concat(files, "time"))


def test_labels_that_descend_are_appended_as_the_message_says(tmp_path, monkeypatch, capsys):
    """And `update`, which it names first, places them in the order of the store."""
    monkeypatch.chdir(tmp_path)
    for i in range(3):
        labels = [5 - 2 * i, 4 - 2 * i]
        data = xr.Dataset({"v": ("t", 10.0 * np.array(labels))}, {"t": labels})
        data.to_netcdf(f"{i}.nc", unlimited_dims="t")
    assert main(["build", "0.nc", "-o", "a.vstack"]) == 0
    assert main(["append", "a.vstack", "1.nc"]) == 1
    more, said = options_of(capsys)
    assert "'virtualstack update'" in said
    assert main(["append", "a.vstack", "1.nc", *more[:2]]) == 0
    assert main(["update", "a.vstack", "2.nc"]) == 0
    with xr.open_dataset("a.vstack", engine="virtualstack") as found:
        assert found["t"].values.tolist() == [5, 4, 3, 2, 1, 0]
        np.testing.assert_array_equal(found["v"], 10.0 * found["t"])
