"""The work of ``virtualstack build`` and ``append``: join files, write the cube, compare it with its files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, cast

import click
import numpy as np
import pandas as pd
import xarray as xr

from virtualstack import accessor  # noqa: F401 - registers vds.virtual
from virtualstack.api.combine import combine_datasets
from virtualstack.cli.facts import dry_facts, dry_text, maybe_dry, plain
from virtualstack.cli.files import Files, expand, open_scanned, open_trees, scan_files
from virtualstack.cli.output import report, say, show, step, wants_progress
from virtualstack.combine import FromName
from virtualstack.combine.datasets import CombineOptions, combine_trees
from virtualstack.conversion import ICECHUNK, STORE
from virtualstack.dataset import get_child_groups, get_refusals
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
from virtualstack.printable import counted, did_you_mean, first_names
from virtualstack.readers import ReadOptions
from virtualstack.scanning import scan
from virtualstack.sizes import human_bytes
from virtualstack.storage import Storage, StorageLike
from virtualstack.storage.source import DirectoryError
from virtualstack.storage.threads import concurrently
from virtualstack.verify import Verification, require_library, verify_against_files

__all__ = ["Build", "run"]

_COMPARABLE = "hdf5", "netcdf3", "zarr"
"""Names of readers of the formats that ``--verify`` can compare: of zarr, zip archives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Build(Files):
    """Arguments and options of the command; see its help."""

    output: str
    concat_dim: str | None
    new_dim: tuple[tuple[str, str, str | None], ...]
    in_order: bool
    overwrite: bool
    append_dim: str | None
    verify: bool
    join: Literal["exact", "outer", "inner", "left", "right"]
    tolerance: float | pd.Timedelta | None
    expand: tuple[str, ...]
    rewrite: str | None
    absent: Literal["raise", "fill"] | None
    message: str | None
    relative: bool
    checksums: bool
    as_json: bool

    @property
    def is_part(self) -> bool:
        """Whether a reader may take all files as parts of one index: not if the user says how they are joined."""
        return self.concat_dim is None and not self.in_order and not self.new_dim

    @property
    def labellings(self) -> dict[str, FromName]:
        """New dimensions, with the source of their labels."""
        return {name: FromName(pattern, format=dates) for name, pattern, dates in self.new_dim}

    @property
    def joining(self) -> dict[str, Any]:
        """Options of joining that files with and without groups share."""
        return {
            "tolerance": self.tolerance,
            "unpack": "differing" if self.unpack == "differing" else False,
            "combine_options": {"coords": self.expand},  # also of data variables: "data_vars" changes others
        }

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
    is_tree = options.append_dim is not None and _has_groups(options)
    with step(f"scan {counted(len(urls), 'file')}"):
        scanned = scan_files(urls, options, is_tree=is_tree)
    new = ", ".join(options.labellings) or None
    dim = options.concat_dim or new or options.append_dim
    datasets = []
    joined: xr.Dataset | xr.DataTree
    if is_tree:
        trees, urls = open_trees(scanned, options), [*scanned.urls]
        _check_expanded([node.to_dataset() for tree in trees for node in tree.subtree], dim, options)
        with step("join the files"), _said_by_xarray(CombineError, "the files cannot be joined"):
            joined = _joined_trees(trees, dim, options)
    else:
        datasets = open_scanned(scanned, options)
        urls = [*scanned.urls] if scanned.are_parts_of_one else [x.encoding["source"] for x in datasets]
        dim = dim or (_common_dim(datasets, urls) if len(datasets) > 1 else None)
        datasets = [_with_dimension(dataset, dim) for dataset in datasets]
        _check_expanded(datasets, dim, options)
        left_out = sorted({name for dataset in datasets for name in get_child_groups(dataset)})
        if left_out:
            where = options.group or "/"
            say("note", f"groups {left_out} below '{where}' are left out; choose one with --group")
        with step("join the files"), _said_by_xarray(CombineError, "the files cannot be joined"):
            joined = datasets[0] if dim is None else _joined(datasets, urls, dim, options)
    allow = sorted({*options.allow, *(f"{url.rpartition('/')[0]}/" for url in urls)})
    facts: dict[str, Any] = {
        "target": options.output,
        "files": len(urls),
        "references": joined.virtual.nrefs,
        "stored_bytes": int(joined.virtual.locations["bytes"].sum()),
        "along": dim,
        **_content(joined),
        "verified": None,
        "dry_run": None,
    }
    told = f"{options.output}: {counted(joined.virtual.nrefs, 'reference')} to {counted(len(urls), 'file')}"
    with maybe_dry(options.dry_run) as record, step(f"write '{options.output}'"):
        _write(joined, options, allow)
    if record is not None:
        facts["dry_run"] = dry_facts(record)
        report(lambda: facts, lambda: f"{dry_text(record, options.output)}\n{told}", as_json=options.as_json)
        return 0
    with _said_by_xarray(ReaderError, f"'{options.output}' is written, but cannot be decoded"):
        open_cube: Any = xr.open_datatree if is_tree else xr.open_dataset
        cube = open_cube(options.output, engine="virtualstack", allow=allow, storage=options.storage)
    with cube:
        facts |= _content(cube)
        if not options.as_json:
            show(cube)
            show(f"\n{told}\n{_gained(facts['stored_bytes'], options.output)}")
        if options.verify:
            verified = _verified(cube, datasets, urls, cast(xr.Dataset, joined), dim, options)
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
    if options.append_dim:
        mode = {"append_dim": options.append_dim, "join": options.join}
    if options.form == STORE:
        every |= {"message": options.message, "relative": options.relative, "allow": allow}
        joined.virtual.to_vstack(options.output, checksums=options.checksums, **mode, **every)
        return
    every |= {"rewrite": options.rewrite} | ({"absent": options.absent} if options.absent else {})
    if options.form == ICECHUNK:
        joined.virtual.to_icechunk(options.output, **mode, **every)
    else:
        every |= {"relative": options.relative, "allow": allow} | (mode if options.append_dim else {})
        joined.virtual.to_kerchunk(options.output, **every)


