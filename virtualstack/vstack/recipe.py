"""The recipe of a store: what it is made of, as TOML and as an object."""

from __future__ import annotations

import importlib
import json
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import date
from pathlib import Path
from typing import Any, Literal, cast, get_args

import numpy as np
import xarray as xr

from virtualstack.combine import FromAttribute, FromName, Labelling
from virtualstack.combine.fitting import Fitting
from virtualstack.combine.precedence import Candidate, Prefer
from virtualstack.dataset import virtual_array
from virtualstack.errors import CombineError, ReaderError, RecipeError, Remedy, VirtualStackError
from virtualstack.formats.base import Reader
from virtualstack.formats.registry import find_reader
from virtualstack.location import Location, absolute_url
from virtualstack.manifests import ManifestGroup
from virtualstack.options import JoinToStore, Unsupported
from virtualstack.printable import counted, did_you_mean, first_names
from virtualstack.sizes import byte_count
from virtualstack.storage import Storage
from virtualstack.storage.listing import fits_pattern, is_pattern
from virtualstack.surveying.result import Survey
from virtualstack.vstack.expected import expected_of, seconds

type Misfit = Literal["quarantine", "raise"]

_OBJECT = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a store is made of: its files, how they open, and how they join; the same as a file of TOML.

    A recipe is plain data, so that a store can keep it. Functions are named by their import paths,
    ``"module:function"``. See docs/how-to/run-a-store-for-years.md.

    When to use: a store grows for a long time, and each change should be made in the same way. Alternatives:
    :func:`open_virtual_mfdataset` and :meth:`Repository.update` take the same options one by one.

    Parameters
    ----------
    files
        Patterns such as ``"data/*.nc"``, or URLs of single files. A relative path is one of the working directory.
    dim
        Dimension whose labels are added; by default the one along which the store was built.
    reader
        Name of a reader, or a table with its ``name`` and options. By default it is detected for each file.
    group
        Path of the group to open.
    drop_variables
        Names of variables to leave out.
    decode_times
        If true, loaded and unpacked times become dates.
    unsupported
        Treatment of variables that cannot be referenced: ``"inline"``, ``"raise"`` or ``"skip"``.
    inline_limit
        Largest size of inlined values of a variable of a file.
    unpack
        ``true``, ``false`` or ``"differing"``, as in :func:`open_virtual_mfdataset`.
    preprocess
        Import path of a function that gets the virtual dataset of each file, and returns the one to place.
    new_dim
        New dimensions: a table with the ``name``, a regular expression for names of files, or the ``attribute`` that
        has the label, and the ``format`` of dates; or the import path of a function of the dataset.
    labels
        Variables whose values become the labels of dimensions that have none.
    join
        Labels along other dimensions: ``"exact"``, ``"left"`` or ``"outer"``, as in :meth:`Repository.update`.
    tolerance
        How far coordinates of files may differ and still be equal, when the store is built.
    combine_options
        Options of joining: ``compat``, ``combine_attrs`` and ``fill_value``.
    prefer
        File that is shown if two have the same labels: ``"first"``, ``"last"``, ``"newest"``, or the import path of a
        function that returns a key of a file. By default, the later file is a misfit.
    valid
        Least and greatest valid label of coordinates. A file with another label, or with a missing one, is a misfit.
    expected
        Labels that files are expected for: tables by dimension, with ``every`` (a period such as ``"1h"`` or
        ``"MS"``), ``late`` and ``missing`` (how long after its begin), ``first``, ``last`` and known ``gaps``; or with
        ``labels``. :meth:`Repository.health` compares them with those of the store.
    settle
        How long a file must not have changed before it is opened: seconds, or text such as ``"10min"``.
    sidecar
        Suffix of a file that appears beside each file when it is complete, such as ``".done"``.
    misfit
        ``"quarantine"``: a file that does not fit is noted in the ledger, and opened again when it has changed.
        ``"raise"``: nothing is committed if a file does not fit.
    retention
        Snapshots that stay after a run that writes one: a table with ``keep``, a number, or ``days``; with both, what
        either keeps. By default all stay.
    relative
        If true, files in the folder that holds the store are written relative to the store.
    checksums
        If true, a checksum of all bytes of each file is recorded.

    Raises
    ------
    RecipeError
        A value has another type, or is not known.

    Examples
    --------
    >>> import virtualstack as vs
    >>> recipe = vs.Recipe(["data/tas_*.nc"], dim="time", valid={"time": ["1990-01-01", "2100-01-01"]})
    >>> print(vs.Recipe.from_toml(recipe.text).text)
    files = ["data/tas_*.nc"]
    dim = "time"
    valid = {time = ["1990-01-01", "2100-01-01"]}
    """

    files: Sequence[str]
    dim: str | None = None
    reader: str | Mapping[str, Any] | None = None
    group: str | None = None
    drop_variables: Sequence[str] = ()
    decode_times: bool = True
    unsupported: Unsupported = "inline"
    inline_limit: int | str = "1 MiB"
    unpack: bool | Literal["differing"] = "differing"
    preprocess: str | None = None
    new_dim: Mapping[str, Any] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    join: JoinToStore = "exact"
    tolerance: float | str | None = None
    combine_options: Mapping[str, Any] = field(default_factory=dict)
    prefer: str | None = None
    valid: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    expected: Mapping[str, Any] = field(default_factory=dict)
    settle: float | str = 0
    sidecar: str | None = None
    misfit: Misfit = "quarantine"
    retention: Mapping[str, int] = field(default_factory=dict)
    relative: bool = False
    checksums: bool = False
    text: str = field(default="", repr=False, compare=False)

    def __post_init__(self) -> None:
        files = [self.files] if isinstance(self.files, str) else self.files
        object.__setattr__(self, "files", files)
        for name, (is_valid, wanted) in _CHECKS.items():
            value = getattr(self, name)
            try:
                is_good = is_valid(value)
            except (ValueError, TypeError) as error:
                raise _error(self.text, name, f"is not valid: {error}") from error
            if not is_good:
                raise _error(self.text, name, f"is {value!r}; it must be {wanted}")
        object.__setattr__(self, "text", self.text or _toml(self))

    @classmethod
    def from_toml(cls, text: str, /) -> Recipe:
        """Return the recipe that a text of TOML says; comments stay in its ``text``.

        Parameters
        ----------
        text
            The text.

        Returns
        -------
        Recipe
            The recipe.

        Raises
        ------
        RecipeError
            The text is not TOML, a key is not known, or a value is not valid. The message names the line.

        Examples
        --------
        >>> import virtualstack as vs
        >>> vs.Recipe.from_toml('files = ["data/*.nc"]').files
        ['data/*.nc']
        """
        try:
            found = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise RecipeError(f"the recipe is not TOML: {error}") from error
        known = [x.name for x in fields(cls) if x.name != "text"]
        for name in found:
            if name not in known:
                meant = did_you_mean(_OTHERWISE.get(name, name), known)
                raise _error(text, name, f"is not known.{meant} docs/reference/recipe.md lists the keys")
        if "files" not in found:
            raise RecipeError('the recipe has no files; add a line such as files = ["data/*.nc"]')
        return cls(**found, text=text.rstrip())

    @classmethod
    def read(cls, path: str | Path, /) -> Recipe:
        """Return the recipe in a file of TOML.

        Parameters
        ----------
        path
            Local path of the file.

        Returns
        -------
        Recipe
            The recipe.

        Raises
        ------
        RecipeError
            The file cannot be read, or is not a recipe.

        Examples
        --------
        >>> from pathlib import Path
        >>> import virtualstack as vs
        >>> n_bytes = Path("recipe.toml").write_text('files = ["data/*.nc"]')
        >>> vs.Recipe.read("recipe.toml").files
        ['data/*.nc']
        """
        try:
            return cls.from_toml(Path(path).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise RecipeError(f"the recipe '{path}' cannot be read: {error}") from error
        except RecipeError as error:
            error.add_note(f"in '{path}'")
            raise


def kept(recipe: Recipe, /) -> Recipe:
    """Return the recipe with absolute patterns, as a store keeps it: it may be used from another folder."""
    made = replace(recipe, files=[absolute_url(x) for x in recipe.files])
    if made.files == recipe.files:
        return recipe
    line = f"files = {_value(made.files)}"
    text = re.sub(r"(?ms)^\s*files\s*=\s*(\[.*?\]|\"[^\"]*\"|'[^']*')", lambda _: line, recipe.text, count=1)
    try:
        is_same = Recipe.from_toml(text) == made
    except RecipeError:
        is_same = False
    return replace(made, text=text if is_same else _toml(made))


# -- what it says about files -------------------------------------------------------------------------------


def covers(files: Sequence[str], url: str, /) -> bool:
    """Return whether a URL matches one of some absolute patterns, or is one of the URLs among them."""
    return any(fits_pattern(url, x) if is_pattern(x) else url == x for x in files)


def is_settled(recipe: Recipe, file: Location, seen: float, now: float, /) -> bool:
    """Return whether a file has not changed for long enough.

    ``seen`` is when its version was first listed; it counts if the file has no time, or one in the future.
    """
    modified = file.last_modified
    return now - (seen if modified is None or modified > now else modified) >= seconds(recipe.settle)


def check_labels(recipe: Recipe, dataset: xr.Dataset, /) -> None:
    """Refuse a dataset with labels that are not valid.

    Raises
    ------
    CombineError
        A label is missing or out of range, or the dataset does not have the coordinate.
    """
    url = dataset.encoding.get("source")
    for name, (least, most) in recipe.valid.items():
        variable = dataset.variables.get(name)
        if variable is None or virtual_array(variable) is not None:
            raise CombineError(f"'{url}' has no loaded coordinate '{name}', whose range is given", variable=name)
        values = np.atleast_1d(variable.values)
        like = values.dtype if values.dtype.kind in "mM" else None
        try:
            low, high = (np.asarray(x, like) for x in (least, most))
            wrong = values[~((values >= low) & (values <= high))]
        except (TypeError, ValueError) as error:
            raise CombineError(f"'{name}' of '{url}' cannot be compared: {error}", variable=name) from error
        if wrong.size:
            raise CombineError(
                f"'{url}' has {first_names([str(x) for x in wrong])} "
                f"as labels of '{name}', and valid ones are from {least} to {most}",
                variable=name,
                property="labels",
                right_url=url,
            )


def check_dimensions(recipe: Recipe, group: ManifestGroup, /) -> None:
    """Refuse a recipe for a store that lacks a dimension which it names.

    Raises
    ------
    RecipeError
        ``dim``, or a key of ``labels``, is no dimension of the store.
    """
    dims = dimensions_of(group)
    named = [("dim", recipe.dim)] * (recipe.dim is not None) + [("labels", x) for x in recipe.labels]
    for key, dim in named:
        if dim not in dims:
            raise _error(
                recipe.text, key, f"names '{dim}', which is no dimension; there are {first_names(sorted(dims))}"
            )


def dimensions_of(group: ManifestGroup, /) -> set[str]:
    """Return the names of all dimensions of a store."""
    return {x for _, node in group.walk() for array in node.arrays.values() for x in array.dimension_names or ()}


# -- what it names ------------------------------------------------------------------------------------------


def functions(recipe: Recipe, /) -> tuple[str, ...]:
    """Import paths of functions that the recipe names."""
    named = (recipe.preprocess, recipe.prefer, *recipe.new_dim.values())
    return tuple(x for x in named if isinstance(x, str) and _OBJECT.fullmatch(x))


def found_reader(recipe: Recipe, /) -> str | Reader | None:
    """Return the reader that the recipe names, with its options."""
    if not isinstance(recipe.reader, Mapping):
        return recipe.reader
    options = dict(recipe.reader)
    try:
        made = find_reader("", Storage.from_option(), options.pop("name", ""))
        return cast(Reader, replace(cast(Any, made), **options))
    except (ReaderError, TypeError, ValueError) as error:
        raise _error(recipe.text, "reader", f"is not a reader and its options: {error}") from error


def found_preprocess(recipe: Recipe, /) -> Callable[[xr.Dataset], xr.Dataset] | None:
    """Import the function of ``preprocess``."""
    return None if recipe.preprocess is None else _imported(recipe, "preprocess", recipe.preprocess)


def in_recipe(remedy: Remedy, /) -> str | None:
    """Return a remedy in the words of a recipe; ``None`` if it has no key for it."""
    given = dict(remedy.arguments)
    if given.get("duplicates") in ("first", "last"):
        given["prefer"] = given.pop("duplicates")
    if remedy.function is not None and not (given and "(" in remedy.function):
        return None
    if not given.keys() <= {x.name for x in fields(Recipe)}:
        return None
    known = {key: value for key, value in given.items() if value is not ...}
    try:
        Recipe(["*"], **known)
        json.dumps(known)
    except (RecipeError, TypeError, ValueError):  # such as join="inner", or a function
        return None
    return remedy.filled(" and ".join(x if y is ... else f"{x} = {json.dumps(y)}" for x, y in given.items()))


def found_prefer(recipe: Recipe, /) -> Prefer:
    """Return the rule of ``prefer``; a function is imported."""
    if recipe.prefer is None or recipe.prefer in ("first", "last", "newest"):
        return cast(Prefer, recipe.prefer)
    function = _imported(recipe, "prefer", recipe.prefer)

    def prefer(file: Candidate) -> Any:
        try:
            return function(file)
        except VirtualStackError:
            raise
        except Exception as error:  # code of the user may raise any error, and does not name the file
            raise CombineError(
                f"prefer= raised {type(error).__name__} for '{file.url}': {error}", property="prefer"
            ) from error

    return prefer


def found_new_dim(recipe: Recipe, /) -> dict[str, Labelling]:
    """Return the sources of labels of new dimensions."""
    return {dim: _labelling(recipe, dim, given) for dim, given in recipe.new_dim.items()}


def _labelling(recipe: Recipe, dim: str, given: Any) -> Labelling:
    if isinstance(given, str):
        return _imported(recipe, dim, given)
    try:
        match dict(given):
            case {"name": str(pattern), **rest} if rest.keys() <= {"format"}:
                return FromName(pattern, **rest)
            case {"attribute": str(name), **rest} if rest.keys() <= {"format"}:
                return FromAttribute(name, **rest)
    except ValueError as error:
        raise _error(recipe.text, dim, f"is not valid: {error}") from error
    raise _error(
        recipe.text,
        dim,
        'is a new dimension without a source; write {name = "..."}, {attribute = "..."} or an import path',
    )


def _imported(recipe: Recipe, key: str, path: str) -> Callable[..., Any]:
    module, _, name = path.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise _error(recipe.text, key, f"is {path!r}, which cannot be imported: {error}") from error
    return cast(Callable[..., Any], found)


def drafted(found: Survey, files: Sequence[str], reader: str | None = None, /) -> str:
    """Return a recipe for files as TOML, with what a survey of them found as comments."""
    times = found.table.dropna(subset=["first", "last"])
    doubles = len(found.duplicates)
    lines = [
        "# What 'virtualstack recipe init' found:",
        *(f"#   {line}" for line in filter(str.strip, found.text(most_lines=12).splitlines())),
    ]
    lines += ["", f"files = {_value(list(files))}"]
    lines.append(f"dim = {_value(found.dim)}" if found.dim else '# dim = "time"  # the dimension that grows')
    if reader is not None:
        lines.append(f"reader = {_value(reader)}")
    lines.append(
        f'prefer = "newest"  # {counted(doubles, "pair")} of files with the same labels'
        if doubles
        else '# prefer = "newest"  # of files with the same labels; without this, the later one is a misfit'
    )
    if found.dim and len(times):
        pair = [_label(times["first"].iloc[0]), _label(times["last"].iloc[-1])]
        lines.append(f"# valid.{_key(found.dim)} = {_value(pair)}  # labels of now; other labels make a file a misfit")
    lines += [
        *(
            [f'# expected.{_key(found.dim)} = {{every = "1h", late = "6h"}}  # what health compares']
            if found.dim
            else []
        ),
        "# retention = {keep = 100}  # delete older snapshots",
        '# settle = "10min"  # open a file when it has not changed for so long',
        '# sidecar = ".done"  # open a file when there is a file of this name and suffix',
        'join = "outer"  # files differ along several dimensions, and one night may bring only some of their labels'
        if any(line.startswith("along ") and " x " in line for line in found.plan)
        else '# join = "outer"  # add labels along other dimensions, such as steps of forecasts',
        '# preprocess = "module:function"  # gets the dataset of each file',
        '# misfit = "raise"  # commit nothing if a file does not fit; the default is "quarantine"',
    ]
    return "\n".join(lines)


def _label(text: str) -> float | str:
    """Return a label of a survey, which is text, as a number if it is one; whole numbers are without ``.0``."""
    try:
        number = float(text)
    except ValueError:
        return text
    return int(number) if number.is_integer() else number


def _is_duration(value: object) -> bool:
    try:
        return not isinstance(value, bool) and seconds(cast(Any, value)) >= 0
    except (TypeError, ValueError):
        return False


def _is_tolerance(value: object) -> bool:
    return value is None or _is_duration(value)


def _is_joining(value: object) -> bool:
    Fitting.from_options(join="exact", options=cast(Any, value), storage=Storage.from_option())
    return isinstance(value, Mapping)


def _is_text(value: object) -> bool:
    return value is None or (isinstance(value, str) and value != "")


def _is_texts(value: object) -> bool:
    return isinstance(value, Sequence) and all(isinstance(x, str) and x for x in value)


def _is_table(value: object) -> bool:
    return isinstance(value, Mapping)


def _words(words: Any) -> tuple[Callable[[object], bool], str]:
    known = get_args(words.__value__)
    return lambda value: value in known, f"one of {', '.join(map(repr, known))}"


def _is_bool(value: object) -> bool:
    return isinstance(value, bool)


_TEXT, _TABLE, _BOOL = (_is_text, "text"), (_is_table, "a table"), (_is_bool, "true or false")
_CHECKS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "files": (lambda x: _is_texts(x) and len(x) > 0, "a list of patterns and URLs"),
    "dim": _TEXT,
    "reader": (lambda x: _is_text(x) or _is_table(x), "the name of a reader, or a table with its name and options"),
    "group": _TEXT,
    "drop_variables": (_is_texts, "a list of names"),
    "decode_times": _BOOL,
    "unsupported": _words(Unsupported),
    "inline_limit": (lambda x: byte_count(x, option="inline_limit") >= 0, "a number of bytes"),
    "unpack": (lambda x: _is_bool(x) or x == "differing", "true, false or 'differing'"),
    "preprocess": (
        lambda x: x is None or _OBJECT.fullmatch(str(x)) is not None,
        "an import path such as 'module:function'",
    ),
    "new_dim": _TABLE,
    "labels": (lambda x: _is_table(x) and _is_texts(list(x.values())), "a table of names of variables"),
    "join": _words(JoinToStore),
    "tolerance": (_is_tolerance, "a number, or for dates text such as '1min'"),
    "combine_options": (_is_joining, "a table"),
    "prefer": (
        lambda x: x in (None, "first", "last", "newest") or _OBJECT.fullmatch(str(x)) is not None,
        "'first', 'last', 'newest' or an import path such as 'module:function'",
    ),
    "valid": (
        lambda x: _is_table(x) and all(isinstance(y, Sequence) and len(y) == 2 for y in x.values()),
        "a table of pairs: the least and the greatest label of a coordinate",
    ),
    "expected": (lambda x: _is_table(x) and expected_of(x) is not None, "a table of rules by dimension"),
    "settle": (_is_duration, "a number of seconds, or text such as '10min'"),
    "sidecar": _TEXT,
    "misfit": _words(Misfit),
    "retention": (
        lambda x: _is_table(x) and x.keys() <= {"keep", "days"} and all(type(n) is int and n > 0 for n in x.values()),
        "a table with keep, a number of snapshots, or days, or both",
    ),
    "relative": _BOOL,
    "checksums": _BOOL,
}
"""For each key, what tells whether a value is valid, and the valid values in words."""


_OTHERWISE = {
    "duplicates": "prefer",
    "concat_dim": "dim",
    "engine": "reader",
    "paths": "files",
    "urls": "files",
    **dict.fromkeys(("compat", "combine_attrs", "fill_value"), "combine_options"),
}
"""Keys by the names that other functions have for them."""


def _error(text: str, key: str, what: str) -> RecipeError:
    """Return an error that names a key, and its line if the recipe was a text."""
    pattern = re.compile(rf"^\s*\[*[\w.\"-]*?\b{re.escape(key)}\b")
    line = next((i for i, line in enumerate(text.splitlines(), 1) if pattern.match(line)), None)
    return RecipeError(f"'{key}' of the recipe{'' if line is None else f', in line {line},'} {what}")


def _toml(recipe: Recipe) -> str:
    """Return a recipe as TOML, without the values that are the default."""
    lines = []
    for each in fields(recipe):
        value = getattr(recipe, each.name)
        is_default = value == each.default or (
            not value and (each.default in ((), None) or callable(each.default_factory))
        )
        if each.name != "text" and not is_default:
            line, plain = f"{each.name} = {_value(value)}", _plain(value)
            try:
                is_same = repr(tomllib.loads(line.encode().decode())[each.name]) == repr(plain)  # nan is not nan
            except ValueError:  # a part of a character, for example
                is_same = False
            if not is_same:
                raise RecipeError(f"'{each.name}' of the recipe is {value!r}, which TOML cannot hold")
            lines.append(line)
    return "\n".join(lines)


def _plain(value: Any) -> Any:
    """Return a value with the types of TOML; dates are text."""
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(each) for each in value]
    if isinstance(value, date | np.datetime64):
        return str(value)
    return value.item() if isinstance(value, np.generic) else value


def _value(value: Any) -> str:
    """Return a value as TOML has it."""
    plain = _plain(value)
    if isinstance(plain, dict):
        return "{" + ", ".join(f"{_key(key)} = {_value(each)}" for key, each in plain.items()) + "}"
    if isinstance(plain, list):
        return f"[{', '.join(map(_value, plain))}]"
    if isinstance(plain, bool):
        return str(plain).lower()
    return _quoted(plain) if isinstance(plain, str) else repr(plain)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(text: str) -> str:
    return text if re.fullmatch(r"[A-Za-z0-9_-]+", text) else _quoted(text)
