"""The history of a manifest store."""

from virtualstack.repository.icechunk import append_icechunk, place_icechunk
from virtualstack.repository.icechunk_repositories import save_icechunk
from virtualstack.repository.overwrite import overwrite
from virtualstack.repository.precedence import Candidate
from virtualstack.repository.references import append_references
from virtualstack.repository.repository import Repository
from virtualstack.repository.save import append, place, save

__all__ = [
    "Candidate",
    "Repository",
    "append",
    "append_icechunk",
    "append_references",
    "overwrite",
    "place",
    "place_icechunk",
    "save",
    "save_icechunk",
]
