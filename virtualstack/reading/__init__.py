"""Selection to values: plan, fetch, decode."""

from virtualstack.reading.read import read_array

__all__ = ["read_array"]
