"""The usual archives through the functions of xarray, joins and forms: ``python -m tests.archives.matrix``.

The table is docs/reference/usual-archives.md. A cell says what happens on the first try, without options: values are
right; or they are right with the option that the message names; or xarray raises an error on the opened files, too.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import re
import shlex
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import xarray as xr

import virtualstack as vs
from tests.advice import JOIN, command_options_named, options_named
from tests.archives import truth
from virtualstack.cli.command import main
from virtualstack.cli.group import cli

ARCHIVES = {
    "era5": "ERA5, months packed as int16",
    "cmip-members": "CMIP6, two members",
    "cmip": "CMIP6, two models with other calendars",
    "goes-scenes": "GOES scenes with a gap",
    "goes": "GOES scenes with a duplicate",
    "wrf": "WRF output",
    "nemo": "NEMO tiles",
    "hdfeos": "HDF-EOS5 swath",
    "forecast": "GRIB, f000 to f024",
    "cog": "COG scenes",
    "mixed": "netCDF-4 beside zarr",
    "trajectories": "ragged trajectories",
}
"""Archives of the table, and what it calls them."""

_DIMS: dict[str, str | list[str]] = {
    "era5": "valid_time",
    "cmip-members": ["variant_label", "time"],
    "cmip": ["source_id", "variant_label", "time"],
    "goes": "t",
    "goes-scenes": "t",
    "wrf": "Time",
    "nemo": ["y", "x"],
    "hdfeos": "nTimes",
    "forecast": "step",
    "cog": "time",
    "mixed": "time",
    "trajectories": "obs",
}
"""Dimensions along which a user of xarray joins the files of an archive."""
_LENGTHS = {"cmip-members": [2], "cmip": [2, 2], "nemo": [3]}
"""Numbers of files of the lists, innermost first, into which such a user puts the files."""

MAX_VIRTUAL_BYTES = 1 << 20
"""Variables of a file with more bytes stay virtual."""

RAISED = "error"
"""The cell of an error that xarray raises on the opened files, too."""

_TRIES = 3
_MAX_TRIES_OF_ADVICE = 16

type Options = dict[Any, Any]
"""Options of a function by name; options of the command as keys, each with its value."""


@dataclass
class Try:
    """What a call gives with some options: values that are wrong, or an error; and the options that are named."""

    result: Any = None
    error: BaseException | None = None
    wrong: list[str] = field(default_factory=list)
    files: list[xr.Dataset] = field(default_factory=list)
    """What the files of a cube are, in their order."""
    named: list[Options] = field(default_factory=list)

    @property
    def is_done(self) -> bool:
        return self.error is None and not self.named


@dataclass
class Outcome(Try):
    """What became of a call when the options that its messages name were followed."""

    options: list[str] = field(default_factory=list)
    expected_error: BaseException | None = None

    @property
    def is_right(self) -> bool:
        return not self.wrong and (self.error is None or self.expected_error is not None)

    @property
    def cell(self) -> str:
        if self.wrong:
            return "wrong"
        if self.error is not None:
            return RAISED if self.expected_error is not None else "stuck"
        return "right with " + ", ".join(f"`{x}`" for x in self.options) if self.options else "right"

    def __str__(self) -> str:
        more = "; ".join(self.wrong[:3]) if self.wrong else str(self.error or "")
        tried = f" after {', '.join(self.options)}" if self.options and not self.is_right else ""
        return f"{self.cell}{tried}: {more}" if more else self.cell


def follow(call: Callable[[Options], Try]) -> Outcome:
    """Call without options, and then with the first new ones that the message names."""
    options: Options = {}
    for _ in range(_TRIES + 1):
        tried = call(options)
        new = next(_new(tried, options), None)
        if tried.is_done or new is None:
            break
        options = options | new
    return Outcome(tried.result, tried.error, tried.wrong, tried.files, options=[_shown(*x) for x in options.items()])


def follow_all(call: Callable[[Options], Try]) -> Iterator[tuple[Options, Try]]:
    """Call with all options to which messages lead, and give those with which the call ends in a result."""
    waiting: list[Options] = [{}]
    known: list[Options] = []
    while waiting and len(known) < _MAX_TRIES_OF_ADVICE:
        options = waiting.pop(0)
        known.append(options)
        tried = call(options)
        if tried.is_done:
            yield options, tried
            continue
        for new in _new(tried, options):
            if options | new not in [*known, *waiting] and len(options) < _TRIES:
                waiting.append(options | new)


def _new(tried: Try, options: Options) -> Iterator[Options]:
    return (x for x in tried.named if any(options.get(key, options) != value for key, value in x.items()))


def _shown(name: str | tuple[str, ...], value: Any) -> str:
    """Return an option as it is typed; budgets depend on the version of a compressor."""
    if name == JOIN:
        return f"{JOIN}(..., {', '.join(_shown(*x) for x in value.items())})"
    text = shlex.join(name) if isinstance(name, tuple) else f"{name}={value!r}"
    return re.sub(r"\d+(%|MB)", r"N\1", text).replace(", format=None", "")


def nested(name: str, items: Sequence[Any]) -> list[Any]:
    """Put the files of an archive into lists of lists, as ``combine_nested`` takes them."""
    for n in _LENGTHS.get(name, []):
        items = [list(items[i : i + n]) for i in range(0, len(items), n)]
    return list(items)


def _inner(name: str, items: Sequence[Any]) -> tuple[list[Any], str]:
    """Return what ``concat`` joins along one dimension: the innermost list."""
    dims, found = _DIMS[name], nested(name, items)
    for _ in _LENGTHS.get(name, []):
        found = found[0]
    return found, dims if isinstance(dims, str) else dims[-1]


CALLS: dict[str, Callable[..., Any]] = {
    "combine_nested": lambda name, items, **options: xr.combine_nested(
        nested(name, items), concat_dim=_DIMS[name], **options
    ),
    "combine_by_coords": lambda name, items, **options: xr.combine_by_coords(items, **options),
    "concat": lambda name, items, **options: xr.concat(*_inner(name, items), **options),
    "merge": lambda name, items, **options: xr.merge(items, **options),
}
"""xarray's functions, as users call them on a list of datasets."""
_FUNCTIONS = {
    "combine_nested": xr.combine_nested,
    "combine_by_coords": xr.combine_by_coords,
    "concat": xr.concat,
    "merge": xr.merge,
}


