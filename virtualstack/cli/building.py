"""The work of ``virtualstack build`` and ``append``: join files, write the cube, compare it with its files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import click
import pandas as pd
import xarray as xr

from virtualstack import accessor  # noqa: F401 - registers vds.virtual
from virtualstack.cli.facts import dry_facts, dry_text, maybe_dry, plain
from virtualstack.cli.files import Files, expand, open_scanned, open_trees, scan_files
from virtualstack.cli.output import report, say, show, step, wants_progress, worded
from virtualstack.combine.addition import growing_dimension
from virtualstack.combine.datasets import CombineOptions, combine_trees_with_plan, combine_with_plan
from virtualstack.conversion import ICECHUNK, STORE
from virtualstack.dataset import get_groups_below, get_refusals
from virtualstack.errors import (
    CombineError,
    MissingDependencyError,
    ReaderError,
    SourceNotFoundError,
    StorageError,
    UnsupportedFeatureError,
    VirtualStackError,
    WriterError,
)
from virtualstack.formats.registry import find_reader, list_readers
from virtualstack.kerchunk.references import is_one_file
from virtualstack.location import absolute_url, local_path
from virtualstack.manifests import ManifestGroup
from virtualstack.manifests.chunk_map import count_sources
from virtualstack.options import OnAbsent
from virtualstack.planning import FileFacts, Plan
from virtualstack.planning.dimension import main_dimension
from virtualstack.planning.gaps import missing_steps
from virtualstack.planning.groups import declared_facts
from virtualstack.printable import counted, did_you_mean, first_names
from virtualstack.readers import ReadOptions
from virtualstack.scanning.one import read_one
from virtualstack.scanning.result import ScanResult
from virtualstack.sizes import human_bytes
from virtualstack.storage import Storage, StorageLike
from virtualstack.storage.source import DirectoryError
from virtualstack.storage.threads import concurrently
from virtualstack.verify import Verification, require_library, verify_against_files

_COMPARABLE = "hdf5", "netcdf3", "zarr"
"""Names of readers of the formats that ``--verify`` can compare: of zarr, zip archives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Build(Files):
    """Arguments and options of the command; see its help."""

    output: str
    how: dict[str, Any]
    overwrite: bool
    append_dim: str | None
    is_append: bool
    verify: bool
    join: Literal["exact", "outer", "inner", "left", "right"]
    tolerance: float | pd.Timedelta | None
    expand: tuple[str, ...]
    rewrite: str | None
    absent: OnAbsent | None
    message: str | None
    relative: bool
    checksums: bool
    as_json: bool

    @property
    def is_part(self) -> bool:
        """Whether a reader may take all files as parts of one index: not if the user says how they are joined."""
        asked = (self.how[name] for name in ("concat_dim", "new_dim", "labels", "duplicates"))
        return not (self.is_in_order or any(asked))

    @property
    def is_in_order(self) -> bool:
        """Whether files are joined in the given order."""
        return bool(self.how["combine"] == "nested")

    @property
    def form(self) -> str:
        """Suffix of the form of the output, or an empty text for kerchunk references."""
        name = self.output.rstrip("/")
        return next((x for x in (STORE, ICECHUNK) if name.endswith(x)), "")


