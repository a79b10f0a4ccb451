"""Measures a model's speed and the limits of the machine in one run."""

from imp_service.core.bench.cases import STANDARD, BenchPlan, Case
from imp_service.core.bench.measure import Tools, run_bench
from imp_service.core.bench.pictures import Picture, Pictures
from imp_service.core.bench.report import (
    BenchReport,
    CaseResult,
    ImageResult,
    OverheadResult,
    ReplayResult,
    RowsResult,
    SparseResult,
    Spread,
    VectorsResult,
)

__all__ = [
    "STANDARD",
    "BenchPlan",
    "BenchReport",
    "Case",
    "CaseResult",
    "ImageResult",
    "OverheadResult",
    "Picture",
    "Pictures",
    "ReplayResult",
    "RowsResult",
    "SparseResult",
    "Spread",
    "Tools",
    "VectorsResult",
    "run_bench",
]
