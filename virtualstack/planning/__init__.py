"""How files join: a plan made of small facts of each file, without their datasets."""

from virtualstack.planning.facts import FileFacts, Grid
from virtualstack.planning.names import member_words
from virtualstack.planning.plan import Duplicate, Duplicates, Plan, make_plan
from virtualstack.planning.sources import FromAttribute, FromName
from virtualstack.planning.telling import TELLING

__all__ = [
    "TELLING",
    "Duplicate",
    "Duplicates",
    "FileFacts",
    "FromAttribute",
    "FromName",
    "Grid",
    "Plan",
    "make_plan",
    "member_words",
]
