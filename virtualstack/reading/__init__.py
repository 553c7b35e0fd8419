"""Selection to values: plan, fetch, decode."""

from virtualstack.reading.read import check_missing, read_array, read_points

__all__ = ["check_missing", "read_array", "read_points"]