def run(options: Build, /) -> int:
    """Build the cube, and return the exit status."""
    urls = expand(options.files, options.storage, is_dry=options.dry_run)
    _check_options(options)
    _check_output(urls, options)
    if options.verify:
        _check_comparable(urls, options)
    stored = _stored(options) if options.is_append else None
    if stored is not None and options.append_dim is None:
        options = replace(options, append_dim=growing_dimension(stored))
    is_tree = stored is not None and bool(stored.groups)
    with step(f"scan {counted(len(urls), 'file')}"):
        scanned = scan_files(urls, options, is_tree=is_tree)
    opened: list[Any] = open_trees(scanned, options) if is_tree else open_scanned(scanned, options)
    urls = [*scanned.urls] if is_tree or scanned.are_parts_of_one else [x.encoding["source"] for x in opened]
    nodes = [node.to_dataset() for tree in opened for node in tree.subtree] if is_tree else opened
    _check_expanded(nodes, options)
    left_out = set() if is_tree else sorted({name for dataset in opened for name in get_groups_below(dataset.encoding)})
    if left_out:
        say("note", f"groups {left_out} below '{options.group or '/'}' are left out; choose one with --group")
    dim = _dim_in_order(scanned, options) if options.is_in_order else None
    with step("join the files"), _said_by_xarray(CombineError, "the files cannot be joined"):
        joined, plan = _joined(opened, options, dim)
    if not is_tree and scanned.are_parts_of_one:  # the reader has joined the files
        growing = joined.indexes.keys() & joined.encoding.get("unlimited_dims", ())
        found = [missing_steps(name, [joined.indexes[name]]) for name in growing]
        plan = replace(plan, gaps=tuple(gap for gaps in found if not isinstance(gaps, str) for gap in gaps))
    if len(urls) > 1:
        for note in plan.notes([FileFacts(source=url) for url in urls]):
            say("note", worded(note))
    if not is_tree:
        known = {x for dataset in opened for x in get_refusals(dataset)}
        for one in dict.fromkeys(x for x in get_refusals(joined) if x not in known):
            say("note", f"'{one.path}' {one.reason}")
    new = options.how["new_dim"]
    along = ", ".join((*new, *(x for x in plan.dims if x not in new))) or dim
    if options.expand and not (along or options.append_dim):
        raise click.UsageError("--expand needs the dimension that variables get. Name it with --concat-dim")
    if options.verify:
        urls_in_order = _to_verify(urls, plan, options, along)
    allow = sorted({*options.allow, *(f"{url.rpartition('/')[0]}/" for url in urls)})
    facts: dict[str, Any] = {
        "target": options.output,
        "files": len(urls),
        "references": joined.virtual.nrefs,
        "stored_bytes": int(joined.virtual.locations["bytes"].sum()),
        "along": along or options.append_dim,
        **_content(joined),
        "verified": None,
        "dry_run": None,
    }
    with maybe_dry(options.dry_run) as record, step(f"write '{options.output}'"):
        _write(joined, options, allow)
    if record is not None:
        facts["dry_run"] = dry_facts(record)
        report(lambda: facts, lambda: f"{dry_text(record, options.output)}\n{_told(facts)}", as_json=options.as_json)
        return 0
    with _said_by_xarray(ReaderError, f"'{options.output}' is written, but cannot be decoded"):
        read = ReadOptions.from_options(is_tree=is_tree, allow=allow)
        written, storage = read_one(options.output, storage=options.storage, options=read)
        open_cube: Any = xr.open_datatree if is_tree else xr.open_dataset
        decodes = not options.no_decode_times
        cube = open_cube(written, engine="virtualstack", storage=storage, decode_times=decodes)
    if options.form != STORE and not options.is_append:  # some chunks may have been rewritten
        facts |= _referred(written, options.output)
    with cube:
        facts |= _content(cube)
        if not options.as_json:
            show(cube)
            show(f"\n{_told(facts)}\n{_gained(facts['stored_bytes'], options.output)}")
        if options.verify:
            verified = _verified(cube, opened, urls_in_order, along, options)
    if options.verify:
        facts["verified"] = {
            "variables": list(verified.variables),
            "differences": [plain(x) for x in verified.differences],
        }
        if not options.as_json:
            show(f"verified: {verified}")
        for difference in verified.differences:
            say("error", str(difference))
    if options.as_json:
        report(lambda: facts, str, as_json=True)
    return 1 if options.verify and verified.differences else 0


def _content(cube: xr.Dataset | xr.DataTree) -> dict[str, Any]:
    """Return the lengths of dimensions and the names of variables; in groups below the root, paths."""
    nodes = cube.subtree if isinstance(cube, xr.DataTree) else [cube]
    sizes: dict[str, int] = {}
    names: set[str] = set()
    for node in nodes:
        path = "" if isinstance(node, xr.Dataset) or node.path == "/" else f"{node.path[1:]}/"
        sizes |= {f"{path}{dim}": n for dim, n in node.sizes.items()}
        names |= {f"{path}{name}" for name in node.variables}
    return {"sizes": sizes, "variables": sorted(names)}


def _referred(written: ManifestGroup, output: str) -> dict[str, int]:
    """Return how many chunks an output refers to in other places, and their bytes."""
    table, own = count_sources(written.all_arrays()), absolute_url(output).rstrip("/")
    elsewhere = [x.url != own and not x.url.startswith(f"{own}/") for x in table.locations]
    return {
        "references": int(table.n_chunks[elsewhere].sum()),
        "stored_bytes": int(table.nbytes[elsewhere].sum()),
    }


def _told(facts: Mapping[str, Any]) -> str:
    return f"{facts['target']}: {counted(facts['references'], 'reference')} to {counted(facts['files'], 'file')}"


