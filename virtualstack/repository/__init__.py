"""The history of a manifest store."""

from virtualstack.repository.repository import Repository
from virtualstack.repository.save import save

__all__ = ["Repository", "save"]
