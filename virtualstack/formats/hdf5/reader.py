"""The reader of HDF5 and netCDF-4 files.

The steps from a file to a group:

1. `fetch` runs parsers over the bytes of the file, which `byte_readers` provides.
2. `walk` starts the parsers of `structures`: from the superblock to all object headers, links and chunk indexes.
   `objects` parses one object. `templates` recognise objects that are like those of an earlier file.
3. `parsed_view` shows their results as a `FileView`. `library` is the same view by the HDF5 library in a child process.
   It reads the parts that the parsers do not know.
4. `tree` follows the links of a view, to groups and to datasets, which become variables.
5. `dimensions` names the axes by netCDF's rules, and `hdfeos` by the rules of HDF-EOS5.
6. `external_links` follows links to other files.
7. `variables` makes a virtual array of a dataset. `references` turns its layout into entries of a manifest:
   chunked, contiguous, in `external_files`, or virtual (`virtual_datasets`). `values` reads values that have no byte
   ranges.
8. `_group` combines arrays, attributes and refusals.

If all objects of a file are like those of an earlier one, `products` replaces the steps from 4 on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import ClassVar, Literal

from virtualstack.child.errors import LibraryError
from virtualstack.child.pool import ChildDiedError
from virtualstack.errors import (
    Code,
    MalformedFileError,
    ManifestError,
    ReaderError,
    Remedy,
    SourceNotFoundError,
    StorageError,
    check_word,
)
from virtualstack.formats.base import ReadOptions
from virtualstack.formats.hdf5.byte_readers import is_locked
from virtualstack.formats.hdf5.dimensions import NON_COORDINATE, Dimensions, resolve_dimensions
from virtualstack.formats.hdf5.external_links import ExternalLinks, with_free_dims
from virtualstack.formats.hdf5.fetch import MetadataSource
from virtualstack.formats.hdf5.hdfeos import EOS_INFORMATION, eos_axis_names
from virtualstack.formats.hdf5.library import Library
from virtualstack.formats.hdf5.parsed_view import FindExtent, ParsedView
from virtualstack.formats.hdf5.references import FileContext, damaged
from virtualstack.formats.hdf5.structures.requests import LostValuesError, StructureError
from virtualstack.formats.hdf5.structures.virtual_mappings import VirtualMapping
from virtualstack.formats.hdf5.tree import FileView, HDF5Group, HDF5Variable, build_tree, decode_text
from virtualstack.formats.hdf5.variables import extend_records, read_variable
from virtualstack.formats.hdf5.virtual_datasets import virtual_shape
from virtualstack.formats.hdf5.virtual_sources import Chain, Datasets, OpenSourceFile, SourceFiles
from virtualstack.formats.hdf5.walk import open_objects, walk
from virtualstack.location import local_path
from virtualstack.manifests import CF_KEYS, ManifestArray, ManifestGroup, Refusal
from virtualstack.sizes import byte_count
from virtualstack.storage import LocalSource, Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class HDF5:
    """Reader of HDF5 files, and of netCDF-4 files as netCDF shows them.

    Values are the values of the HDF5 library. Names of dimensions and attributes are the names of netCDF-C. Values that
    cannot be referenced become INLINE up to a limit, or the variable is refused by name.

    When to use: the reader is chosen by the first bytes of a file. Name it to set an option. Alternatives:
    :class:`~virtualstack.readers.DMRPP` uses a document beside a remote file instead of its metadata.
    :class:`~virtualstack.readers.Kerchunk` reads references that another program has made.

    Parameters
    ----------
    contiguous_chunk_size
        Largest size of the chunks into which datasets of contiguous layout are divided, in bytes or as in ``"16 MiB"``.
        ``None``: one chunk for each dataset. Values without compression are always read in parts. A divided dataset can
        also be written to zarr, and computed with dask, in chunks of that size.
    metadata
        How the metadata are read. ``"auto"``: parsers of virtualstack, and the HDF5 library for parts that the parsers
        do not know. ``"own"``: these parsers alone; unknown parts are refused. ``"library"``: the HDF5 library, which
        is slower; the parsers read chunk indexes alone. The library runs in a child process, because damaged files may
        crash it.
    eos_dimensions
        If true, the StructMetadata of HDF-EOS5 names the dimensions of datasets without dimension scales. netCDF-C
        ignores it, and numbers the dimensions: ``phony_dim_0``.

    Examples
    --------
    >>> import xarray as xr
    >>> import virtualstack as vs
    >>> xr.Dataset({"rain": ("time", [1.0, 2.0, 3.0, 4.0])}).to_netcdf("day.nc", engine="netcdf4")
    >>> reader = vs.readers.HDF5(contiguous_chunk_size=16, metadata="own")
    >>> vs.open_virtual_dataset("day.nc", reader=reader).virtual.nrefs
    2
    """

    name: ClassVar[str] = "hdf5"

    contiguous_chunk_size: int | str | None = None
    metadata: Literal["auto", "own", "library"] = "auto"
    eos_dimensions: bool = True

    def __post_init__(self) -> None:
        if self._chunk_size() == 0:
            raise ValueError("contiguous_chunk_size=0 is not a size of a chunk; None leaves contiguous values in one")
        check_word("metadata", self.metadata, ("auto", "own", "library"))

    def _chunk_size(self) -> int | None:
        size = self.contiguous_chunk_size
        return None if size is None else byte_count(size, option="contiguous_chunk_size")

    def read(self, url: str, storage: Storage, options: ReadOptions) -> ManifestGroup:
        """Return the variables of a file as a group of virtual arrays; values are read only for INLINE chunks.

        :func:`virtualstack.open_virtual_dataset` and ``vs.scan`` call it; call it yourself in a reader of your own.

        Raises
        ------
        MalformedFileError
            The file is not an HDF5 file, is truncated, or its root group cannot be read.
        StorageError
            The bytes could not be read.
        """
        return self._read(url, storage, options, follows=True)

    def _read(self, url: str, storage: Storage, options: ReadOptions, *, follows: bool) -> ManifestGroup:
        """Read a file; ``follows`` decides whether external links are followed."""

        def read_dataset(url: str, path: str, chain: Chain) -> ManifestArray | None:
            with files.use(url) as file, _naming_damage(url):
                variable = file.view.find(path)
                if variable is None:
                    return None
                return _source(variable, make_context(file, lambda: paths_in(file), chain))

        def paths_in(file: OpenSourceFile) -> Mapping[int, str]:
            return build_tree(self._view(file.metadata, file.library, lambda _: False, None)).paths()

        def check_there(url: str) -> None:
            path = local_path(url)
            if path is not None and not storage.may_open(url) and not path.exists():
                raise SourceNotFoundError(f"there is no file at '{url}'", url=url)  # the next place may have it

        def open_file(url: str) -> OpenSourceFile:
            check_there(url)
            return self._open(url, storage, None)

        def read_linked(url: str) -> ManifestGroup:
            if not follows:
                raise ReaderError("it is in a file that a link leads to, and links of such a file are not followed")
            check_there(url)
            whole = replace(options, group=None, drop_variables=frozenset())
            return self._read(url, storage, whole, follows=False)

        def extent(path: str, mappings: Sequence[VirtualMapping], shape: tuple[int, ...]) -> tuple[int, ...]:
            where = main.source.location.url
            sources = datasets.open_sources(where, path, ())
            return virtual_shape(mappings, shape, sources, url=where, inline_limit=options.inline_limit)

        files, datasets = SourceFiles(open_file), Datasets(read_dataset)

        def make_context(file: OpenSourceFile, paths: Callable[[], Mapping[int, str]], chain: Chain) -> FileContext:
            return FileContext(
                location=file.source.location,
                library=file.library,
                base=file.metadata.base,
                inline_limit=options.inline_limit,
                locate=lambda path: storage.source(path).location,
                storage=storage,
                object_paths=cache(paths),
                contiguous_chunk_size=self._chunk_size(),
                datasets=datasets,
                chain=chain,
            )

        def read_all(view: FileView) -> tuple[HDF5Group, ManifestGroup]:
            tree = build_tree(view)
            is_eos = self.eos_dimensions and EOS_INFORMATION in tree.groups
            dims = resolve_dimensions(tree, eos_axis_names(tree, main.metadata, main.library) if is_eos else {})
            links = ExternalLinks(main.source.location.url, read_linked)
            return tree, _group(tree, dims, make_context(main, tree.paths, ()), options, {}, links)

        main = self._open(url, storage, lambda raw: _wants_chunks(raw, options), extent)
        with closing(main.library), _naming_damage(url):
            view = main.view
            likeness = view.likeness() if isinstance(view, ParsedView) else None
            if isinstance(view, ParsedView) and likeness is not None:
                from virtualstack.formats.hdf5.products import ProductFile

                file = ProductFile(view, (self, options, likeness))
                return file.group(make_context(main, dict, ())) or file.learnt(*read_all(view))
            return read_all(view)[1]

    def _open(
        self, url: str, storage: Storage, wants_chunks: Callable[[bytes], bool] | None, extent: FindExtent | None = None
    ) -> OpenSourceFile:
        source = storage.source(url)
        where = source.location.url
        path = local_path(where) if isinstance(source, LocalSource) else None
        if path is not None and is_locked(path):
            raise _locked(where)
        metadata = MetadataSource(source)
        library = Library(
            metadata, path, find_alone=lambda: not storage.may_open("file:///"), is_forbidden=self.metadata == "own"
        )
        make_view = partial(self._view, metadata, library, wants_chunks, extent)
        return OpenSourceFile(source=source, metadata=metadata, library=library, make_view=make_view)

    def _view(
        self,
        metadata: MetadataSource,
        library: Library,
        wants_chunks: Callable[[bytes], bool] | None,
        extent: FindExtent | None,
    ) -> FileView:
        """Find the objects of a file: with the parsers if they can read all groups, else with the HDF5 library.

        With ``wants_chunks=None`` they are not walked, but read when a path leads to them.
        """
        if self.metadata == "library":
            return library
        try:
            objects = walk(metadata, wants_chunks) if wants_chunks else open_objects(metadata)
        except StructureError as error:
            if library.is_forbidden:
                raise LibraryError(f"{error}, and metadata='own' leaves nothing to the HDF5 library") from error
            return library
        return ParsedView(objects, metadata, library, extent)


def _wants_chunks(path: bytes, options: ReadOptions) -> bool:
    group, _, name = decode_text(path).rpartition("/")
    return options.wants(f"{group}/{name.removeprefix(NON_COORDINATE)}")


@contextmanager
def _naming_damage(url: str) -> Iterator[None]:
    """Turn remaining errors of the HDF5 library into an error that the file is damaged."""
    try:
        yield
    except LibraryError as error:
        raise damaged(url, str(error)) from error
    except ChildDiedError as error:
        raise MalformedFileError(
            f"'{url}' is damaged: the parsers of virtualstack could not read all of it, and the HDF5 library {error}",
            Remedy("fetch it again"),
            Remedy("read only what these parsers understand with", reader=Code("HDF5(metadata='own')")),
            url=url,
        ) from error


def _locked(url: str) -> StorageError:
    return StorageError(
        f"'{url}' is locked: another program has it open for writing", Remedy("close it there first"), url=url
    )


def _group(
    tree: HDF5Group,
    dims: Dimensions,
    context: FileContext,
    options: ReadOptions,
    inherited: Mapping[str, int],
    links: ExternalLinks,
) -> ManifestGroup:
    refusals = [*tree.notes, *tree.attributes.notes]
    arrays: dict[str, ManifestArray] = {}
    declared = dims.declared[tree.path]
    scope = {name: n for name, n in inherited.items() if name not in {dim.name for dim in declared}}
    scope |= {dim.name: dim.length for dim in declared if dim.is_unlimited}
    for variable in tree.variables.values():
        name = _netcdf_name(variable.name, tree, dims)
        if variable.path in dims.not_variables or not options.wants(f"{tree.path}/{name}"):
            continue
        array, found = _array(variable, dims, context)
        refusals += found
        if array is not None:
            arrays[name] = extend_records(array, variable, scope, context.library)
    groups = {name: _group(child, dims, context, options, scope, links) for name, child in tree.groups.items()}
    sizes = {
        dim: n for array in arrays.values() for dim, n in zip(array.dimension_names or (), array.shape, strict=True)
    }
    for name, target in tree.external_links.items():
        if not options.wants(path := f"{tree.path}/{name}"):
            continue
        linked = links.follow(path, target)
        if isinstance(linked, Refusal):
            refusals.append(linked)
        elif isinstance(linked, ManifestGroup):
            groups[name] = linked
        else:
            arrays[name] = linked = with_free_dims(linked, name, {**scope, **sizes})
            sizes |= zip(linked.dimension_names or (), linked.shape, strict=True)
    return ManifestGroup(
        arrays=arrays,
        groups=groups,
        attributes=tree.attributes.own_values(),
        dimensions={dim.name: dim.length for dim in declared},
        unlimited=frozenset(dim.name for dim in declared if dim.is_unlimited),
        refusals=tuple(refusals),
        url=context.location.url,
    )


def _array(
    variable: HDF5Variable, dims: Dimensions, context: FileContext
) -> tuple[ManifestArray | None, list[Refusal]]:
    refusals = list(variable.attributes.notes)
    lost = variable.attributes.damaged
    name = next((key for key in CF_KEYS if key in lost), None)
    if name is not None:  # without this attribute, stored numbers would become other values
        reason = f"its attribute '{name}' is damaged: {lost[name]}"
        return None, [*refusals, Refusal(path=variable.path, reason=reason)]
    if variable.scale.fault:
        refusals.append(Refusal(path=variable.path, reason=variable.scale.fault, kind="noted"))
    try:
        array, refusal = read_variable(variable, dims.names(variable.path), context)
    except LibraryError as error:
        return None, [*refusals, Refusal(path=variable.path, reason=f"it is damaged: {error}")]
    except ManifestError as error:
        raise damaged(context.location.url, f"{variable.path}: {error}") from error
    return array, [*refusals, refusal] if refusal is not None else refusals


def _source(variable: HDF5Variable, context: FileContext) -> ManifestArray:
    """Return the array of a dataset that is a source of a virtual dataset."""
    try:
        array, refusal = read_variable(variable, ("",) * len(variable.shape or ()), context)
    except (LibraryError, ManifestError) as error:
        raise LostValuesError(f"a virtual dataset (VDS) whose source '{variable.path}' is damaged: {error}") from error
    if array is None:
        reason = "" if refusal is None else refusal.reason
        raise LostValuesError(f"a virtual dataset (VDS) whose source '{variable.path}' is refused: {reason}")
    return array


def _netcdf_name(name: str, tree: HDF5Group, dims: Dimensions) -> str:
    stripped = name.removeprefix(NON_COORDINATE)
    if stripped in ("", name) or stripped in tree.groups:
        return name
    taken = tree.variables.get(stripped)
    return stripped if taken is None or taken.path in dims.not_variables else name