def _gained(stored_bytes: int, output: str) -> str:
    """Return a sentence on the bytes that are not copied, and those of an output on this machine."""
    stored = human_bytes(stored_bytes)
    path = local_path(absolute_url(output))
    if path is None:
        return f"{stored} of chunks stay in the files"
    written = sum(x.stat().st_size for x in (path.rglob("*") if path.is_dir() else [path]) if x.is_file())
    return f"{stored} of chunks stay in the files, and '{output}' takes {human_bytes(written)}"


def _write(joined: xr.Dataset | xr.DataTree, options: Build, allow: list[str]) -> None:
    """Write the cube, or append it to what is there."""
    every: dict[str, Any] = {"storage": options.storage}
    mode: dict[str, Any] = {"mode": "w" if options.overwrite else "w-"}
    if options.is_append:
        keeps_all = options.is_in_order and options.how["duplicates"] is None
        mode = {"append_dim": options.append_dim, "join": options.join, "ordered": not keeps_all}
    if options.form == STORE:
        every |= {"message": options.message, "relative": options.relative, "allow": allow}
        joined.virtual.to_vstack(options.output, checksums=options.checksums, **mode, **every)
        return
    every |= {"rewrite": options.rewrite} | ({"absent": options.absent} if options.absent else {})
    if options.form == ICECHUNK:
        joined.virtual.to_icechunk(options.output, **mode, **every)
    else:
        every |= {"relative": options.relative, "allow": allow} | (mode if options.is_append else {})
        joined.virtual.to_kerchunk(options.output, **every)


def _to_verify(urls: Sequence[str], plan: Plan, options: Build, along: str | None) -> list[str]:
    """Return the files in their order along the only dimension of the join."""
    if plan.kept or (along is not None and ", " in along):
        raise click.UsageError(
            "--verify compares whole files along one dimension. Leave it out, and use 'virtualstack verify' on a vstack"
        )
    return [urls[i] for i in plan.order] if len(plan.order) + len(plan.left_out) == len(urls) else list(urls)


def _verified(
    cube: xr.Dataset, datasets: Sequence[xr.Dataset], urls: Sequence[str], dim: str | None, options: Build
) -> Verification:
    """Compare the cube with the files."""
    refused = (x for dataset in datasets for x in get_refusals(dataset) if x.kind == "refused")
    return verify_against_files(
        cube.drop_vars(options.how["labels"]),
        urls,
        dim=dim,
        group=options.group,
        ignore={*options.drop_variables, *options.how["labels"], *(x.path.rsplit("/", 1)[-1] for x in refused)},
        allow=options.allow,
        storage=options.storage,
        progress=wants_progress(),
    )


def _check_options(options: Build) -> None:
    """Refuse options that exclude each other."""
    if options.verify and options.join != "exact":
        raise click.UsageError(
            f"--verify compares with unchanged files, so it cannot be used with --join {options.join}. Leave one "
            "of them out"
        )
    if options.verify and options.no_decode_times:
        raise click.UsageError("--verify compares decoded values, so it cannot be used with --no-decode-times")
    if options.verify and options.is_append:
        raise click.UsageError(
            "--verify compares all of the output with the files, so it cannot be used with --append. Leave one of "
            "them out"
        )
    if options.message is not None and options.form != STORE:
        raise click.UsageError("--message is for the log of a vstack. Leave it out, or write a vstack")
    if options.checksums and options.form != STORE:
        raise click.UsageError("Only a vstack keeps checksums. Leave --checksums out, or write a vstack")
    if options.absent and options.form == STORE:
        raise click.UsageError("A vstack expresses ABSENT chunks. Leave --absent out")
    if options.relative and options.form == ICECHUNK:
        raise click.UsageError("Icechunk has no relative locations. Leave --relative out")


def _check_comparable(urls: Sequence[str], options: Build) -> None:
    """Refuse `--verify` for other formats, or without a library, before anything is scanned, written or installed."""
    storage = Storage.from_option(options.storage)
    for url, name in zip(urls, concurrently(partial(_format, storage, options.reader), urls, urls), strict=True):
        if name not in _COMPARABLE or (name == "zarr" and not _is_file(url, storage)):
            title = next((row.title for row in list_readers() if row.name == name), name)
            store = options.output if options.form == STORE else f"cube{STORE}"
            raise UnsupportedFeatureError(
                f"--verify compares with netCDF and HDF5 files, and '{url}' is {title}. Build a vstack without "
                f"--verify, and compare its chunks with 'virtualstack verify {store} --sample 100%'",
                url=url,
            )
    for url in urls:
        require_library(url)


