"""``vds.virtual`` and ``tree.virtual``: what virtual datasets and trees can do beyond xarray.

``import virtualstack`` imports this package to register the accessors. What they call is imported when it is called.
"""

from virtualstack.accessor.dataset import VirtualAccessor
from virtualstack.accessor.tree import VirtualTreeAccessor

__all__ = ["VirtualAccessor", "VirtualTreeAccessor"]
