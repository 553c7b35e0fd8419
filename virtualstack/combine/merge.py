"""Putting files with different variables side by side; variables that several have must be the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from virtualstack.combine.absent import EVERYTHING, absent_by_name
from virtualstack.combine.align import align
from virtualstack.combine.attributes import merge_attributes, with_attributes
from virtualstack.combine.concat import unite_parts
from virtualstack.combine.conflict_rules import Rules
from virtualstack.combine.equal_variables import the_same
from virtualstack.combine.part import Attribute, Part
from virtualstack.errors import CombineError
from virtualstack.storage import Storage

__all__ = ["merge_parts"]


def merge_parts(parts: Sequence[Part], rules: Rules, storage: Storage, /) -> Part:
    """Give one part with the variables of all.

    Raises
    ------
    CombineError
        Labels, lengths or a variable that several have differ.
    StorageError
        Values to be compared cannot be read.
    """
    if len(parts) == 1:
        return parts[0]
    parts = align(parts, rules)
    _check_lengths(parts)
    variables, indexes = {}, {}
    left_out: set[Attribute] = set()
    names = dict.fromkeys(name for part in parts for name in part.variables)
    for name in names:
        having = [part for part in parts if name in part.variables]
        same = having[0].variables[name]
        if not all(name in part.indexes for part in having):  # else they are aligned
            same = the_same(name, having, storage, rules, why="is in several files that are put side by side")
        if name in having[0].indexes:
            indexes[name] = having[0].indexes[name]
        members = [part.variables[name] for part in having]
        attributes, found = merge_attributes([x.attrs for x in members], rules, name=name, sources=having)
        variables[name] = with_attributes(same, attributes)
        left_out |= found
    lacking = [dict.fromkeys(names.keys() - part.variables.keys(), EVERYTHING) for part in parts]
    parts = [replace(part, absent=absent_by_name(part.absent, x)) for part, x in zip(parts, lacking, strict=True)]
    return unite_parts(parts, None, variables, indexes, rules, left_out)


def _check_lengths(parts: Sequence[Part]) -> None:
    lengths: dict[str, tuple[int, Part]] = {}
    for part in parts:
        for dim, n in part.sizes.items():
            known, first = lengths.setdefault(dim, (n, part))
            if n != known:
                raise CombineError(
                    f"dimension '{dim}' has {known} elements in {first.called} and {n} in {part.called}, and no labels "
                    "to align them by",
                    variable=dim,
                    property="dimensions",
                    left=known,
                    right=n,
                    left_url=first.source,
                    right_url=part.source,
                )