def _format(storage: Storage, reader: str | None, url: str) -> str:
    """Return the name of the reader of a file."""
    try:
        return find_reader(url, storage, reader).name
    except MissingDependencyError as error:
        return error.extra
    except (ReaderError, StorageError):
        return _COMPARABLE[0]  # the scan says what is wrong with the file, or leaves it out


def _check_output(urls: Sequence[str], options: Build) -> None:
    """Refuse an output that is also an input, and an existing output without an option to replace or extend it."""
    output = absolute_url(options.output)
    if output in urls:
        raise WriterError(
            f"'{options.output}' is the output and one of the files to be joined. Leave it out of the files, or name "
            "another output; --append DIM adds the other files to it",
            feature="output",
        )
    if options.is_append:
        return
    if options.overwrite or not _is_there(output.rstrip("/"), options.storage):
        return
    raise WriterError(
        f"'{options.output}' already exists. Replace it with --overwrite, add to it with --append DIM, or name "
        "another output",
        feature="output",
    )


def _is_there(url: str, option: StorageLike) -> bool:
    storage = Storage.from_option(option)
    if not is_one_file(url):  # a folder
        return storage.target(f"{url}/").first() is not None
    return _is_file(url, storage)


def _is_file(url: str, storage: Storage) -> bool:
    try:
        storage.source(url)
    except (SourceNotFoundError, DirectoryError):
        return False
    return True


def _joined(opened: Sequence[Any], options: Build, dim: str | None) -> tuple[Any, Plan]:
    """Join datasets or trees as `open_virtual_mfdataset` does: by their plan, or in the order of the files."""
    is_tree = isinstance(opened[0], xr.DataTree)
    if options.is_append and options.join == "left" and is_tree and len(opened) > 1:
        raise click.UsageError(f"--join left takes one file if '{options.output}' has groups. Append one after another")
    have_same = is_tree or len({frozenset(dataset.variables) for dataset in opened}) == 1
    is_left = options.is_append and options.join == "left" and have_same
    if options.expand and len(opened) == 1:
        dim = options.how["concat_dim"] or options.append_dim
    how = CombineOptions.from_options(
        **options.how
        | {
            "combine": "nested" if dim else "by_coords",
            "concat_dim": dim or options.how["concat_dim"] or (options.append_dim if opened[1:] else None),
            "unpack": "differing" if options.how["unpack"] == "differing" else False,  # all are opened unpacked
        },
        join="outer" if is_left else options.join,  # the append leaves out what the output lacks
        tolerance=options.tolerance,
        combine_options={"coords": options.expand},  # also of data variables: "data_vars" changes others
    )
    join: Any = combine_trees_with_plan if is_tree else combine_with_plan
    made: tuple[Any, Plan] = join(opened, how, storage=options.storage)
    return made


def _dim_in_order(scanned: ScanResult, options: Build) -> str:
    """Return the dimension along which files are joined in the given order."""
    dim = (
        options.how["concat_dim"] or options.append_dim or main_dimension([declared_facts(group) for group in scanned])
    )
    if dim is None:
        raise click.UsageError("--in-order needs the dimension: add --concat-dim DIM")
    return dim


def _stored(options: Build) -> ManifestGroup | None:
    """Return the group of an output that files are appended to, or ``None`` if it cannot be read."""
    read = ReadOptions.from_options(is_tree=True, allow=options.allow)
    try:
        group, _ = read_one(options.output, storage=options.storage, options=read)
    except VirtualStackError:
        if options.append_dim is None:
            raise
        return None  # the append says what is wrong with the output
    return group


def _check_expanded(datasets: Sequence[xr.Dataset], options: Build) -> None:
    """Refuse ``--expand`` of variables that do not exist."""
    there = sorted({str(name) for dataset in datasets for name in dataset.variables})
    for name in options.expand:
        if name not in there:
            raise CombineError(
                f"no file has the variable '{name}' of --expand.{did_you_mean(name, there)} The files have "
                f"{first_names(there)}",
                variable=name,
            )


@contextmanager
def _said_by_xarray(kind: type[VirtualStackError], what: str) -> Iterator[None]:
    """Raise xarray's errors about data (unknown calendars, conflicting lengths) as an error of virtualstack."""
    try:
        yield
    except ValueError as error:
        if isinstance(error, VirtualStackError):
            raise
        raise kind(f"{what}: {error}") from error
