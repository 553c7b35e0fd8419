"""Selection to values: plan, fetch, decode."""

from virtualstack.reading.plan import Steps
from virtualstack.reading.read import check_absent, read_array, read_points
from virtualstack.reading.together import fetched

__all__ = ["Steps", "check_absent", "fetched", "read_array", "read_points"]
