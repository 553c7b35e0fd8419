"""Many virtual datasets or trees as one: ordered, aligned and joined, with everything else checked to be the same."""

from virtualstack.combine.conflict_rules import Join
from virtualstack.combine.datasets import Nested, combine_datasets, flatten, nest_like
from virtualstack.combine.new_dim import FromAttribute, FromName, Labelling
from virtualstack.combine.options import Combine, CombineOptions
from virtualstack.combine.reindex import reindex_dataset
from virtualstack.combine.trees import combine_trees

__all__ = [
    "Combine",
    "CombineOptions",
    "FromAttribute",
    "FromName",
    "Join",
    "Labelling",
    "Nested",
    "combine_datasets",
    "combine_trees",
    "flatten",
    "nest_like",
    "reindex_dataset",
]
