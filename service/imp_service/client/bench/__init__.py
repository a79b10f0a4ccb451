"""A server's speed as its clients see it, with more and more of them at once."""

from .ladder import climb
from .level_table import HEADINGS, level_row
from .page import page
from .plan import LadderPlan, PlanRefused
from .report import LadderReport, LevelReport, Percentiles

__all__ = [
    "HEADINGS",
    "LadderPlan",
    "LadderReport",
    "LevelReport",
    "Percentiles",
    "PlanRefused",
    "climb",
    "level_row",
    "page",
]
