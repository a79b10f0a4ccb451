"""Models whose steps take every guess there is room for, so that no test depends on the speed of the machine."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

DRAFTING = 'speculation.drafters=["ngram"]'
NO_DRAFTERS = "speculation.drafters=[]"


@contextmanager
def fixed_depth() -> Iterator[None]:
    """Within the block, each model that is loaded uses every guess that fits."""
    module = importlib.import_module("imp_service.core.load")
    make_options = module._engine_options

    def fixed(*arguments: Any) -> Any:
        options = make_options(*arguments)
        options.fixed_depth = True
        return options

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_engine_options", fixed)
        yield