def _verified(
    cube: xr.Dataset,
    datasets: Sequence[xr.Dataset],
    urls: Sequence[str],
    joined: xr.Dataset,
    dim: str | None,
    options: Build,
) -> Verification:
    """Compare the cube with the files."""
    refused = (x for dataset in datasets for x in get_refusals(dataset) if x.kind == "refused")
    return verify_against_files(
        cube,
        urls if options.in_order else _in_order(urls, datasets, joined, dim, options),
        dim=dim,
        group=options.group,
        ignore={*options.drop_variables, *(x.path.rsplit("/", 1)[-1] for x in refused)},
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
    if options.verify and options.append_dim:
        raise click.UsageError(
            "--verify compares all of the output with the files, so it cannot be used with --append. Leave one of "
            "them out"
        )
    if options.verify and len(options.new_dim) > 1:
        raise click.UsageError(
            "--verify compares files along one dimension, so it cannot be used with two new ones. Leave it out, and "
            "use 'virtualstack verify' on a vstack"
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
    if options.append_dim:
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


def _joined(datasets: Sequence[xr.Dataset], urls: Sequence[str], dim: str, options: Build) -> xr.Dataset:
    """Join files as `open_virtual_mfdataset` does: by labels, or with ``--in-order`` in the order of the files."""
    have_same = len({frozenset(dataset.variables) for dataset in datasets}) == 1
    is_left = options.append_dim is not None and options.join == "left" and have_same
    join = "outer" if is_left else options.join  # the append leaves out what the output lacks, not what the first lacks
    combined = partial(
        combine_datasets,
        datasets,
        join=join,
        **options.joining,
    )
    if options.new_dim:
        return combined(new_dim=options.labellings)
    for url, dataset in zip(urls, datasets, strict=True):
        if dim not in dataset.sizes:
            raise CombineError(
                f"'{url}' has no dimension '{dim}' to join along; it has {sorted(map(str, dataset.sizes))}",
                property="dimension",
                left=dim,
                left_url=url,
            )
        if dim not in dataset.coords and not options.in_order and len(datasets) > 1:
            raise CombineError(
                f"'{url}' has no labels along '{dim}' that determine its position. Join the files in the order given "
                "with --in-order",
                property="labels",
                left=dim,
                left_url=url,
            )
    is_in_order = options.in_order or len(datasets) == 1
    if not is_in_order:
        _check_labels(datasets, urls, dim)
    return combined(combine="nested" if is_in_order else "by_coords", concat_dim=dim if is_in_order else None)


def _has_groups(options: Build) -> bool:
    """Return whether the output of an append has groups below the root, so that files need the same groups."""
    read = ReadOptions.from_options(is_tree=True, allow=options.allow)
    try:
        (group,) = scan([options.output], storage=options.storage, options=read)
    except VirtualStackError:
        return False  # the append says what is wrong with the output
    return bool(group.groups)


def _joined_trees(trees: Sequence[xr.DataTree], dim: str | None, options: Build) -> xr.DataTree:
    """Join files with groups group by group."""
    if len(trees) == 1 and not options.new_dim:
        return trees[0]
    if options.join == "left":
        raise click.UsageError(f"--join left takes one file if '{options.output}' has groups. Append one after another")
    how = CombineOptions.from_options(
        combine="nested" if options.in_order else "by_coords",
        concat_dim=dim if options.in_order else None,
        join=options.join,
        new_dim=options.labellings,
        **options.joining,
    )
    return combine_trees(trees, how, storage=options.storage)


def _with_dimension(dataset: xr.Dataset, dim: str | None) -> xr.Dataset:
    """Return a dataset in which a coordinate with one value, such as the time of a file, is a dimension."""
    if dim not in dataset.coords or dataset[dim].ndim:
        return dataset
    loaded: xr.Dataset = dataset.virtual.load(dim)
    return loaded.expand_dims(dim)


def _check_expanded(datasets: Sequence[xr.Dataset], dim: str | None, options: Build) -> None:
    """Refuse ``--expand`` without a dimension, and of variables that do not exist."""
    if options.expand and dim is None:
        raise click.UsageError("--expand needs the dimension that variables get. Name it with --concat-dim")
    there = sorted({str(name) for dataset in datasets for name in dataset.variables})
    for name in options.expand:
        if name not in there:
            raise CombineError(
                f"no file has the variable '{name}' of --expand.{did_you_mean(name, there)} The files have "
                f"{first_names(there)}",
                variable=name,
            )


def _check_labels(datasets: Sequence[xr.Dataset], urls: Sequence[str], dim: str) -> None:
    """Refuse files that begin at the same label, unless they differ in other labels or in variables."""
    kinds: dict[Any, str] = {}
    for url, dataset in zip(urls, datasets, strict=True):
        if not dataset[dim].size:
            continue
        label = np.atleast_1d(dataset[dim].values)[0]
        others = (tuple(index) for name, index in dataset.indexes.items() if name != dim)
        other = kinds.setdefault((label, frozenset(dataset.data_vars), *others), url)
        if other != url:
            raise CombineError(
                f"'{other}' and '{url}' both begin at {label} along '{dim}'. Leave one of them out, or join the files "
                "in the order given with --in-order",
                property="labels",
                left=label,
                right=label,
                left_url=other,
                right_url=url,
            )


def _in_order(
    urls: Sequence[str], datasets: Sequence[xr.Dataset], joined: xr.Dataset, dim: str | None, options: Build
) -> Sequence[str]:
    """Return the files in their order along the dimension."""
    if dim is None or dim not in joined.indexes or len(urls) != len(datasets):
        return urls
    labels = joined.indexes[dim]
    new = {dim: options.labellings[dim]} if options.new_dim else None
    parts = [combine_datasets([x], new_dim=new) for x in datasets] if new else datasets
    firsts = [np.atleast_1d(part[dim].values)[0] for part in parts]
    place = dict(zip(urls, labels.get_indexer(pd.Index(firsts)).tolist(), strict=True))
    return sorted(urls, key=place.__getitem__)


@contextmanager
def _said_by_xarray(kind: type[VirtualStackError], what: str) -> Iterator[None]:
    """Raise xarray's errors about data (unknown calendars, conflicting lengths) as an error of virtualstack."""
    try:
        yield
    except ValueError as error:
        if isinstance(error, VirtualStackError):
            raise
        raise kind(f"{what}: {error}") from error


def _common_dim(datasets: Sequence[xr.Dataset], urls: Sequence[str]) -> str:
    """Return the dimension that the files follow each other along.

    It is the unlimited one. Files without an unlimited dimension follow each other along the only one whose labels
    differ between them.
    """
    unlimited = set.intersection(*({*map(str, x.encoding.get("unlimited_dims", ()))} for x in datasets))
    shared = set.intersection(*({*map(str, x.dims)} for x in datasets))
    candidates = sorted(unlimited & shared)
    if not candidates:
        candidates = sorted(dim for dim in shared if _labels_differ(datasets, dim))
        if len(candidates) == 1:
            say("note", f"the files are joined along '{candidates[0]}', where their labels differ")
    if len(candidates) == 1:
        return candidates[0]
    if not shared:
        have = "; ".join(
            f"'{url}' has {first_names(sorted(map(str, x.dims)))}" for url, x in zip(urls[:2], datasets, strict=False)
        )
        more = f" and {len(urls) - 2} more" if len(urls) > 2 else ""
        raise CombineError(
            f"the {len(urls)} files have no dimension in common to join them along: {have}{more}. "
            "Give files of one kind",
            property="dimension",
        )
    kind = "unlimited dimensions" if unlimited & shared else "dimensions whose labels differ:"
    what = f"{len(candidates)} {kind} {candidates}" if candidates else "no unlimited dimension"
    raise CombineError(
        f"the {len(urls)} files have {what} in common. Choose the one to join along: --concat-dim with one of "
        f"{first_names(candidates or sorted(shared))}. Or join them along a new dimension: --new-dim NAME=PATTERN",
        property="dimension",
    )


def _labels_differ(datasets: Sequence[xr.Dataset], dim: str) -> bool:
    """Return whether files have different labels along a dimension, and all have labels."""
    if not all(dim in x.indexes for x in datasets):
        return False
    first = datasets[0].indexes[dim]
    return any(not first.equals(x.indexes[dim]) for x in datasets[1:])
