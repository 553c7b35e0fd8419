"""Opening a source, or many as one, as a virtual dataset or tree."""

from virtualstack.api.many import combine_datasets, open_virtual_mfdataset, open_virtual_mfdatatree
from virtualstack.api.one import Unsupported, account_for, open_virtual_dataset, open_virtual_datatree, select_group

__all__ = [
    "Unsupported",
    "account_for",
    "combine_datasets",
    "open_virtual_dataset",
    "open_virtual_datatree",
    "open_virtual_mfdataset",
    "open_virtual_mfdatatree",
    "select_group",
]
