"""Help, completion and suggestions: what the command shows without doing anything."""

import subprocess
import sys

import pytest

import virtualstack as vs
from virtualstack.cli.command import main
from virtualstack.cli.completion import COMPLETE_VARIABLE
from virtualstack.cli.group import cli

HEAVY = {"numpy", "xarray", "zarr", "pandas", "rich", "pyarrow", "h5py", "obstore"}


def test_help_lists_commands_by_task_with_examples(capsys):
    """The bare command shows the same."""
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    for title in cli.tasks:
        assert f"\n{title}:\n" in out
    assert "\nExamples:\n  virtualstack " in out
    assert main([]) == 0
    assert capsys.readouterr().out == out


@pytest.mark.parametrize("name", sorted(cli.commands))
def test_the_help_of_a_command_has_examples(name, capsys):
    """It describes every argument and every option."""
    assert main([name, "--help"]) == 0
    assert "\nExamples:\n  " in capsys.readouterr().out
    assert all(param.help for param in cli.commands[name].params)


@pytest.mark.parametrize("arguments", [["--help"], ["build", "--help"], ["--version"], ["completion", "fish"]])
def test_help_imports_no_heavy_library(arguments):
    """It is there at once; a shell asks for completions at each Tab."""
    program = (
        "import sys; sys.argv[0] = 'virtualstack'\n"
        "from virtualstack.cli.command import main\n"
        "assert main(sys.argv[1:]) == 0\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True)
    assert not HEAVY & set(done.stderr.split())


def completions(words, monkeypatch, capsys):
    """Return what a shell gets for the last word."""
    monkeypatch.setenv(COMPLETE_VARIABLE, "bash_complete")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(words.count(" ")))
    assert main([]) == 0
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("virtualstack bui", "build"),
        ("virtualstack build --over", "--overwrite"),
        ("virtualstack build --join ou", "outer"),
    ],
)
def test_shells_complete_words(words, expected, monkeypatch, capsys):
    """Commands, options and their values."""
    assert completions(words, monkeypatch, capsys) == [f"plain,{expected}"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_for_a_shell_asks_the_command(shell, capsys):
    assert main(["completion", shell]) == 0
    assert f"{COMPLETE_VARIABLE}={shell}_complete" in capsys.readouterr().out


def test_colours_are_for_terminals(monkeypatch, capsys):
    """NO_COLOR and a terminal that cannot show them turn them off."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    main(["biuld"])
    main(["--help"])
    seen = capsys.readouterr()
    assert "\x1b[1;31merror\x1b[0m" in seen.err
    assert "\x1b[1mExamples\x1b[0m:" in seen.out
    for name, value in (("NO_COLOR", "1"), ("TERM", "dumb")):
        with monkeypatch.context() as here:
            here.setenv(name, value)
            main(["biuld"])
            main(["--help"])
        seen = capsys.readouterr()
        assert "\x1b[1" not in seen.err + seen.out


ARGUMENTS = [
    "build ",
    "build a.nc -o ",
    "build a.nc --cache ",
    "append ",
    "append a.vstack ",
    "update a.vstack ",
    "write ",
    "write a.vstack v ",
    "inspect ",
    "inspect a.nc --html ",
    "survey ",
    "convert ",
    "convert a.json ",
    "serve ",
    "report ",
    "refresh ",
    "verify ",
    "relocate a.vstack ",
    "sample hourly ",
]


@pytest.mark.parametrize("begun", ARGUMENTS)
def test_a_shell_completes_the_names_of_files(begun, monkeypatch, capsys):
    """The shell does it, as it does without the script."""
    assert completions(f"virtualstack {begun}da", monkeypatch, capsys) == ["file,da"]


def test_a_shell_completes_names_of_readers_and_samples(monkeypatch, capsys):
    """They are those that the commands list."""
    assert completions("virtualstack build a.nc --reader hd", monkeypatch, capsys) == ["plain,hdf5", "plain,hdf4"]
    found = completions("virtualstack sample s", monkeypatch, capsys)
    assert found == [f"plain,{name}" for name in vs.sample.__all__ if name.startswith("s")]
