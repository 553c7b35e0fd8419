"""Many virtual datasets or trees as one: ordered, aligned and joined, with everything else checked to be the same."""

from virtualstack.combine.datasets import Nested, combine_datasets, flatten, nest_like
from virtualstack.combine.how import Combine, How
from virtualstack.combine.new_dim import FromAttribute, FromName, Labelling
from virtualstack.combine.reindex import reindex_dataset
from virtualstack.combine.rules import Join
from virtualstack.combine.trees import combine_trees

__all__ = [
    "Combine",
    "FromAttribute",
    "FromName",
    "How",
    "Join",
    "Labelling",
    "Nested",
    "combine_datasets",
    "combine_trees",
    "flatten",
    "nest_like",
    "reindex_dataset",
]
