"""Defaults of public functions, which users rely on: whoever changes one changes the list, and writes a change note."""

from pathlib import Path

from tests.docs.test_help import CALLED, parameters

LIST = Path(__file__).with_name("defaults.txt")


def written(name):
    """Return the line of a function: its name, and each parameter that has a default."""
    given = {x.name: x.default for x in parameters(CALLED[name]).values() if x.default is not x.empty}
    return f"{name}: " + ", ".join(f"{key}={value!r}" for key, value in given.items()) if given else None


def test_defaults_are_those_of_the_list():
    assert [line for name in sorted(CALLED) if (line := written(name))] == LIST.read_text().splitlines()
