"""The history of a vstack."""

from virtualstack.combine.precedence import Candidate
from virtualstack.vstack.overwrite import overwrite
from virtualstack.vstack.repository import Repository
from virtualstack.vstack.save import append, place, save

__all__ = ["Candidate", "Repository", "append", "overwrite", "place", "save"]
