"""Messages of functions in the words of commands: every message of the package, on every command."""

import ast
import re
import shlex
from pathlib import Path

import click
import pytest
import xarray as xr

import virtualstack
from virtualstack.cli.command import main
from virtualstack.cli.group import cli
from virtualstack.cli.remedies import MAX_CHARACTERS, in_command_words

PACKAGE = Path(virtualstack.__file__).parent
CODE = re.compile(r"(?<![\w.])[a-z_]+=|\b(?:vs|xr|vds|ds)\.|Repository\.|drop_var|open_virtual|to_vstack")


def texts(tree):
    """Return the texts of a module with something like code, but its docstrings; in f-strings each value is ``7``."""
    left_out = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    left_out |= {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            text = "".join(x.value if isinstance(x, ast.Constant) else "7" for x in node.values)
        else:
            text = node.value if isinstance(node, ast.Constant) else None
        if isinstance(text, str) and id(node) not in left_out and " " in text and CODE.search(text):
            yield f"it is odd; {text}" if text.startswith("leave ") else text  # the end of a message


MESSAGES = sorted(
    {
        text
        for path in PACKAGE.rglob("*.py")
        if not {"cli", "serve", "drawing"} & set(path.relative_to(PACKAGE).parts)
        for text in texts(ast.parse(path.read_text()))
    }
)
FLAGS = "|".join(
    sorted({x for each in cli.commands.values() for p in each.params if getattr(p, "is_flag", False) for x in p.opts})
)
GARBLED = re.compile(
    rf"""--[a-z]+(?:-[a-z]+)*(?:['"][\w{{\[]|[{{\[\d(A-Z])|\w\(--|Ellipsis|(?:{FLAGS}|--[a-z-]+) (?:True|False)\b"""
)


@pytest.mark.parametrize("command", sorted(cli.commands))
def test_no_message_is_garbled(command):
    """An option is followed by a space and its value, and no clause mixes options and Python."""
    assert len(MESSAGES) > 250
    for message in MESSAGES:
        said = in_command_words(message, cli.commands[command])
        assert not GARBLED.search(said), (message, said)
        for clause in re.split(r"[.;] ", re.sub(r"'[^']*'", "''", said)):
            assert not ("--" in clause and re.search(r"\b(?:vs|xr)\.", clause)), (message, said)


def words(message, command):
    return in_command_words(message, cli.commands[command], most=MAX_CHARACTERS)


@pytest.mark.parametrize(
    ("command", "message", "said"),
    [
        # values
        (
            "build",
            'no access. Give options: storage={"s3://b/": {"region": "..."}}',
            """no access. Give options: --storage '{"s3://b/": {"region": "..."}}'""",
        ),
        (
            "build",
            "denied. Allow it: storage={'s3://b/': {'allow_http': True}}",
            """denied. Allow it: --storage '{"s3://b/": {"allow_http": true}}'""",
        ),
        ("build", "use drop_variables=[...]", "use --drop-variable"),
        ("build", "use drop_variables=['x', 'y z']", "use --drop-variable x --drop-variable 'y z'"),
        ("write", "give stored numbers with raw=True", "give stored numbers with --raw"),
        ("convert", "leave out relative=True", "leave out --relative"),
        ("build", "use append_dim=", "use --append DIM"),
        ("append", "use append_dim='time'", "use --dim time"),
        (
            "append",
            "it is there. Use mode='w' to replace it",
            "it is there. Use 'virtualstack build --overwrite' to replace it",
        ),
        ("build", "with reader=VStack(at=3)", "with reader=VStack(at=3) (this command has no option for this reader)"),
        ("convert", "open it with reader=vs.readers.VStack(at=3)", "open it with --at 3"),
        ("build", "joined with vs.open_virtual_mfdataset(..., join='outer')", "joined with --join outer"),
        (
            "build",
            "is there. Name the reader: reader= (all are listed)",
            "is there. Name the reader: --reader (all are listed)",
        ),
        # what the command does not take
        (
            "append",
            "they differ. Use unpack='differing', or unpack=True",
            "they differ. Use --unpack differing, or --unpack all",
        ),
        (
            "update",
            "they differ. Write the store again from files opened with unpack=True",
            "they differ. Write the store again from files opened with 'virtualstack build --unpack all'",
        ),
        ("update", "it differs. Use Repository.update to insert data", "it differs"),
        (
            "append",
            "it differs. Use Repository.update to insert data",
            "it differs. Use 'virtualstack update' to insert data",
        ),
        (
            "build",
            "it is odd. Use reader=HDF5(metadata='own'). Or drop_variables=['x']",
            "it is odd. Or --drop-variable x",
        ),
        ("build", "it differs; leave it out with drop_vars('q')", "it differs; leave it out with --drop-variable q"),
        (
            "build",
            "it differs; leave it out with drop_variables=['q'], convert the dates with preprocess=, or join others",
            "it differs; leave it out with --drop-variable q, or join others",
        ),
        (
            "build",
            "it differs; sort it with preprocess=, or join them with combine='nested' and concat_dim='t'",
            "it differs; join them with --in-order",
        ),
        ("inspect", "use preprocess=", "use preprocess= (this command has no option for preprocess)"),
        (
            "build",
            "no container for it; it has none. Add one: config.set(x)",
            "no container for it; it has none. Add one: config.set(x)",
        ),
        (
            "inspect",
            "many; 7 are read. Use join='left'",
            "many; 7 are read. Use join='left' (this command has no option for join)",
        ),
        (
            "build",
            "'x' is odd. Replace it with to_vstack(mode='w'), or drop_variables=['x']",
            "'x' is odd. Use --drop-variable x",
        ),
        ("build", "open one with open_virtual_mfdataset(group=)", "open one with open_virtual_mfdataset(group=)"),
        (
            "build",
            "odd. Take the first file's with combine_options={'a': 'b'}, leave it out with drop_variables, or join it",
            "odd. Leave it out with --drop-variable, or join it",
        ),
        (
            "append",
            "odd; drop it with drop_vars('q'). Or join it with vs.combine_datasets([...]), and write it with mode='w'",
            "odd; drop it with --drop-variable q",
        ),
        (
            "build",
            "new_dim names 'x', a dimension of 'a'. Give the new one another name. Or remove it with preprocess=f",
            "--new-dim names 'x', a dimension of 'a'. Give the new one another name",
        ),
        # quotes are no code
        ("build", "'storage=x' is no file", "'storage=x' is no file"),
    ],
)
def test_words_of_the_command(command, message, said):
    assert words(message, command) == said


@pytest.mark.parametrize(
    "python",
    [
        "ds.assign({'x': 1})",
        "open_virtual_datatree",
        "to_vstack(mode='w')",
        "combine_options={'a': 1}",
        "preprocess=",
        "loadable_variables=['x']",
    ],
)
def test_what_only_python_has_goes_if_another_remedy_remains(python):
    """Functions and arguments that no option has."""
    assert words(f"it is odd. Use {python}. Or drop_variables=['x']", "build") == "it is odd. Or --drop-variable x"


def test_storage_can_be_pasted():
    """The option of a message is one word of a shell, which the option takes."""
    said = words("""no. Give storage={"s3://b/": {"access_key_id": "..."}}""", "build")
    param = next(x for x in cli.commands["build"].params if x.name == "storage")
    *_, name, value = shlex.split(said)
    assert name == "--storage"
    assert param.type.convert(value, param, click.Context(cli)) == {"s3://b/": {"access_key_id": "..."}}


def test_the_whole_message_has_the_length():
    """The first clause and the suffix count too; one remedy is always there."""
    for message in (
        f"{'the values are odd and ' * 30}wrong. Leave them out with drop_variables=['x']",
        f"{'it is odd ' * 15}. {'Convert it ' * 11}with preprocess=",
    ):
        said = words(message, "build")
        assert len(said) <= MAX_CHARACTERS
        assert "--drop-variable x" in said or "(this command has no option for preprocess)" in said


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