def _parameters(function: Callable[..., Any]) -> set[str]:
    return {name for name, x in inspect.signature(function).parameters.items() if x.kind is not x.VAR_KEYWORD}


_OPENING = _parameters(vs.open_virtual_dataset)
FORMS = ("kerchunk", "icechunk", "vstack")
COLUMNS = (*CALLS, "open_mfdataset", "open_virtual_mfdataset", "build", *FORMS)


class Archive:
    """The files of an archive, and what was made of them so far."""

    def __init__(self, name: str, paths: Sequence[str], folder: Path) -> None:
        self.name, self.paths, self.folder = name, list(paths), folder
        self._opened: dict[str | None, list[xr.Dataset]] = {}

    def opened(self, group: str | None = None) -> list[xr.Dataset]:
        """Return what the formats' own libraries read."""
        if group not in self._opened:
            self._opened[group] = [truth.opened(path, group=group) for path in self.paths]
        return [x.copy() for x in self._opened[group]]

    def opened_virtually(self, options: Options) -> Try:
        """Open each file as a virtual dataset."""
        found, error, said = _result(lambda: [vs.open_virtual_dataset(x, **options) for x in self.paths])
        is_empty = error is not None or not any(x.variables for x in found)
        named = options_named(said, _OPENING) if is_empty else []
        return Try(found, error, files=self.opened(options.get("group")), named=named)

    @cached_property
    def virtual(self) -> Outcome:
        """The files opened as virtual datasets, with the options that messages name."""
        return follow(self.opened_virtually)

    @cached_property
    def joined(self) -> Outcome:
        """The cube of ``open_virtual_mfdataset``."""
        return self._excused(follow(self.join))

    def outcome(self, column: str) -> Outcome:
        """Return what becomes of the archive in a column of the table."""
        if column in CALLS:
            return self._xarray(column)
        if column == "open_mfdataset":
            return self._open_mfdataset()
        if column == "open_virtual_mfdataset":
            return self.joined
        return self._excused(follow(self.build)) if column == "build" else self._written(column)

    def _xarray(self, column: str) -> Outcome:
        opened, function = self.virtual, CALLS[column]
        if opened.error is not None:
            return opened

        def call(**options: Any) -> xr.Dataset:
            if JOIN in options:
                return vs.open_virtual_mfdataset(self.paths, **options[JOIN])
            of_opening = {key: options.pop(key) for key in list(options) if key in _OPENING}
            files = self.opened_virtually(of_opening).result if of_opening else opened.result
            return function(self.name, list(files), **options)

        names = _parameters(_FUNCTIONS[column]) | _OPENING | {JOIN}
        outcome = self._compared(call, lambda: function(self.name, opened.files), names)
        outcome.options = [*opened.options, *outcome.options]
        return outcome

    def _open_mfdataset(self) -> Outcome:
        engines = {truth.own_engine(path)["engine"] for path in self.paths}

        def expected() -> xr.Dataset:
            if len(engines) > 1 or self.name == "hdfeos":
                return xr.combine_by_coords(self.virtual.files)  # no engine opens all of them
            return xr.open_mfdataset(self.paths, **truth.own_engine(self.paths[0])).load()

        return self._compared(
            lambda **options: xr.open_mfdataset(self.paths, engine="virtualstack", **options),
            expected,
            _parameters(xr.open_mfdataset) | _OPENING,
        )

    def _compared(
        self, call: Callable[..., xr.Dataset], expected: Callable[[], xr.Dataset], names: set[str]
    ) -> Outcome:
        """Follow a call, and compare it with what xarray gives or raises for the files that other libraries opened."""
        truly, its_error, _ = _result(expected)

        def attempt(options: Options) -> Try:
            result, error, said = _result(lambda: call(**options))
            if error is not None:
                return Try(error=error, named=[] if its_error is not None else options_named(said, names))
            if its_error is not None:
                return Try(result, wrong=[f"xarray raises {its_error!r}"])
            return Try(result, wrong=_loaded(result, self.virtual.files[0]) + truth.differences(_values(result), truly))

        outcome = follow(attempt)
        outcome.expected_error = its_error
        return outcome

    def join(self, options: Options) -> Try:
        """Join the files with ``open_virtual_mfdataset``."""
        result, error, said = _result(lambda: vs.open_virtual_mfdataset(self.paths, **options))
        named = options_named(said, _parameters(vs.open_virtual_mfdataset))
        if error is not None or (named and not result.variables):
            return Try(result, error, named=named)
        files = self._files(options.get("group"), str(options.get("duplicates")), options.get("drop_variables", ()))
        wrong = _loaded(result, files[0]) + truth.misplaced(self.name, _values(result), files)
        return Try(result, wrong=wrong, files=files)

    def build(self, options: Options) -> Try:
        """Join the files with the command ``build``."""
        target, err = self.folder / "cube.vstack", io.StringIO()
        shutil.rmtree(target, ignore_errors=True)
        arguments = [x for option in options for x in option]
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(err):
            status, error, _ = _result(lambda: main(["build", *self.paths, "-o", str(target), *arguments]))
        if status != 0 or not target.exists():
            said = " ".join(err.getvalue().split())
            return Try(error=error or RuntimeError(said), named=command_options_named(said, cli.commands["build"]))
        group = next((x[1] for x in options if x[0] == "--group"), None)
        keep = "last" if ("--keep-last",) in options else "first"
        files = self._files(group, keep, [x[1] for x in options if x[0] == "--drop-variable"])
        with xr.open_dataset(target, engine="virtualstack") as cube:
            return Try(wrong=truth.misplaced(self.name, cube.load(), files), files=files)

    def _files(self, group: str | None, keep: str, dropped: Sequence[str]) -> list[xr.Dataset]:
        files = truth.without_duplicates(self.name, self.opened(group), keep)
        return [x.drop_vars(dropped, errors="ignore") for x in files]

    def _excused(self, outcome: Outcome) -> Outcome:
        """Note the error that xarray raises on the same files, unless an option was tried in vain."""
        if outcome.error is not None and not outcome.options:
            _, outcome.expected_error, _ = _result(lambda: CALLS["combine_nested"](self.name, self.opened()))
        return outcome

    def _written(self, form: str) -> Outcome:
        joined = self.joined
        if joined.error is not None or joined.wrong:
            return Outcome(error=joined.error or RuntimeError("no cube"), expected_error=joined.expected_error)
        write, target = getattr(joined.result.virtual, f"to_{form}"), self.folder / f"cube.{_SUFFIXES[form]}"

        def call(options: Options) -> Try:
            shutil.rmtree(target, ignore_errors=True)
            _, error, said = _result(lambda: write(str(target), **options))
            if error is None:
                found, error, _ = _result(lambda: xr.load_dataset(target, engine="virtualstack"))
            if error is not None:
                return Try(error=error, named=options_named(said, _parameters(write)))
            return Try(wrong=truth.misplaced(self.name, found, joined.files))

        return follow(call)


