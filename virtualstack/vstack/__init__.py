"""Write, read and maintain vstacks and their history."""

from virtualstack.combine.precedence import Candidate
from virtualstack.vstack.overwrite import overwrite
from virtualstack.vstack.repository import Repository
from virtualstack.vstack.save import save

__all__ = ["Candidate", "Repository", "overwrite", "save"]
