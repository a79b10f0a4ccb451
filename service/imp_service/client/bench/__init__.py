"""A server's speed as its clients see it, with more and more of them at once."""

from imp_service.client.bench.ladder import climb
from imp_service.client.bench.level_table import HEADINGS, level_row
from imp_service.client.bench.page import page
from imp_service.client.bench.plan import LadderPlan, PlanRefused
from imp_service.client.bench.report import LadderReport, LevelReport, Percentiles

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
