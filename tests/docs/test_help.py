"""What ``help()`` shows: every parameter by name, the same options in functions that share them, and an example."""

import importlib
import inspect
import re

import pytest
import xarray as xr

from virtualstack.accessor import VirtualAccessor, VirtualTreeAccessor
from virtualstack.engine import VirtualStackBackendEntrypoint

MODULES = ["", "readers", "testing.readers", "testing.sources", "testing.strategies"]
CLASSES = {"vds.virtual": VirtualAccessor, "tree.virtual": VirtualTreeAccessor, "engine": VirtualStackBackendEntrypoint}


def members(name, cls):
    """Yield methods and properties of a class that this package defines, with what has their docstring."""
    for member in dir(cls):
        found = inspect.getattr_static(cls, member)
        found = getattr(found, "__func__", found)
        code = getattr(found, "fget", getattr(found, "func", found))
        if inspect.isfunction(code) and code.__module__.startswith("virtualstack") and not member.startswith("_"):
            yield f"{name}.{member}", found


def public():
    """Return public objects by the name that a user types: functions, classes, and members of the classes."""
    found = {}
    for module in MODULES:
        module = importlib.import_module(f"virtualstack.{module}".rstrip("."))
        for name in module.__all__:
            if not inspect.ismodule(thing := getattr(module, name)):
                found[f"{module.__name__}.{name}"] = thing
    found |= CLASSES
    for name, thing in list(found.items()):
        if inspect.isclass(thing):
            found |= members(name, thing)
    return found


PUBLIC = public()
CALLED = {name: thing for name, thing in PUBLIC.items() if inspect.isfunction(thing)}


def parameters(function, *, without=()):
    """Return the parameters of a function, without ``self`` and the names that are not compared."""
    return {name: x for name, x in inspect.signature(function).parameters.items() if name not in {"self", *without}}


@pytest.mark.parametrize("name", CALLED)
def test_help_names_every_parameter(name):
    """No parameter is hidden in ``**options``, where neither help nor completion shows it."""
    hidden = [x.name for x in parameters(CALLED[name]).values() if x.kind is x.VAR_KEYWORD]
    assert set(hidden) <= {"indexers_kwargs"}, "labels of dimensions, which may have any name"


@pytest.mark.parametrize("name", [x for x in CALLED if "Parameters\n" in CALLED[x].__doc__])
def test_every_parameter_is_described(name):
    """A list of parameters is complete, and has none that the function does not have."""
    doc = inspect.cleandoc(CALLED[name].__doc__)
    listed = re.split(r"\n\n[A-Z][A-Za-z ]+\n-{4,}\n", doc.split("Parameters\n----------\n")[1])[0]
    described = {x.lstrip("*") for line in re.findall(r"^(\S.*)$", listed, re.MULTILINE) for x in line.split(", ")}
    assert described == set(parameters(CALLED[name], without=("cls",)))


@pytest.mark.parametrize(
    ("function", "other", "more", "less"),
    [
        ("virtualstack.open_virtual_datatree", "virtualstack.open_virtual_dataset", (), ("loadable_variables",)),
        ("virtualstack.open_virtual_mfdataset", "virtualstack.open_virtual_dataset", None, ("url", "unpack")),
        ("virtualstack.open_virtual_mfdatatree", "virtualstack.open_virtual_datatree", None, ("url", "unpack")),
        ("engine.open_datatree", "engine.open_dataset", (), ()),
        ("engine.open_groups_as_dict", "engine.open_dataset", (), ()),
        ("vds.virtual.open", "tree.virtual.open", (), ()),
        ("virtualstack.Repository.open_dataset", "vds.virtual.open", ("group",), ("storage",)),
        ("virtualstack.Repository.open_datatree", "virtualstack.Repository.open_dataset", (), ()),
        (
            "virtualstack.Repository.open_virtual_dataset",
            "virtualstack.open_virtual_dataset",
            (),
            ("url", "reader", "storage", "allow"),
        ),
        (
            "virtualstack.Repository.open_virtual_datatree",
            "virtualstack.Repository.open_virtual_dataset",
            (),
            ("loadable_variables",),
        ),
    ],
)
def test_functions_that_share_options_have_the_same(function, other, more, less):
    """A new option of one is one of the other, too, with the same type and default; ``more`` is of the first alone."""
    ours, theirs = parameters(PUBLIC[function]), parameters(PUBLIC[other], without=less)
    assert {name: ours.get(name) for name in theirs} == theirs
    assert more is None or ours.keys() - theirs.keys() == set(more)


def test_both_accessors_have_the_same_members():
    """What a dataset can do, a tree can do, with the same parameters."""
    for name in dir(xr.Dataset().virtual):
        one, other = PUBLIC[f"vds.virtual.{name}"], PUBLIC[f"tree.virtual.{name}"]
        if inspect.isfunction(one):
            assert parameters(one) == parameters(other), name
    assert dir(xr.Dataset().virtual) == dir(xr.DataTree().virtual)


def test_options_of_opening_with_values_are_those_of_xarray():
    """Apart from three that are about sources; what has the same name has the same default."""
    ours, theirs = parameters(VirtualAccessor.open), parameters(xr.open_dataset)
    assert ours.keys() - theirs.keys() == {"storage", "absent", "stale"}
    defaults = {name: x.default for name, x in ours.items() if name in theirs}
    assert defaults == {name: theirs[name].default for name in defaults}
