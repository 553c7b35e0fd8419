"""Conversion between groups and xarray: virtual variables stay virtual, loaded ones are decoded as in xarray."""

from virtualstack.dataset.declared import declared_dataset
from virtualstack.dataset.decode import (
    INHERITED,
    get_groups_below,
    get_refusals,
    loaded_dataset,
    to_dataset,
    with_refusals,
)
from virtualstack.dataset.encode import all_virtual, set_encoding, to_group
from virtualstack.dataset.variables import expand_dims, loaded_variable, make_index, text_coordinates, virtual_array

__all__ = [
    "INHERITED",
    "all_virtual",
    "declared_dataset",
    "expand_dims",
    "get_groups_below",
    "get_refusals",
    "loaded_dataset",
    "loaded_variable",
    "make_index",
    "set_encoding",
    "text_coordinates",
    "to_dataset",
    "to_group",
    "virtual_array",
    "with_refusals",
]
