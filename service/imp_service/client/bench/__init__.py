"""A server's speed as its clients see it, with more and more of them at once."""

from .imp_server import open_imp_server
from .ladder import run_ladder
from .level_table import HEADINGS, level_row
from .measured_server import ServerFacts
from .page import page
from .plan import LadderPlan, PlanRefused
from .report import LadderReport, LevelReport, Percentiles
from .vectors import VectorPlan, VectorReport, run_vectors

__all__ = [
    "HEADINGS",
    "LadderPlan",
    "LadderReport",
    "LevelReport",
    "Percentiles",
    "PlanRefused",
    "ServerFacts",
    "VectorPlan",
    "VectorReport",
    "level_row",
    "open_imp_server",
    "page",
    "run_ladder",
    "run_vectors",
]
