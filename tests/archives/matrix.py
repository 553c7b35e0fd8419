"""The usual archives through the functions of xarray, joins and forms: ``python -m tests.archives.matrix``.

The table is docs/reference/usual-archives.md. A cell says what happens on the first try, without options: values are
right; or they are right with the option that the message names; or xarray raises an error on the opened files, too.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import shutil
import tempfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import xarray as xr

import virtualstack as vs
from tests.advice import command_options_named, options_named
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


@dataclass
class Outcome:
    """What became of a call: the options that its messages named, and either nothing more, or what is wrong."""

    options: list[str] = field(default_factory=list)
    error: BaseException | None = None
    expected_error: BaseException | None = None
    wrong: list[str] = field(default_factory=list)
    result: Any = None
    files: list[xr.Dataset] = field(default_factory=list)
    """What the files of a cube are, in their order."""

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
        return f"{self.cell}: {more}" if more else self.cell


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

FORMS = ("kerchunk", "icechunk", "vstack")
COLUMNS = (*CALLS, "open_mfdataset", "open_virtual_mfdataset", "build", *FORMS)


class Archive:
    """The files of an archive, and what was made of them so far."""

    def __init__(self, name: str, paths: Sequence[str], folder: Path) -> None:
        self.name, self.paths, self.folder = name, list(paths), folder
        self.group: str | None = None
        self._opened: dict[str | None, list[xr.Dataset]] = {}
        self._virtual: tuple[Outcome, list[xr.Dataset], dict[str, Any]] | None = None
        self.joined: Outcome | None = None

    def opened(self, group: str | None = None) -> list[xr.Dataset]:
        if group not in self._opened:
            self._opened[group] = [truth.opened(path, group=group) for path in self.paths]
        return [x.copy() for x in self._opened[group]]

    def virtual(self) -> tuple[Outcome, list[xr.Dataset], dict[str, Any]]:
        """Open each file as a virtual dataset, with the options that messages name."""
        if self._virtual is None:
            names, outcome, options = _parameters(vs.open_virtual_dataset), Outcome(), {}
            for _ in range(_TRIES):
                found, outcome.error, said = _result(
                    lambda: [vs.open_virtual_dataset(x, **options) for x in self.paths]  # noqa: B023 - called at once
                )
                if outcome.error is None and (not said or any(x.variables for x in found)):
                    break
                options = options | _first_new(options_named(said, names), options)
            outcome.options = _listed(options)
            self._virtual = outcome, found or [], options
        return self._virtual

    def outcome(self, column: str) -> Outcome:
        """Return what becomes of the archive in a column of the table."""
        if column in CALLS:
            return self._xarray(column)
        if column == "open_mfdataset":
            return self._open_mfdataset()
        if column == "open_virtual_mfdataset":
            return self._join()
        if column == "build":
            return self._build()
        return self._written(column)

    # -- xarray's functions ---------------------------------------------------------------------------------

    def _xarray(self, column: str) -> Outcome:
        opening, virtual, given = self.virtual()
        if opening.error is not None:
            return opening
        call, files = CALLS[column], self.opened(given.get("group"))
        outcome = self._followed(
            lambda options: call(self.name, list(virtual), **options),
            lambda: call(self.name, files),
            _parameters(_FUNCTIONS[column]),
            files[0],
        )
        outcome.options = [*opening.options, *outcome.options]
        return outcome

    def _open_mfdataset(self) -> Outcome:
        _, _, given = self.virtual()
        files, engines = self.opened(given.get("group")), {truth.own_engine(path)["engine"] for path in self.paths}

        def expected() -> xr.Dataset:
            if len(engines) > 1 or "group" in given:
                return xr.combine_by_coords(files)  # no engine opens all of them
            return xr.open_mfdataset(self.paths, **truth.own_engine(self.paths[0])).load()

        return self._followed(
            lambda options: xr.open_mfdataset(self.paths, engine="virtualstack", **options),
            expected,
            _parameters(xr.open_mfdataset) | _parameters(vs.open_virtual_dataset),
            files[0],
        )

    def _followed(
        self,
        tried: Callable[[dict[str, Any]], xr.Dataset],
        expected: Callable[[], xr.Dataset],
        names: set[str],
        file: xr.Dataset,
    ) -> Outcome:
        """Try a call, and again with the options that its messages name, until it gives what xarray gives."""
        outcome, options = Outcome(), {}
        truly, outcome.expected_error, _ = _result(expected)
        for _ in range(_TRIES):
            outcome.result, outcome.error, said = _result(lambda: tried(options))  # noqa: B023 - called at once
            named = _first_new(options_named(said, names), options)
            if outcome.error is None and (outcome.result.variables or not named):
                if outcome.expected_error is not None:
                    outcome.wrong = [f"xarray raises {outcome.expected_error!r}"]
                else:
                    outcome.wrong = [
                        *_not_virtual(outcome.result, file),
                        *truth.differences(_values(outcome.result), truly),
                    ]
                break
            if outcome.expected_error is not None or not named:
                break
            options = options | named
        outcome.options = _listed(options)
        return outcome

    # -- joins of virtualstack ------------------------------------------------------------------------------

    def _truth(self, options: dict[str, Any]) -> list[xr.Dataset]:
        return truth.without_duplicates(self.name, self.opened(options.get("group")), str(options.get("duplicates")))

    def _join(self) -> Outcome:
        if self.joined is not None:
            return self.joined
        names = _parameters(vs.open_virtual_mfdataset)
        outcome, options = Outcome(), {}
        for _ in range(_TRIES + 1):
            result, error, said = _result(lambda: vs.open_virtual_mfdataset(self.paths, **options))  # noqa: B023
            outcome.error, outcome.result = error, result
            if error is None and (len(result.variables) or not said):
                outcome.wrong = _not_virtual(result, self.opened(options.get("group"))[0])
                outcome.files = self._truth(options)
                outcome.wrong += truth.misplaced(self.name, _values(result), outcome.files)
                break
            if self.name == "cmip":  # labels of two calendars have no order
                _, outcome.expected_error, _ = _result(lambda: xr.combine_by_coords(self.opened()))
                break
            named = _first_new(options_named(said, names), options)
            if not named:
                break
            options = options | named
            outcome.options = _listed(options)
        self.joined = outcome
        return outcome

    def _build(self) -> Outcome:
        command, target = cli.commands["build"], self.folder / "cube.vstack"
        outcome, arguments = Outcome(), []
        for _ in range(_TRIES + 1):
            shutil.rmtree(target, ignore_errors=True)
            out, err = io.StringIO(), io.StringIO()
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                status = main(["build", *self.paths, "-o", str(target), *arguments])
            said = " ".join(err.getvalue().split())
            if status == 0 and target.exists():
                outcome.error = None
                keep = "last" if "--keep-last" in arguments else "first"
                group = arguments[arguments.index("--group") + 1] if "--group" in arguments else None
                files = truth.without_duplicates(self.name, self.opened(group), keep)
                with xr.open_dataset(target, engine="virtualstack") as cube:
                    outcome.wrong = truth.misplaced(self.name, cube.load(), files)
                break
            outcome.error = RuntimeError(said)
            if self.name == "cmip":
                _, outcome.expected_error, _ = _result(lambda: xr.combine_by_coords(self.opened()))
                break
            alternatives = [x for x in command_options_named(said, command) if not set(x) <= set(arguments)]
            if not alternatives:
                break
            arguments = arguments + alternatives[0]
            outcome.options = [" ".join(arguments)]
        return outcome

    # -- forms of references --------------------------------------------------------------------------------

    def _written(self, form: str) -> Outcome:
        joined = self._join()
        if joined.error is not None or joined.wrong:
            return Outcome(error=joined.error or RuntimeError("no cube"), expected_error=joined.expected_error)
        write = getattr(joined.result.virtual, f"to_{form}")
        names = _parameters(write)
        outcome, options = Outcome(), {}
        target = self.folder / {"kerchunk": "refs.parq", "icechunk": "repo.icechunk", "vstack": "x.vstack"}[form]
        for _ in range(_TRIES):
            shutil.rmtree(target, ignore_errors=True)
            _, error, said = _result(lambda: write(str(target), **options))  # noqa: B023
            outcome.error = error
            if error is None:
                found, error, _ = _result(lambda: _read(form, target, self.paths))
                outcome.error = error
                if error is None:
                    outcome.wrong = truth.misplaced(self.name, found, joined.files)
                break
            named = _first_new(options_named(said, names), options)
            if not named:
                break
            options = options | named
            outcome.options = _listed(options)
        return outcome


def _read(form: str, target: Path, paths: Sequence[str]) -> xr.Dataset:
    if form == "kerchunk":
        return xr.open_dataset(target, engine="virtualstack").load()
    return xr.open_dataset(target, engine="virtualstack").load()


def _parameters(function: Callable[..., Any]) -> set[str]:
    return {name for name, x in inspect.signature(function).parameters.items() if x.kind is not x.VAR_KEYWORD}


def _result(call: Callable[[], Any]) -> tuple[Any, BaseException | None, str]:
    """Return what a call gives or raises, and what it says in its error, or in warnings of virtualstack."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result, error = call(), None
        except Exception as raised:  # noqa: BLE001 - which of them is what the table says
            result, error = None, raised
    said = [str(x.message) for x in caught if x.category is UserWarning]
    return result, error, str(error) if error is not None else "\n".join(said)


