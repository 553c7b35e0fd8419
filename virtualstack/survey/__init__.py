"""Archives at a glance: what many files share before they are joined, and what stands in the way."""

from virtualstack.survey.result import Survey
from virtualstack.survey.surveying import survey

__all__ = ["Survey", "survey"]
