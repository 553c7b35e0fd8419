"""The accessors ``vds.virtual`` and ``tree.virtual``: what virtual datasets and trees can do beyond xarray.

``import virtualstack`` imports this package, which registers the accessors. Their methods import what they call.
"""

from virtualstack.accessor.dataset import VirtualAccessor
from virtualstack.accessor.tree import VirtualTreeAccessor

__all__ = ["VirtualAccessor", "VirtualTreeAccessor"]
