"""How tests join files with xarray, and how they see that joining is refused."""

import pytest

import virtualstack as vs
from virtualstack.errors import CombineError

MINIMAL = {"data_vars": "minimal", "coords": "minimal", "compat": "override"}
"""Options with which xarray joins what has the dimension, and takes all else from the first file."""


def refuse(message, urls, **options):
    """See that files are not joined, with a message that matches; give the error."""
    with pytest.raises(CombineError, match=message) as caught:
        vs.open_virtual_mfdataset(urls, **options)
    return caught.value
