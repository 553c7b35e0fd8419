"""Archives at a glance: what many files share before they are joined, and what stands in the way."""

from virtualstack.surveying.archive import survey
from virtualstack.surveying.result import Survey

__all__ = ["Survey", "survey"]
