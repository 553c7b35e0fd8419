"""Facts about a dataset or a tree that need no chunk, and conversion to a group."""

from __future__ import annotations

import math
import shutil
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pandas as pd
import xarray as xr

from virtualstack.errors import check_word, folding_methods
from virtualstack.printable import counted, first_names

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.axes import Axes

    from virtualstack.drawing import ChunkMap
    from virtualstack.drawing.svg import ColorBy
    from virtualstack.manifests import ManifestArray, ManifestGroup
    from virtualstack.surveying.picture import Picture

_MAX_DRAWN_CHUNKS = 1 << 20
_MAX_BOXES = 1024
_MAX_WHOLE_CHUNKS = 1 << 18  # of arrays whose references a report reads whole
_MAX_COPIED_BYTES = 1 << 26
_TEXT_WIDTHS = (500, 300, 200, 150, 120, 100, 80, 70, 60, 50, 40, 35, 30, 25, 20, 16, 13, 10)
_REPORT_COLUMNS = ["variable", "state", "form", "chunks", "kerchunk", "detail"]


@folding_methods
class AccessorFacts:
    """Base of both accessors: facts of a dataset, which is one group, or of a tree of groups."""

    _drawn: tuple[list[int], Picture] | None = None

    to_group: Callable[[], ManifestGroup]

    @abstractmethod
    def _groups(self) -> Mapping[str, xr.Dataset]:
        """Return the datasets by path, without the variables that they inherit. The path of the root is empty."""

    def _arrays(self) -> dict[str, ManifestArray]:
        """Return the virtual variables by path."""
        from virtualstack.dataset import virtual_array

        arrays = {
            _joined(path, name): virtual_array(variable)
            for path, dataset in self._groups().items()
            for name, variable in dataset.variables.items()
        }
        return {path: array for path, array in arrays.items() if array is not None}

    def __dir__(self) -> Iterable[str]:
        return [name for name in super().__dir__() if not name.startswith("_")]

    @property
    def nrefs(self) -> int:
        """Number of chunks that refer to sources.

        A vstack has the number in its snapshot. Other references that were opened lazily are read page by page.

        Examples
        --------
        >>> import xarray as xr
        >>> import virtualstack as vs
        >>> xr.Dataset({"rain": ("time", [1.0, 2.0])}, {"time": [0, 1]}).to_netcdf("day.nc", engine="netcdf4")
        >>> vs.open_virtual_dataset("day.nc").virtual.nrefs
        1
        """
        from virtualstack.manifests import count_states

        return sum(count_states(array.manifest).n_references for array in self._arrays().values())

    @property
    def nbytes(self) -> int:
        """Size of the manifests in memory, in bytes.

        Pages of references that were opened lazily are in a cache of their own, and are not counted.

        Examples
        --------
        >>> import xarray as xr
        >>> import virtualstack as vs
        >>> xr.Dataset({"rain": ("time", [1.0, 2.0])}, {"time": [0, 1]}).to_netcdf("day.nc", engine="netcdf4")
        >>> vs.open_virtual_dataset("day.nc").virtual.nbytes
        24
        """
        from virtualstack.manifests import ChunkManifest

        manifests = [x for array in self._arrays().values() if isinstance(x := array.manifest, ChunkManifest)]
        return sum(x.entries.nbytes + (0 if x.starts is None else x.starts.nbytes) + len(x.inline) for x in manifests)

    @property
    def locations(self) -> pd.DataFrame:
        """Table of the sources, one row for each.

        Columns: ``url``; ``size`` in bytes, if it is known; ``refs``, the number of references; and ``bytes``, the sum
        of their lengths. References that were opened lazily are read.

        Examples
        --------
        >>> import xarray as xr
        >>> import virtualstack as vs
        >>> xr.Dataset({"rain": ("time", [1.0, 2.0])}, {"time": [0, 1]}).to_netcdf("day.nc", engine="netcdf4")
        >>> vs.open_virtual_dataset("day.nc").virtual.locations[["refs", "bytes"]].values.tolist()
        [[1, 16]]
        """
        from virtualstack.manifests.chunk_map import count_sources

        table = count_sources(self._arrays())
        return pd.DataFrame(
            {
                "url": [location.url for location in table.locations],
                "size": pd.array([location.size for location in table.locations], dtype="Int64"),
                "refs": table.n_chunks.tolist(),
                "bytes": table.nbytes.tolist(),
            }
        )

    def chunks(self) -> pa.RecordBatchReader:
        """Return a table of all chunks, one row for each, as a stream of Arrow.

        DuckDB, polars, pandas and others read it. No chunk is read. References that were opened lazily are read block
        by block, so that a table of any length takes little memory. A stream can be read once.

        Returns
        -------
        pyarrow.RecordBatchReader
            Variables follow each other, and chunks are in the order of the chunk grid. Columns:

            ``variable``
                Name of the variable, or its path in a tree.
            ``cell``, ``begin``, ``end``
                Lists with an integer for each axis: index in the chunk grid, first element, element after the last.
            ``state``
                ``referenced``, ``inline``, ``empty`` or ``absent``.
            ``source``, ``offset``, ``length``
                URL of the source, and the bytes in it. Without source: length of inline bytes, or null.
            ``dtype``, ``codecs``
                Data type of the stored numbers, and names of the codecs.
            ``<name>_min``, ``<name>_max``
                Least and greatest label of the chunk, for each coordinate that is in memory. They are null if the
                variable does not have all dimensions of the coordinate. Dates of cftime are texts.

        Examples
        --------
        >>> import xarray as xr
        >>> import virtualstack as vs
        >>> xr.Dataset({"rain": ("time", [1.0, 2.0])}, {"time": [0, 1]}).to_netcdf("day.nc", engine="netcdf4")
        >>> table = vs.open_virtual_dataset("day.nc").virtual.chunks().read_all()
        >>> table.select(["variable", "state", "length", "time_min", "time_max"]).to_pylist()
        [{'variable': 'rain', 'state': 'referenced', 'length': 16, 'time_min': 0, 'time_max': 1}]
        """
        from virtualstack.accessor.chunk_table import chunk_table

        return chunk_table(self._groups())

    def plot_chunks(self, name: str, /, *, by: ColorBy = "state", ax: Axes | None = None) -> Axes:
        """Draw the chunks of a variable: which are in sources, inline, never written (EMPTY) or lost (ABSENT).

        The axis with most chunks runs along the columns. The others are flattened along the rows. Of more than 4,096
        chunks, several are drawn as one box, which is red in part if some of them are lost.

        No chunk is read. References that were opened lazily are read. matplotlib is needed:
        ``pip install 'virtualstack[plot]'``.

        Parameters
        ----------
        name
            Name of the variable, or its path in a tree.
        by
            What the colours mean: ``"state"``, ``"source"`` (in eight colours in turn) or ``"encoding"`` (dtype, chunk
            shape and codecs).
        ax
            Axes of matplotlib to draw on; by default those of a new figure.

        Returns
        -------
        matplotlib.axes.Axes
            The axes.

        Raises
        ------
        KeyError
            The dataset has no virtual variable of this name.
        MissingDependencyError
            matplotlib is not installed.

        Examples
        --------
        >>> import xarray as xr
        >>> import virtualstack as vs
        >>> xr.Dataset({"rain": ("time", [1.0, 2.0])}, {"time": [0, 1]}).to_netcdf("day.nc", engine="netcdf4")
        >>> vs.open_virtual_dataset("day.nc").virtual.plot_chunks("rain").get_xlabel()
        'chunks of time'
        """
        from virtualstack.drawing.axes import plot_chunk_map

        check_word("by", by, ("state", "source", "encoding"))
        path, arrays = name.strip("/"), self._arrays()
        if path not in arrays:
            raise KeyError(f"there is no virtual variable '{name}'; there are {first_names(sorted(arrays))}")
        return plot_chunk_map(self._map_chunks(path, arrays[path]), by=by, ax=ax)

    def _map_chunks(self, path: str, array: ManifestArray, **options: Any) -> ChunkMap:
        from virtualstack.manifests.chunk_map import map_chunks

        group, _, name = path.rpartition("/")
        return map_chunks(array, name=path, dims=map(str, self._groups()[group][name].dims), **options)

    def _repr_html_(self) -> str:
        from virtualstack.drawing.html import MAX_LISTED, folded, make_page, table
        from virtualstack.drawing.svg import svg_chunk_map
        from virtualstack.manifests import ChunkManifest
        from virtualstack.manifests.display import chunk_text, codec_text, stored_text

        arrays = self._arrays()
        rows = (
            (path, f"{x.dtype} {x.shape}", chunk_text(x.grid), codec_text(x.manifest), stored_text(x.manifest))
            for path, x in list(arrays.items())[:MAX_LISTED]
        )
        parts = [table(["virtual variable", "values", "chunks", "codecs", "stored"], rows, total=len(arrays))]
        drawn = [
            (x.manifest.entries.size, path)
            for path, x in arrays.items()
            if isinstance(x.manifest, ChunkManifest) and 1 < x.manifest.entries.size <= _MAX_DRAWN_CHUNKS
        ]
        if drawn:
            path = max(drawn, key=lambda x: x[0])[1]
            picture = svg_chunk_map(self._map_chunks(path, arrays[path], max_boxes=_MAX_BOXES))
            parts.append(folded(f"chunks of {path}", picture))
        if arrays:
            parts.insert(1, self._map())
        return make_page(repr(self).strip("<>"), *(parts if arrays else ()))

    def _map(self) -> str:
        """Return the map of a variable, which is read once as long as the variables are the same."""
        from virtualstack.dataset import virtual_array
        from virtualstack.surveying.picture import Picture

        loaded = [
            x for dataset in self._groups().values() for x in dataset.variables.values() if virtual_array(x) is None
        ]
        if any(x.chunks for x in loaded) or sum(x.nbytes for x in loaded) > _MAX_COPIED_BYTES:
            return ""  # a group would compute or copy them
        of = [id(x) for x in self._arrays().values()]
        if self._drawn is None or self._drawn[0] != of:
            self._drawn = of, Picture(self.to_group)
        return self._drawn[1].html()

    def report(self) -> pd.DataFrame:
        """Return a table with one row for each variable, and one for each object that was left out or noted.

        Chunks are not read. References that were opened lazily are read, unless a vstack has them all alike.

        Returns
        -------
        pandas.DataFrame
            Look at ``state`` to see what was left out, and at ``kerchunk`` before you call :meth:`to_kerchunk`.
            It prints all columns, with long texts cut to the width of the screen. ``.to_string()`` has them in full.
            Columns:

            ``variable``
                Name of the variable, or its path in a tree.
            ``state``
                ``virtual`` (the chunks stay in the sources), ``loaded`` (the values are in memory), ``inlined`` (the
                reader put the values into the manifest, as INLINE chunks), or ``packed`` (the variable has stored
                numbers, because ``unpack=True`` could not unpack it). Two states are of rows that are not about a
                variable of the dataset. ``refused``: a variable was left out by ``unsupported="skip"``, or a file by
                ``on_error="skip"``. ``noted``: a remark, for example that a link or an attribute was left out; no
                values are missing. In these rows, ``variable`` is the path in the source, or the URL of the file.
            ``form``
                How regular the chunks are. ``plain``: all have one length, encoding and fill value, so that every
                target takes them as they are. Otherwise some of ``rectilinear`` (lengths differ along an axis),
                ``mixed encodings``, ``unaligned`` (cut, strided, reversed or repeated) and ``mixed fills``.
            ``chunks``
                Number of chunks.
            ``kerchunk``
                What ``to_kerchunk`` does with the variable: ``as it is``, ``inline`` (all values are written into the
                references), the ``rewrite`` budget that it needs and for how many chunks, or ``no`` and the reason.
            ``detail``
                Shape, sources and codecs, and the differences between chunks with the number of chunks concerned. Its
                parts are separated by ``" | "``.

        Examples
        --------
        >>> import xarray as xr
        >>> import virtualstack as vs
        >>> xr.Dataset({"rain": ("time", [1.0, 2.0])}, {"time": [0, 1]}).to_netcdf("day.nc", engine="netcdf4")
        >>> vs.open_virtual_dataset("day.nc").virtual.report()[["variable", "state"]].values.tolist()
        [['rain', 'virtual'], ['time', 'loaded']]
        """
        rows = [row for path, dataset in self._groups().items() for row in _report_rows(path, dataset)]
        return _Report(pd.DataFrame(rows, columns=_REPORT_COLUMNS).astype({"chunks": "Int64"}))


