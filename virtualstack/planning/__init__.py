"""How files join: a plan made of small facts of each file, without their datasets."""

from virtualstack.planning.facts import FileFacts, Grid
from virtualstack.planning.plan import Duplicate, Duplicates, Plan, make_plan
from virtualstack.planning.sources import FromAttribute, FromName

__all__ = [
    "Duplicate",
    "Duplicates",
    "FileFacts",
    "FromAttribute",
    "FromName",
    "Grid",
    "Plan",
    "make_plan",
]