def _values(dataset: xr.Dataset) -> xr.Dataset:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return dataset.load() if not _is_virtual(dataset) else dataset.virtual.open().load()


def _is_virtual(dataset: xr.Dataset) -> bool:
    return any(isinstance(x._data, vs.ManifestArray) for x in dataset.variables.values())


def _not_virtual(result: xr.Dataset, file: xr.Dataset) -> list[str]:
    """Say which large variables of a join have been loaded."""
    if not _is_virtual(result) and any("virtualstack" not in str(type(x._data)) for x in result.variables.values()):
        return []  # a lazy dataset
    large = [str(x) for x in file.data_vars if file[x].size * 2 > MAX_VIRTUAL_BYTES]
    return [f"{x} was loaded" for x in large if not isinstance(result[x].variable._data, vs.ManifestArray)]


def _first_new(alternatives: Sequence[dict[str, Any]], options: dict[str, Any]) -> dict[str, Any]:
    """Return the first alternative that is not among the options yet."""
    return next((x for x in alternatives if any(options.get(key) != value for key, value in x.items())), {})


def _listed(options: dict[str, Any]) -> list[str]:
    return [f"{key}={_shown(value)}" for key, value in options.items()]


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:56]}...{text[-1]}"


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
    from tests.archives.usual import make

    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        found = outcomes(lambda name: make(name, root / "files"), root / "made")
        for name, row in found.items():
            for column, outcome in row.items():
                print(f"{name:14} {column:24} {outcome}".replace(f"{root}/files/", "")[:400])
    PAGE.write_text(PAGE.read_text().split(_MARK)[0] + _MARK + table(found))