class _Report(pd.DataFrame):
    """A table that prints all its columns, and shortens long texts to the width of the screen.

    pandas leaves out columns in the middle instead. A selection of rows or columns is such a table, too.
    """

    @property
    def _constructor(self) -> type[_Report]:
        return _Report

    def __repr__(self) -> str:
        rows, few = (pd.get_option(f"display.{name}_rows") for name in ("max", "min"))
        width = shutil.get_terminal_size((pd.get_option("display.width") or 80, 24)).columns
        text = ""
        for n in _TEXT_WIDTHS:
            text = self.to_string(max_colwidth=n, max_rows=rows, min_rows=few)
            if max(map(len, text.splitlines())) <= width:
                break
        return text


def _joined(path: str, name: object) -> str:
    return f"{path}/{name}" if path else str(name)


def _report_rows(path: str, dataset: xr.Dataset) -> Iterator[tuple[Any, ...]]:
    """Return the rows of the report of one group."""
    from virtualstack.dataset import get_refusals, virtual_array
    from virtualstack.kerchunk.writer import how_taken
    from virtualstack.manifests.plain import describe, find_differences, why_not_plain

    refusals = get_refusals(dataset)
    kept = {x.path: x for x in refusals if x.kind in ("inlined", "packed")}
    for key, variable in dataset.variables.items():
        array, name = virtual_array(variable), _joined(path, key)
        if array is None:
            detail = f"{variable.dtype} {variable.shape}"
            yield name, "loaded", "", None, f"inline: {counted(variable.nbytes, 'byte')}", detail
            continue
        if math.prod(array.grid.shape) <= _MAX_WHOLE_CHUNKS or why_not_plain(array) is not None:
            array = array.whole()
        refusal = kept.get(array.name or "")
        detail = describe(replace(array, name=name))
        state, text = ("virtual", detail) if refusal is None else (refusal.kind, f"{refusal.reason}\n{detail}")
        yield (
            name,
            state,
            ", ".join(find_differences(array)),
            math.prod(array.grid.shape),
            how_taken(array),
            _one_line(text),
        )
    for x in refusals:
        if x.kind in ("refused", "noted"):
            yield x.path, x.kind, "", None, "", _one_line(x.reason)


