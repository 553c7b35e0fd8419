"""Group to xarray and back: virtual variables stay virtual, loaded ones are decoded and encoded as xarray does."""

from virtualstack.dataset.declared import declared_dataset
from virtualstack.dataset.decode import groups_of, refusals_of, to_dataset, with_refusals
from virtualstack.dataset.encode import set_encoding, to_group
from virtualstack.dataset.variables import index_of, loaded_variable, text_coordinates, virtual_array

__all__ = [
    "declared_dataset",
    "groups_of",
    "index_of",
    "loaded_variable",
    "refusals_of",
    "set_encoding",
    "text_coordinates",
    "to_dataset",
    "to_group",
    "virtual_array",
    "with_refusals",
]
