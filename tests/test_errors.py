"""The tree of errors: its shape, what each one also is, and that errors cross process borders whole."""

import inspect
import pickle
import re

import numpy as np
import pytest

from virtualstack import errors
from virtualstack.errors import check_word

ERRORS = [getattr(errors, x) for x in errors.__all__ if x != "Remedy"]
CLASSES = sorted(ERRORS, key=lambda cls: inspect.getsourcelines(cls)[1])

ALSO = {
    "AccessDeniedError": PermissionError,
    "UnknownFormatError": ValueError,
    "GroupNotFoundError": FileNotFoundError,
    "MissingDependencyError": ImportError,
    "MalformedFileError": ValueError,
    "TemplateError": ValueError,
    "UnsupportedFeatureError": NotImplementedError,
    "ManifestError": ValueError,
    "CombineError": ValueError,
    "VirtualValuesError": RuntimeError,
    "StorageError": OSError,
    "SourceNotFoundError": FileNotFoundError,
    "ChunkDecodeError": ValueError,
    "ForbiddenLocationError": PermissionError,
    "RecipeError": ValueError,
    "WriterError": ValueError,
}

EXAMPLES = [
    errors.VirtualStackError("m"),
    errors.ReaderError("m", url="file:///a"),
    errors.UnknownFormatError("m", url="file:///a"),
    errors.GroupNotFoundError("m", url="file:///a"),
    errors.MissingDependencyError("reading GRIB", extra="grib", url="file:///a"),
    errors.MalformedFileError("m", url="file:///a", offset=7),
    errors.TemplateError("m", url="file:///a", index="file:///a.idx", offset=7, unknown=("TMP",), missing=("HGT",)),
    errors.UnsupportedFeatureError("m", url="file:///a", variable="t", feature="szip"),
    errors.ManifestError("m"),
    errors.CombineError("m", variable="t", property="dtype", left=1, right=2, left_url="a", right_url="b"),
    errors.ChunkAlignmentError("m", axis=1, chunk_length=4, variable="t"),
    errors.VirtualValuesError("m"),
    errors.StorageError("m", url="file:///a"),
    errors.SourceNotFoundError("m", url="file:///a"),
    errors.SourceChangedError("m", url="file:///a"),
    errors.AccessDeniedError("m", url="file:///a", status=403),
    errors.ChunkDecodeError("m", variable="t", cell=(0, 1), url="file:///a", offset=3, length=4),
    errors.ForbiddenLocationError("m", url="file:///a"),
    errors.RecipeError("m"),
    errors.WriterError("m", variable="t", feature="strides"),
    errors.ConflictError("m", variable="t", feature="region"),
]


def drawn(cls, prefix=""):
    """Draw the tree below a class, as the docstring of the module does."""
    children = [child for child in CLASSES if cls in child.__bases__]
    lines = []
    for child in children:
        last = child is children[-1]
        lines.append(prefix + ("└── " if last else "├── ") + child.__name__)
        lines += drawn(child, prefix + ("    " if last else "│   "))
    return lines


def test_the_docstring_draws_the_tree_as_it_is():
    """The tree in the docstring has the classes, and only those, each below its base."""
    shown = [
        re.match(r"[ │├└─]*\w+", line[4:]).group() for line in errors.__doc__.splitlines() if line.startswith("    ")
    ]
    assert shown == ["VirtualStackError", *drawn(errors.VirtualStackError)]


def test_the_docstring_says_what_each_error_also_is():
    """Each ``(also X)`` is a base class, and each builtin base is said."""
    said = dict(re.findall(r"(\w+Error) .*\(also (\w+)\)", errors.__doc__))
    assert said == {name: builtin.__name__ for name, builtin in ALSO.items()}
    for name, builtin in ALSO.items():
        assert builtin in getattr(errors, name).__bases__


def test_every_class_is_public():
    """All errors of the module stand in ``__all__``."""
    defined = {n for n, x in vars(errors).items() if isinstance(x, type) and issubclass(x, BaseException)}
    assert defined | {"Remedy"} == set(errors.__all__)


def test_there_is_an_example_of_every_class():
    """The pickling test below leaves none out."""
    assert {type(error) for error in EXAMPLES} == set(CLASSES)


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_an_error_pickles_with_its_attributes(error, protocol):
    """Class, message and attributes come back."""
    again = pickle.loads(pickle.dumps(error, protocol))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)


def test_a_missing_dependency_ends_with_the_pip_command():
    """The last words can be pasted into a shell."""
    error = errors.MissingDependencyError("reading GRIB", extra="grib")
    assert str(error).endswith("pip install 'virtualstack[grib]'")
    assert error.extra == "grib"


def test_messages_are_for_a_terminal():
    """Names in them may be those of a stranger: no commands, and not without an end."""
    assert str(errors.ManifestError("'a\x1b[2J'\n\u202e")) == "'a\\x1b[2J'\n\\u202e"
    assert len(str(errors.ManifestError("a" * 10**6))) < 30_000


def test_an_array_is_no_word_of_an_option():
    """Its comparison has no truth value; the error names the words."""
    for value in (np.array(["exact", "outer"]), np.array("exact"), ["exact"], None):
        with pytest.raises(ValueError, match=r"^join=.*; it must be 'exact' or 'outer'$"):
            check_word("join", value, ("exact", "outer"))
    check_word("join", np.str_("exact"), ("exact", "outer"))


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("the chunk has 1 bytes, 'x' 21 bytes", "the chunk has 1 byte, 'x' 21 bytes"),
        ("1 chunks of 1,001 bytes", "1 chunk of 1,001 bytes"),
        ("group 1 has 0.1 values", "group 1 has 0.1 values"),
    ],
)
def test_one_thing_is_in_the_singular(said, shown):
    """Whoever writes a message need not count."""
    assert str(errors.ReaderError(said)) == shown
