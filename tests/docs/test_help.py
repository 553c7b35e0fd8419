"""What ``help()`` shows: every parameter by name, the same options in functions that share them, and an example."""

import ast
import builtins
import doctest
import importlib
import inspect
import re

import pytest
import xarray as xr

from virtualstack.accessor import VirtualAccessor, VirtualTreeAccessor
from virtualstack.engine import VirtualStackBackendEntrypoint

# Errors are not here: users catch them, and docs/reference/errors.md shows how.
MODULES = ["", "readers", "sample", "testing.readers", "testing.sources", "testing.strategies"]
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
    assert set(hidden) <= {"indexers_kwargs", "others"}, "labels of dimensions, and options of other engines"


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
    """Apart from four about sources and tasks; what has the same name has the same default."""
    ours, theirs = parameters(VirtualAccessor.open), parameters(xr.open_dataset)
    assert ours.keys() - theirs.keys() == {"storage", "absent", "stale", "task_bytes"}
    defaults = {name: x.default for name, x in ours.items() if name in theirs}
    assert defaults == {name: theirs[name].default for name in defaults}


WITHOUT_EXAMPLE = {
    r"(Chunk\w+|Fill|FromName|Manifest(Array|Group))\..+": "a step of readers, writers and joining",
    r"ManifestStore\..+": "the interface of zarr, which calls it",
    r"readers\.\w+\..+": "the interface of readers, which functions that open files call",
    r"testing\.\w+\.\w+\..+": "a step of the class",
    r"testing\.strategies\.(KnownArray|HeldPages|in_pages|model_read|\w+_keys)": "a part of other strategies",
    r"Repository\.url|Survey\.text": "what the class shows by print, too",
    r"engine\.guess_can_open": "the interface of xarray, which calls it",
}
"""Why public objects have no example, by a pattern of their names in the package."""


def example_of(name):
    """Return the code of the examples of a public object, or an empty text."""
    return "".join(x.source for x in doctest.DocTestParser().get_examples(PUBLIC[name].__doc__ or ""))


def has_example(name):
    """Return whether the examples of an object or of its class show it."""
    owner, _, member = name.rpartition(".")
    return example_of(name) or (owner in PUBLIC and re.search(rf"\.{member}\b", example_of(owner)))


def test_every_public_object_has_an_example():
    """Or a reason for having none; reasons that nothing needs are removed."""
    without = [name.removeprefix("virtualstack.") for name in PUBLIC if not has_example(name)]
    reasons = {name: [pattern for pattern in WITHOUT_EXAMPLE if re.fullmatch(pattern, name)] for name in without}
    assert not [name for name, found in reasons.items() if not found]
    assert {pattern for found in reasons.values() for pattern in found} == WITHOUT_EXAMPLE.keys()


@pytest.mark.parametrize("name", [name for name in PUBLIC if example_of(name)])
def test_an_example_can_be_typed_as_it_stands(name):
    """It imports and makes all that it uses; doctest alone would find the names of the module."""
    nodes = list(ast.walk(ast.parse(example_of(name))))
    made = {x.asname or x.name.partition(".")[0] for node in nodes for x in getattr(node, "names", ())}
    made |= {x.name for x in nodes if isinstance(x, ast.FunctionDef | ast.ClassDef)}
    made |= {x.arg for x in nodes if isinstance(x, ast.arg)}
    names = [x for x in nodes if isinstance(x, ast.Name)]
    made |= {x.id for x in names if isinstance(x.ctx, ast.Store)}
    assert {x.id for x in names} <= made | set(dir(builtins))


@pytest.mark.parametrize("name", [name for name, thing in PUBLIC.items() if inspect.isclass(thing)])
def test_a_class_says_when_to_use_it(name):
    """A reader of ``help()`` learns whether the class is for them."""
    assert "When to use:" in PUBLIC[name].__doc__
