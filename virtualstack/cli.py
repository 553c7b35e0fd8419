"""The command ``virtualstack``: build references, look into files and archives, list readers."""

from __future__ import annotations

from importlib.util import find_spec

if find_spec("pyproj") and find_spec("eccodes"):
    import pyproj  # noqa: F401 - a process that loads eccodes before pyproj aborts at exit

import argparse
import os
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from virtualstack import __version__
from virtualstack.accessor import rewrite_budget
from virtualstack.api.concurrently import concurrently
from virtualstack.api.one import account_for, read_options, select_group
from virtualstack.combine import How, combine_datasets
from virtualstack.dataset import groups_of, refusals_of, to_dataset
from virtualstack.engine import VirtualStackBackendEntrypoint
from virtualstack.errors import (
    CombineError,
    MissingDependencyError,
    ReaderError,
    StorageError,
    VirtualStackError,
)
from virtualstack.location import absolute_url
from virtualstack.manifests import FIRST, ManifestArray, ManifestGroup
from virtualstack.readers.base import ReadOptions
from virtualstack.readers.registry import Format, list_readers, load_reader
from virtualstack.sample import SAMPLES, sample_files
from virtualstack.scan import scan
from virtualstack.storage import Storage
from virtualstack.storage.listing import find_urls
from virtualstack.survey import survey
from virtualstack.verify import require_library, verify_against_files

__all__ = ["main"]

_SUFFIXES = ".json", ".parq", ".parquet"


def main(arguments: Sequence[str] | None = None, /) -> int:
    """Run the command and give its exit status: 0, 1 for an error, 2 for wrong usage, 130 for Ctrl-C.

    Parameters
    ----------
    arguments
        Those after the name of the command; ``sys.argv`` by default.
    """
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 - print() would take stdout instead
    if sys.stdout is None:
        _say("error", "stdout is closed, and nothing can be shown")
        return 1
    try:
        return _run(arguments)
    except _OutputError as error:
        # Python complains again when it closes the stream, if that still holds something.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error.__cause__, BrokenPipeError):
            return 141
        _say("error", str(error))
        return 1


class _OutputError(Exception):
    """Nothing can be written to stdout."""


def _run(arguments: Sequence[str] | None) -> int:
    try:
        options = _parser().parse_args(arguments)
    except SystemExit as stop:  # argparse has printed help, version or what is wrong
        _show("", end="")
        return int(stop.code or 0)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            status: int = options.run(options)
            return status
    except VirtualStackError as error:
        if options.debug:
            raise
        _say("error", str(error))
        return 1
    except KeyboardInterrupt:
        if options.debug:
            raise
        _say("error", "interrupted")
        return 130


