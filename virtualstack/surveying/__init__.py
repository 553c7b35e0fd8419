"""Archives at a glance: what many files share before they are joined, and what stands in the way."""

from virtualstack.surveying.result import Survey
from virtualstack.surveying.survey import survey

__all__ = ["Survey", "survey"]
