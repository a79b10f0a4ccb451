"""Modules of the package do not import each other in circles, and each class name stands once."""

import ast
from collections import Counter
from graphlib import TopologicalSorter

from house.test_layering import PACKAGE, absolute

# A constraint's state and program are one thing in two files.
PAIR = ("imp_service.text.constraints.state", "imp_service.text.constraints.program")
# A client has the library's classes, with the same methods.
IN_LIBRARY_AND_CLIENT = {"AsyncGeneration", "AsyncGenerations", "Generation", "Generations", "Session"}
TREES = {
    f"imp_service.{path.relative_to(PACKAGE).with_suffix('').as_posix().replace('/', '.')}": ast.parse(path.read_text())
    for path in PACKAGE.rglob("*.py")
    if path != PACKAGE / "__init__.py"  # it offers names of all others
}


def imports_of(module: str, tree: ast.Module) -> set[str]:
    """The modules that are imported at the top, also for types alone."""
    path = module.removeprefix("imp_service.").replace(".", "/")
    blocks = [tree.body, *(node.body for node in tree.body if isinstance(node, ast.If))]
    found = [node for block in blocks for node in block if isinstance(node, ast.ImportFrom)]
    named = {
        (f"{base}.{alias.name}", base) for node in found for alias in node.names for base in [absolute(node, path)]
    }
    return {
        name if name in TREES else f"{base}.__init__" if f"{base}.__init__" in TREES else base for name, base in named
    }


def test_hon_16_no_modules_import_each_other_in_a_circle() -> None:
    graph = {module: imports_of(module, tree) & TREES.keys() - {module} for module, tree in TREES.items()}
    assert PAIR[1] in graph[PAIR[0]] and sum(map(len, graph.values())) > 1000
    graph[PAIR[0]].discard(PAIR[1])
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the modules


def test_hon_16_each_class_name_stands_once() -> None:
    own = [tree for module, tree in TREES.items() if not module.startswith("imp_service.pb.")]
    names = Counter(node.name for tree in own for node in tree.body if isinstance(node, ast.ClassDef))
    repeated = {name for name, n in names.items() if n > 1 and not name.startswith("_")}
    assert repeated == IN_LIBRARY_AND_CLIENT