def _parser() -> argparse.ArgumentParser:
    traceback = "show the traceback of an error"
    common = argparse.ArgumentParser(add_help=False)  # for --debug behind the command; what it leaves unsaid stays
    common.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help=traceback)
    parser = argparse.ArgumentParser(
        prog="virtualstack", description="Archive files as one virtual cube, with no byte copied."
    )
    parser.add_argument("--debug", action="store_true", help=traceback)
    parser.add_argument("--version", action="version", version=f"virtualstack {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    many = argparse.ArgumentParser(add_help=False)
    many.add_argument("--cache", metavar="DIR", help="keep what was found; the next call reads what has changed")
    many.add_argument(
        "--executor",
        choices=["threads", "processes"],
        help="who reads the files (default: threads for remote ones, one after the other for local ones)",
    )

    build = commands.add_parser("build", parents=[common, many], help="make references of files, joined to one cube")
    build.set_defaults(run=_build)
    samples = ", ".join(f"sample:{name}" for name in SAMPLES)
    build.add_argument("files", nargs="+", metavar="FILE", help=f"path, glob, URL, or sample ({samples}), in order")
    build.add_argument("-o", "--output", required=True, type=_output, help="refs.parq or refs.json")
    build.add_argument("--concat-dim", metavar="DIM", help="join along it (default: the unlimited dimension)")
    build.add_argument("--verify", action="store_true", help="compare every value with the source files")
    build.add_argument("--reader", metavar="NAME", help="see 'virtualstack readers' (default: found out)")
    build.add_argument("--group", metavar="PATH", help="group in the files (default: the root)")
    build.add_argument(
        "--drop-variable", metavar="NAME", action="append", default=[], help="leave out; may be repeated"
    )
    build.add_argument(
        "--unsupported",
        choices=["inline", "raise", "skip"],
        default="inline",
        help="what to do with a variable that cannot be referenced (default: inline its values if they are small)",
    )
    build.add_argument(
        "--unpack",
        choices=["all", "differing"],
        help="decode missing values, scale, offset and times in the chunks: of all variables, or where files differ",
    )
    build.add_argument(
        "--join",
        choices=["exact", "outer", "inner", "left", "right"],
        default="exact",
        help="which coordinates along other dimensions to keep where they differ (default: exact, an error)",
    )
    build.add_argument(
        "--tolerance", metavar="NUMBER", type=float, help="how far these coordinates may lie apart to be the same"
    )
    build.add_argument(
        "--on-error",
        choices=["raise", "skip"],
        default="raise",
        help="what to do with a file that cannot be opened; skip leaves it out with a warning (default: raise)",
    )
    build.add_argument(
        "--rewrite",
        metavar="BUDGET",
        type=_budget,
        help="encode anew, and put into the references, what kerchunk cannot take: 1%% of a variable, or 64MiB",
    )

    inspect = commands.add_parser("inspect", parents=[common], help="show variables, chunks, and where the bytes are")
    inspect.set_defaults(run=_inspect)
    inspect.add_argument("file", metavar="FILE", help="path or URL of a file, or of references")
    inspect.add_argument("--group", metavar="PATH", help="only this group and those in it")
    inspect.add_argument("--reader", metavar="NAME", help="see 'virtualstack readers' (default: found out)")

    survey = commands.add_parser(
        "survey", parents=[common, many], help="show what many files share, and what stands out"
    )
    survey.set_defaults(run=_survey)
    survey.add_argument(
        "files", nargs="+", metavar="FILE", help="path, glob or URL; @LIST for a file of such lines, @- for stdin"
    )
    survey.add_argument("--dim", metavar="DIM", help="dimension along which files follow each other (default: found)")
    survey.add_argument("--reader", metavar="NAME", help="see 'virtualstack readers' (default: found out)")
    survey.add_argument("--all", action="store_true", help="show every line, not the first ones of each part")
    survey.add_argument("--table", metavar="FILE", help="write one line a file to a table, as CSV")

    readers = commands.add_parser("readers", parents=[common], help="list formats, and what each one needs")
    readers.set_defaults(run=_readers)
    return parser


def _output(text: str) -> str:
    if not text.endswith(_SUFFIXES):
        raise argparse.ArgumentTypeError(f"'{text}' ends in none of {', '.join(_SUFFIXES)}")
    return text


def _budget(text: str) -> str:
    try:
        rewrite_budget(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


# -- build ----------------------------------------------------------------------------------------------------


def _build(options: argparse.Namespace) -> int:
    if options.verify and options.join != "exact":
        raise CombineError(f"--verify compares with files as they are, not with --join {options.join}; leave one out")
    urls = _expand(options.files)
    if options.verify:
        for url in urls:
            require_library(url)  # before anything is written
    opened = _open_all(urls, options)
    urls, datasets = list(opened), list(opened.values())
    dim = options.concat_dim or (_common_unlimited(datasets, urls) if len(urls) > 1 else None)
    left_out = sorted({name for dataset in datasets for name in groups_of(dataset)})
    if left_out:
        where = options.group or "/"
        print(
            f"virtualstack: note: groups {left_out} below '{where}' are left out; --group chooses one", file=sys.stderr
        )
    with _said_by_xarray(CombineError, "the files cannot be joined"):
        joined = datasets[0] if dim is None else _joined(datasets, urls, dim, options)
    joined.virtual.to_kerchunk(options.output, rewrite=options.rewrite)
    with _said_by_xarray(ReaderError, f"'{options.output}' is written, but cannot be decoded"):
        cube = xr.open_dataset(options.output, engine=VirtualStackBackendEntrypoint)
    with cube:
        _show(cube)
        sources = f"{len(urls)} file{'s' if len(urls) != 1 else ''}"
        _show(f"\n{options.output}: {joined.virtual.nrefs} references to {sources}")
        if not options.verify:
            return 0
        refused = (x for dataset in datasets for x in refusals_of(dataset) if x.kind == "refused")
        ignore = {*options.drop_variable, *(x.path.rsplit("/", 1)[-1] for x in refused)}
        found = verify_against_files(cube, urls, dim=dim, group=options.group, ignore=ignore, progress=_bar("verify"))
    _show(f"verified: {found}")
    for difference in found.differences:
        _say("error", str(difference))
    return 1 if found.differences else 0


def _open_all(urls: Sequence[str], options: argparse.Namespace) -> dict[str, xr.Dataset]:
    """Open files, all that can be opened where others are to be skipped."""
    found = scan(
        urls,
        reader=options.reader,
        executor=options.executor,
        on_error=options.on_error,
        cache=options.cache,
        progress=_bar("scan"),
        options=read_options(
            group=options.group, drop_variables=options.drop_variable, unsupported=options.unsupported
        ),
    )

    def attempt(root: ManifestGroup) -> xr.Dataset | VirtualStackError:
        try:
            return _opened(root, options)
        except (ReaderError, StorageError) as error:
            if options.on_error == "raise":
                raise
            return error

    outcomes = dict(zip(found.urls, concurrently(attempt, found, urls), strict=True))
    left_out = dict(found.errors) | {url: x for url, x in outcomes.items() if isinstance(x, Exception)}
    for url, error in left_out.items():
        if len(left_out) == len(urls):
            raise error
        _say("warning", f"left out '{url}': {error}")
    return {url: x for url, x in outcomes.items() if isinstance(x, xr.Dataset)}


def _opened(root: ManifestGroup, options: argparse.Namespace) -> xr.Dataset:
    node = select_group(root, options.group)
    account_for(node, options.unsupported, with_children=False)
    dataset = to_dataset(node, storage=Storage.of(None), unpack=options.unpack == "all")
    if not dataset.variables:
        raise ReaderError(
            f"there are no variables to reference in '{options.group or '/'}' of '{root.url}'; "
            f"'virtualstack inspect' shows all groups, and --group chooses another",
            url=root.url,
        )
    return dataset


def _joined(datasets: Sequence[xr.Dataset], urls: Sequence[str], dim: str, options: argparse.Namespace) -> xr.Dataset:
    for url, dataset in zip(urls, datasets, strict=True):
        if dim not in dataset.sizes:
            raise CombineError(
                f"'{url}' has no dimension '{dim}' to join along; it has {sorted(map(str, dataset.sizes))}",
                property="dimension",
                left=dim,
                left_url=url,
            )
    how = How.of(
        combine="nested",
        concat_dim=dim,
        join=options.join,
        tolerance=options.tolerance,
        unpack="differing" if options.unpack == "differing" else False,
    )
    return combine_datasets(datasets, how)


@contextmanager
def _said_by_xarray(kind: type[VirtualStackError], what: str) -> Iterator[None]:
    """Turn what xarray says of data (unknown calendars, lengths that clash) into one of our errors."""
    try:
        yield
    except ValueError as error:
        if isinstance(error, VirtualStackError):
            raise
        raise kind(f"{what}: {error}") from error


def _expand(files: Iterable[str]) -> list[str]:
    """Give absolute URLs: samples by name, what patterns match, all else as it is."""
    urls: list[str] = []
    for text in files:
        paths = sample_files(text)
        urls += find_urls([text]) if paths is None else map(absolute_url, paths)
    twice = [url for url, n in Counter(urls).items() if n > 1]
    if twice:
        raise CombineError(f"'{twice[0]}' is given {urls.count(twice[0])} times; give each file once")
    return urls


def _common_unlimited(datasets: Sequence[xr.Dataset], urls: Sequence[str]) -> str:
    unlimited = set.intersection(*({*map(str, x.encoding.get("unlimited_dims", ()))} for x in datasets))
    shared = set.intersection(*({*map(str, x.dims)} for x in datasets))
    candidates = sorted(unlimited & shared)
    if len(candidates) == 1:
        return candidates[0]
    if not shared:
        raise CombineError(
            f"the {len(urls)} files have no dimension in common to join them along", property="dimension"
        )
    what = f"{len(candidates)} unlimited dimensions {candidates}" if candidates else "no unlimited dimension"
    raise CombineError(
        f"the {len(urls)} files have {what} in common, so say which one to join them along: --concat-dim with one of "
        f"{candidates or sorted(shared)}",
        property="dimension",
    )


# -- inspect --------------------------------------------------------------------------------------------------

_COLUMNS = "variable", "dims", "dtype", "chunk", "codecs", "refs", "INLINE", "EMPTY", "MISSING", "bytes", "at", "source"
_RIGHT = {"refs", "INLINE", "EMPTY", "MISSING", "bytes"}


def _inspect(options: argparse.Namespace) -> int:
    (root,) = scan([options.file], reader=options.reader, options=ReadOptions(group=options.group))
    start = select_group(root, options.group)
    sources: dict[str, int | None] = {}
    rows: list[tuple[str, ...]] = [_COLUMNS]
    for path, group in start.walk("/" + options.group.strip("/") if options.group else ""):
        rows += [_row(f"{path}/{name}" if path else name, array, sources) for name, array in group.arrays.items()]
    _show("\n".join(_table(rows, right=_RIGHT)))
    _print_sources(sources)
    _print_refusals(start)
    return 0


def _row(name: str, array: ManifestArray, sources: dict[str, int | None]) -> tuple[str, ...]:
    """Describe one array; its sources are added to those that others have."""
    manifest = array.in_memory().compact()
    count = manifest.summary()
    dims = array.dimension_names or tuple("?" * array.ndim)
    entries = manifest.entries[manifest.entries["location"] >= FIRST]
    span = f"{entries['offset'].min()}-{(entries['offset'] + entries['length']).max()}" if entries.size else "-"
    for location in manifest.locations:
        sources.setdefault(location.url, location.size)
    numbers = sorted(list(sources).index(location.url) + 1 for location in manifest.locations)
    codecs = {" + ".join(x.name.removeprefix("numcodecs.") for x in e.codecs) or "none" for e in manifest.encodings}
    return (
        name,
        " ".join(f"{dim}={n}" for dim, n in zip(dims, array.shape, strict=True)) or "scalar",
        str(array.dtype),
        " x ".join(map(_axis, array.grid.axes)) or "1",
        "; ".join(sorted(codecs)) or "-",
        *(f"{n:,}" for n in (count.n_references, count.n_inline, count.n_empty, count.n_missing, count.nbytes)),
        span,
        _ranges(numbers) or "-",
    )


def _axis(axis: Any) -> str:
    if axis.is_regular:
        return str(axis.chunk)
    lengths = np.unique(axis.lengths())
    return f"{lengths[0]}..{lengths[-1]}"


def _ranges(numbers: Sequence[int]) -> str:
    """Write sorted numbers with runs drawn together: ``1-3,7``."""
    runs: list[list[int]] = []
    for n in numbers:
        if runs and runs[-1][-1] == n - 1:
            runs[-1] = [runs[-1][0], n]
        else:
            runs.append([n])
    return ",".join("-".join(map(str, run)) for run in runs)


def _print_sources(sources: dict[str, int | None]) -> None:
    if sources:
        _show("\nsources (the column 'at' gives the first byte, and the one after the last, in them)")
        listed = [(str(i), url, "" if n is None else f"{n:,} bytes") for i, (url, n) in enumerate(sources.items(), 1)]
        _show("\n".join(f"  {line}" for line in _table(listed, right=())))


def _print_refusals(start: ManifestGroup) -> None:
    refusals = [refusal for _, group in start.walk() for refusal in group.refusals]
    if refusals:
        _show("\nnot taken over as references")
        _show("\n".join(f"  {line}" for line in _table([(x.path, x.kind, x.reason) for x in refusals], right=())))


# -- survey ---------------------------------------------------------------------------------------------------


def _survey(options: argparse.Namespace) -> int:
    found = survey(
        [file for text in options.files for file in _listed(text)],
        reader=options.reader,
        executor=options.executor,
        cache=options.cache,
        progress=_bar("scan"),
        dim=options.dim,
    )
    _show(found.text() if options.all else found)
    if options.table:
        try:
            found.table.to_csv(options.table, index=False)
        except OSError as error:
            raise StorageError(f"'{options.table}' cannot be written: {error}", url=options.table) from error
    return 1 if len(found.failures) else 0


def _listed(text: str) -> list[str]:
    """Give the lines of a list that are not empty, or the argument if it is none."""
    if not text.startswith("@"):
        return [text]
    if text == "@-" and sys.stdin is None:
        raise StorageError("the list '-' cannot be read: stdin is closed", url="-")
    try:
        lines = sys.stdin.read() if text == "@-" else Path(text[1:]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise StorageError(f"the list '{text[1:]}' cannot be read: {error}", url=text[1:]) from error
    return [line for line in map(str.strip, lines.splitlines()) if line]


# -- readers --------------------------------------------------------------------------------------------------


def _readers(options: argparse.Namespace) -> int:
    rows = [("name", "format", "suffixes", "pip extra", "installed")]
    rows += [(x.name, x.title, " ".join(x.suffixes), x.extra or "-", _installed(x)) for x in list_readers()]
    _show("\n".join(_table(rows, right=())))
    return 0


def _installed(row: Format) -> str:
    if row.target is None:
        return "not read yet"
    try:
        load_reader(row)
    except MissingDependencyError:
        return "no"
    return "yes"


# -- what people see ------------------------------------------------------------------------------------------


def _table(rows: Sequence[tuple[str, ...]], *, right: Iterable[str]) -> list[str]:
    """Align columns, those whose heading is in ``right`` at the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    at_right = [heading in right for heading in rows[0]]
    return [
        "  ".join(
            cell.rjust(width) if is_right else cell.ljust(width)
            for cell, width, is_right in zip(row, widths, at_right, strict=True)
        ).rstrip()
        for row in rows
    ]


def _bar(label: str, width: int = 30) -> Callable[[int, int], None]:
    """Give what draws a progress bar on a terminal, and nothing elsewhere."""

    def show(done: int, total: int) -> None:
        if sys.stderr.isatty():
            filled = width * done // max(total, 1)
            end = "\n" if done == total else ""
            print(f"\r{label} [{'#' * filled:.<{width}}] {done}/{total}", end=end, file=sys.stderr, flush=True)

    return show


def _show(text: object, *, end: str = "\n") -> None:
    """Print to stdout at once."""
    line = f"{text}{end}"  # this may read data, and fail for other reasons
    try:
        print(line, end="", flush=True)
    except OSError as error:
        raise _OutputError(f"stdout cannot be written: {error}") from error


def _say(kind: str, text: str) -> None:
    """Print one line to stderr, over what a progress bar has left."""
    clear = "\r\x1b[K" if sys.stderr.isatty() else ""
    print(f"{clear}virtualstack: {kind}: {' '.join(text.split())}", file=sys.stderr)


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    _say("warning", str(message))