_SUFFIXES = {"kerchunk": "parq", "icechunk": "icechunk", "vstack": "vstack"}


def _result(call: Callable[[], Any]) -> tuple[Any, BaseException | None, str]:
    """Return what a call gives or raises, and what it says in its error, or in warnings of virtualstack."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result, error = call(), None
        except Exception as raised:  # noqa: BLE001 - which of them is what the table says
            result, error = None, raised
    said = [str(x.message) for x in caught if x.category is UserWarning]
    return result, error, "\n".join(said if error is None else [*said, str(error)])


def _values(dataset: xr.Dataset) -> xr.Dataset:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return dataset.load() if not _is_virtual(dataset) else dataset.virtual.open().load()


def _is_virtual(dataset: xr.Dataset) -> bool:
    return any(isinstance(x._data, vs.ManifestArray) for x in dataset.variables.values())


def _loaded(result: xr.Dataset, file: xr.Dataset) -> list[str]:
    """Say which large variables of a virtual dataset have been loaded."""
    if not _is_virtual(result):
        return []
    large = [x for x in file.data_vars if file[x].size * 2 > MAX_VIRTUAL_BYTES]
    return [f"{x} was loaded" for x in large if not isinstance(result[x].variable._data, vs.ManifestArray)]


type Outcomes = dict[str, dict[str, Outcome]]


def outcomes(paths: Callable[[str], list[str]], folder: Path, names: Sequence[str] = tuple(ARCHIVES)) -> Outcomes:
    """Return what becomes of each archive in each column."""
    found = {}
    for name in names:
        here = folder / name
        here.mkdir(parents=True, exist_ok=True)
        archive = Archive(name, paths(name), here)
        found[name] = {column: archive.outcome(column) for column in COLUMNS}
    return found


# -- the page -------------------------------------------------------------------------------------------------

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "usual-archives.md"
_MARK = "<!-- table -->\n"


def table(found: Outcomes) -> str:
    """Return the part of the page that a run makes: a count, the table, and the options that messages name."""
    notes: list[str] = []
    rows = [f"| Archive | {' | '.join(f'`{column}`' for column in COLUMNS)} |", "| --- |" + " --- |" * len(COLUMNS)]
    for name, row in found.items():
        cells = []
        for outcome in row.values():
            text = outcome.cell.partition(" with ")
            if text[2] and text[2] not in notes:
                notes.append(text[2])
            cells.append(text[0] + (f" ({notes.index(text[2]) + 1})" if text[2] else ""))
        rows.append(f"| {ARCHIVES[name]} | {' | '.join(cells)} |")
    cells = [outcome for row in found.values() for outcome in row.values()]
    n_plain = sum(x.cell == "right" for x in cells)
    n_raised = sum(x.cell == RAISED for x in cells)
    count = f"Of {len(cells)} cells, {n_plain} are right without an option, and {n_raised} are errors of xarray, too."
    named = "\n".join(f"{number}. {note}" for number, note in enumerate(notes, 1))
    return f"{count}\n\n" + "\n".join(rows) + f"\n\nThe options that the messages name:\n\n{named}\n"


def written(page: str) -> str:
    """Return the part of the page that a run makes."""
    return page.split(_MARK)[1]


if __name__ == "__main__":
    from virtualstack.loading import before_eccodes

    before_eccodes()
    from tests.archives.usual import make

    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        found = outcomes(lambda name: make(name, root / "files"), root / "made")
        for name, row in found.items():
            for column, outcome in row.items():
                print(f"{name:14} {column:24} {outcome}".replace(f"{root}/files/", "")[:400])
    PAGE.write_text(PAGE.read_text().split(_MARK)[0] + _MARK + table(found))
