"""The history of a manifest store."""

from virtualstack.repository.overwrite import overwrite
from virtualstack.repository.precedence import Candidate
from virtualstack.repository.repository import Repository
from virtualstack.repository.save import append, place, save

__all__ = ["Candidate", "Repository", "append", "overwrite", "place", "save"]
