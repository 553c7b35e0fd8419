"""Facts about a dataset or a tree that need no chunk, and its group."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import xarray as xr

if TYPE_CHECKING:
    from virtualstack.manifests import ManifestArray, ManifestGroup

__all__ = ["AccessorFacts", "checked_letters", "tree_to_group", "without_refusals"]

_REPORT_COLUMNS = ["variable", "state", "form", "chunks", "kerchunk", "detail"]


class AccessorFacts:
    """Facts of a dataset, which is one group, or of a tree of groups."""

    @abstractmethod
    def _groups(self) -> Mapping[str, xr.Dataset]:
        """Return the datasets by path, without the variables that they inherit; the path of the root is empty."""

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
        """Number of chunks that point into sources; counting them reads the pages of references opened lazily."""
        counts = [(array.manifest.summary() or array.in_memory().summary()) for array in self._arrays().values()]
        return sum(count.n_references for count in counts)

    @property
    def nbytes(self) -> int:
        """Bytes that the manifests take in memory; pages of references opened lazily are kept apart, in a cache."""
        from virtualstack.manifests import ChunkManifest

        manifests = [x for array in self._arrays().values() if isinstance(x := array.manifest, ChunkManifest)]
        return sum(x.entries.nbytes + (0 if x.starts is None else x.starts.nbytes) + len(x.inline) for x in manifests)

    @property
    def locations(self) -> pd.DataFrame:
        """Sources: columns ``url``, ``size`` (bytes, if known), ``refs`` and ``bytes`` used of it."""
        from virtualstack.manifests import FIRST

        refs: dict[str, int] = {}
        used: dict[str, int] = {}
        sizes: dict[str, int | None] = {}
        for array in self._arrays().values():
            manifest = array.in_memory()
            code = manifest.entries["location"].reshape(-1)
            counts = np.bincount(code, minlength=len(manifest.locations) + FIRST)
            lengths = np.bincount(code, manifest.entries["length"].reshape(-1), minlength=len(counts))
            for row, location in enumerate(manifest.locations, start=FIRST):
                if counts[row]:
                    refs[location.url] = refs.get(location.url, 0) + int(counts[row])
                    used[location.url] = used.get(location.url, 0) + int(lengths[row])
                    sizes[location.url] = location.size
        return pd.DataFrame(
            {
                "url": list(refs),
                "size": pd.array([sizes[url] for url in refs], dtype="Int64"),
                "refs": list(refs.values()),
                "bytes": list(used.values()),
            }
        )

    def report(self) -> pd.DataFrame:
        """Account for every variable; reads no chunk, but the pages of references opened lazily.

        Columns:

        ``variable``
            Its name, or its path in a tree.
        ``state``
            ``virtual``, ``loaded``, ``inlined`` where the reader put values into the manifest, ``packed`` where
            ``unpack=True`` has no form for them, or what the reader did with what it could not take over: ``refused``
            or ``noted``, by its path in the source.
        ``form``
            What its chunks are: ``plain``, which any target takes as it is, or some of ``rectilinear`` (lengths
            differ along an axis), ``mixed encodings``, ``unaligned`` (cut, seen with steps, reversed or repeated) and
            ``mixed fills``.
        ``chunks``
            Their number.
        ``kerchunk``
            What ``to_kerchunk`` does with it: ``as it is``, ``inline``, or which ``rewrite`` budget it needs for how
            many chunks.
        ``detail``
            Shape, sources and codecs, and the differences with the number of chunks concerned.
        """
        rows = [row for path, dataset in self._groups().items() for row in _report_rows(path, dataset)]
        return pd.DataFrame(rows, columns=_REPORT_COLUMNS).astype({"chunks": "Int64"})


def _joined(path: str, name: object) -> str:
    return f"{path}/{name}" if path else str(name)


def _report_rows(path: str, dataset: xr.Dataset) -> Iterator[tuple[Any, ...]]:
    """Return the rows of the report of one group."""
    from virtualstack.dataset import get_refusals, virtual_array
    from virtualstack.kerchunk.writer import how_taken
    from virtualstack.manifests import describe
    from virtualstack.manifests.plain import ArrayForm

    refusals = get_refusals(dataset)
    kept = {x.path: x for x in refusals if x.kind in ("inlined", "packed")}
    for key, variable in dataset.variables.items():
        array, name = virtual_array(variable), _joined(path, key)
        if array is None:
            detail = f"{variable.dtype} {variable.shape}"
            yield name, "loaded", "", None, f"inline: {variable.nbytes:,} bytes", detail
            continue
        array = array.whole()
        refusal = kept.get(array.name or "")
        detail = describe(replace(array, name=name))
        state, text = ("virtual", detail) if refusal is None else (refusal.kind, f"{refusal.reason}\n{detail}")
        form = ArrayForm.from_array(array)
        yield name, state, ", ".join(form.kinds), form.n_chunks, how_taken(array), text
    for x in refusals:
        if x.kind in ("refused", "noted"):
            yield x.path, x.kind, "", None, "", x.reason


def tree_to_group(tree: xr.DataTree, /) -> ManifestGroup:
    """Return a tree as a group of groups."""
    from virtualstack.dataset import to_group

    own = to_group(tree.to_dataset(inherit=False))
    return replace(own, groups={name: tree_to_group(child) for name, child in tree.children.items()})


def checked_letters(group: ManifestGroup) -> ManifestGroup:
    """Return a group without letters that a reader would join to text, as xarray does; text is joined already.

    Raises
    ------
    WriterError
        There are such.
    """
    from virtualstack.errors import WriterError
    from virtualstack.manifests import text_arrays

    for path, node in group.walk():
        for name in sorted(text_arrays(node)):
            dim = (node.arrays[name].dimension_names or ())[-1]
            raise WriterError(
                f"variable '{path}/{name}' holds letters along '{dim}', which xarray would join to one text when it "
                f"reads what is written, as no other variable has '{dim}': give the dimension a coordinate with "
                f"vds.assign_coords({dim}=...), or the variable another dtype with vds['{name}'].astype('S2')",
                variable=name,
                feature="letters",
            )
    return group


def without_refusals(group: ManifestGroup, /) -> ManifestGroup:
    """Return a group without refusals, which were told when the files were opened."""
    groups = {name: without_refusals(child) for name, child in group.groups.items()}
    return replace(group, groups=groups, refusals=())
