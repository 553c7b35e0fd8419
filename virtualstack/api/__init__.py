"""Functions that open one source, or many as one, as a virtual dataset or tree."""

from virtualstack.api.combine import combine_datasets
from virtualstack.api.many import open_virtual_mfdataset, open_virtual_mfdatatree
from virtualstack.api.one import open_virtual_dataset, open_virtual_datatree

__all__ = [
    "combine_datasets",
    "open_virtual_dataset",
    "open_virtual_datatree",
    "open_virtual_mfdataset",
    "open_virtual_mfdatatree",
]
