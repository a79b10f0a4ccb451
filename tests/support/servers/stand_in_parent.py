"""A real parent of a model that takes no time to load: its engine processes only sleep. Run as a program."""

from __future__ import annotations

import signal
import sys
from types import ModuleType, SimpleNamespace
from typing import Any, cast

from imp_service.cli.serve import parent


def main() -> None:
    """The argument is the descriptor of the front."""
    make_model = cast(Any, ModuleType("imp_service.serving.make_model"))  # the real one imports the server
    make_model.make_model_from = lambda model: model
    sys.modules[make_model.__name__] = make_model
    cast(Any, parent)._load = lambda config: SimpleNamespace(core=SimpleNamespace(rest=lambda: True))
    parent.run_parent(int(sys.argv[1]), cast(Any, None), [])
    signal.pause()


if __name__ == "__main__":
    main()