def _one_line(text: str) -> str:
    return " | ".join(text.splitlines())  # a table would show line ends as two characters


def tree_to_group(tree: xr.DataTree, /) -> ManifestGroup:
    """Return a tree as a group of groups."""
    from virtualstack.dataset import to_group

    own = to_group(tree.to_dataset(inherit=False))
    return replace(own, groups={name: tree_to_group(child) for name, child in tree.children.items()})


def checked_letters(group: ManifestGroup) -> ManifestGroup:
    """Return the group if a reader would not join any of its letters to text, as xarray does. Text is joined already.

    Raises
    ------
    WriterError
        A variable holds letters that a reader would join.
    """
    from virtualstack.errors import Remedy, WriterError
    from virtualstack.manifests import text_arrays

    for path, node in group.walk():
        for name in sorted(text_arrays(node)):
            dim = (node.arrays[name].dimension_names or ())[-1]
            raise WriterError(
                f"variable '{path}/{name}' contains single characters along '{dim}'. xarray would join them to one "
                f"text when it reads the written data, because no other variable has '{dim}'",
                Remedy("give the dimension a coordinate with", f"vds.assign_coords({dim}=...)"),
                Remedy("cast the variable with", f"vds['{name}'].astype('S2')"),
                variable=name,
                feature="letters",
            )
    return group


def without_refusals(group: ManifestGroup, /) -> ManifestGroup:
    """Return the group without refusals, which were reported when the files were opened."""
    groups = {name: without_refusals(child) for name, child in group.groups.items()}
    return replace(group, groups=groups, refusals=())
