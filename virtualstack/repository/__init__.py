"""The history of a manifest store."""

from virtualstack.repository.repository import Repository
from virtualstack.repository.save import append, save

__all__ = ["Repository", "append", "save"]
