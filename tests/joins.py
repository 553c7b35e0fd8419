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
    check_fields(caught.value)
    return caught.value


def check_fields(error):
    """See that the message names the files of both sides; a file whose elements are missing is not at fault."""
    if error.property != "fill_value":
        assert all(url is None or url in str(error) for url in (error.left_url, error.right_url))
