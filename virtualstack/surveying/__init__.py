"""Survey of an archive: what its files share, and what prevents joining them."""

from virtualstack.surveying.archive import survey
from virtualstack.surveying.result import Survey

__all__ = ["Survey", "survey"]
