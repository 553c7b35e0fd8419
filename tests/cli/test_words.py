"""Remedies in the words of commands: the options that a command has, and no others."""

import shlex

import click
import pytest
import xarray as xr

from virtualstack.cli.command import main
from virtualstack.cli.group import cli
from virtualstack.cli.output import MAX_CHARACTERS, SETTINGS, worded
from virtualstack.cli.remedies import in_command_words
from virtualstack.errors import Code, CombineError, Remedy, advised, rendered_by


def words(remedy, command):
    return in_command_words(remedy, cli.commands[command], cli.commands)


@pytest.mark.parametrize(
    ("command", "remedy", "python", "said"),
    [
        # values
        ("build", Remedy("use", drop_variables=...), "use drop_variables=", "use --drop-variable NAME"),
        (
            "build",
            Remedy("leave it out with", drop_variables=["x", "y z"]),
            "leave it out with drop_variables=['x', 'y z']",
            "leave it out with --drop-variable x --drop-variable 'y z'",
        ),
        ("write", Remedy("give stored numbers with", raw=True), "give stored numbers with raw=True", "... --raw"),
        ("convert", Remedy("leave out", relative=True), "leave out relative=True", "leave out --relative"),
        ("build", Remedy("use", append_dim=...), "use append_dim=", "use --append DIM"),
        ("append", Remedy("use", append_dim="time"), "use append_dim='time'", "use --dim time"),
        (
            "build",
            Remedy("{} takes 'Times'", labels={"t": "Times"}),
            "labels={'t': 'Times'} ...",
            "--labels t=Times ...",
        ),
        (
            "build",
            Remedy("join with", combine="nested", concat_dim="t"),
            "join with combine='nested' and concat_dim='t'",
            "join with --in-order --concat-dim t",
        ),
        ("build", Remedy("{} keeps it", duplicates="first"), "duplicates='first' keeps it", "--keep-first keeps it"),
        ("build", Remedy("open with", unpack=True), "open with unpack=True", "open with --unpack all"),
        ("append", Remedy("open it with", unpack=False), "open it with unpack=False", "open it with --unpack never"),
        ("build", Remedy("join it with", combine_options={"coords": ["k"]}), "...", "join it with --expand k"),
        (
            "build",
            Remedy("{} is enough", tolerance=Code("pd.Timedelta('1min')", "1min")),
            "tolerance=pd.Timedelta('1min') is enough",
            "--tolerance 1min is enough",
        ),
        # other commands
        (
            "append",
            Remedy("use {} to insert data", "Repository.update"),
            "use Repository.update to insert data",
            "use 'virtualstack update' to insert data",
        ),
        (
            "append",
            Remedy("replace it with", "vds.virtual.to_vstack", mode="w"),
            "replace it with vds.virtual.to_vstack(..., mode='w')",
            "replace it with 'virtualstack build --overwrite'",
        ),
        (
            "build",
            Remedy("replace it with", "vds.virtual.to_vstack", mode="w"),
            "replace it with vds.virtual.to_vstack(..., mode='w')",
            "replace it with --overwrite",
        ),
        ("build", Remedy("{} lists them", "vs.list_readers()"), "vs.list_readers() ...", "'virtualstack readers' ..."),
        (
            "append",
            Remedy("leave it out with", "drop_vars('q')", drop_variables=["q"]),
            "leave it out with drop_vars('q')",
            "leave it out with --drop-variable q",
        ),
        # what the command has not
        ("update", Remedy("use {} to insert data", "Repository.update"), "...", None),
        ("inspect", Remedy("use", join="left"), "use join='left'", None),
        ("build", Remedy("use", join="sideways"), "use join='sideways'", None),
        ("build", Remedy("read them with", "vds.virtual.open()"), "read them with vds.virtual.open()", None),
        ("build", Remedy("read with", reader=Code("HDF5(metadata='own')")), "...", None),
        ("build", Remedy("convert it with", preprocess=...), "convert it with preprocess=", None),
        ("build", Remedy("take it", combine_options={"combine_attrs": "override"}), "...", None),
        ("inspect", Remedy("fetch it again"), "fetch it again", "fetch it again"),
    ],
)
def test_a_remedy_in_python_and_on_the_command_line(command, remedy, python, said):
    """An option of the command stands for an argument; a remedy that no command has is left out."""
    for found, wanted in ((str(remedy), python), (words(remedy, command), said)):
        if wanted is None:
            assert found is None
        else:
            begin, _, end = wanted.partition("...") if "(..." not in wanted else (wanted, "", "")
            assert found.startswith(begin)
            assert found.endswith(end)


def test_storage_can_be_pasted():
    """The option of a message is one word of a shell, which the option takes."""
    options = {"s3://b/": {"access_key_id": "..."}}
    *_, name, value = shlex.split(words(Remedy("give", storage=options), "build"))
    param = next(x for x in cli.commands["build"].params if x.name == "storage")
    assert name == "--storage"
    assert param.type.convert(value, param, click.Context(cli)) == options


def test_each_remedy_is_a_sentence():
    """A name at its beginning keeps its letters; one without words belongs to the sentence before it."""
    assert advised("it is odd") == "it is odd"
    assert advised("odd", Remedy("use", a=1), Remedy("go"), Remedy("stay")) == "odd. Use a=1. Or go. Or stay"
    assert advised("odd", Remedy("use", a=1), Remedy("", a=2), Remedy("go")) == "odd. Use a=1, or a=2. Or go"
    assert advised("odd", Remedy("{} helps", a=1)) == "odd. a=1 helps"
    assert advised("is it?", Remedy("{} helps", a=1)) == "is it? a=1 helps"


def test_a_long_message_keeps_a_remedy(monkeypatch):
    """What happened is cut, and the last remedies are left out; one is always there."""
    monkeypatch.setattr(SETTINGS, "level", 0)
    first = Remedy("leave them out with", drop_variables=["x"])
    error = CombineError("the values are odd and " * 30, first, *[Remedy("do something else " * 20)] * 3)
    with rendered_by(lambda remedy: words(remedy, "build")):
        said = worded(error)
    assert len(said) <= MAX_CHARACTERS
    assert said.endswith("(--verbose shows all).\n  Leave them out with --drop-variable x")


def test_reports_have_the_words_of_the_command(tmp_path, monkeypatch, capsys):
    """What `refresh` and `expire` print names options and commands, in the same lines."""
    monkeypatch.chdir(tmp_path)
    for name, times in (("a", [0.0, 1.0]), ("b", [2.0, 3.0])):
        made = xr.Dataset({"v": ("t", times)}, {"t": times})
        made.to_netcdf(f"{name}.nc", engine="netcdf4", unlimited_dims="t")
    assert main(["build", "a.nc", "b.nc", "-o", "s.vstack"]) == 0
    made.isel(t=[0]).to_netcdf("b.nc", engine="netcdf4", unlimited_dims="t")
    capsys.readouterr()
    assert main(["refresh", "s.vstack"]) == 1
    said = capsys.readouterr().out
    assert said.count("\n") == 2
    assert said.endswith("from all of its files, with 'virtualstack build --overwrite'\n")
    assert main(["write", "s.vstack", "v", "1", "--region", "t=0"]) == 0
    capsys.readouterr()
    assert main(["expire", "s.vstack", "--keep", "1"]) == 0
    assert "(use --grace 0 if nobody reads or writes)" in capsys.readouterr().out
