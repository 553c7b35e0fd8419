"""Combination of many virtual datasets or trees: they are ordered, aligned and joined; all else must be equal."""

from virtualstack.combine.align import reindex_dataset
from virtualstack.combine.datasets import (
    Combine,
    CombineOptions,
    Nested,
    combine_datasets,
    combine_trees,
    flatten,
    nest_like,
)
from virtualstack.combine.new_dim import Labelling
from virtualstack.planning import FromAttribute, FromName

__all__ = [
    "Combine",
    "CombineOptions",
    "FromAttribute",
    "FromName",
    "Labelling",
    "Nested",
    "combine_datasets",
    "combine_trees",
    "flatten",
    "nest_like",
    "reindex_dataset",
]
