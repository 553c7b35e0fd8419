"""Datasets and trees as groups."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import xarray as xr

if TYPE_CHECKING:
    from virtualstack.manifests import ManifestGroup

__all__ = ["checked_letters", "tree_to_group", "without_refusals"]


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
