"""Imports one module from changed source, and every other module as usual, also in processes that a test starts."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from importlib.abc import MetaPathFinder, SourceLoader
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, ModuleType

from mutants.mutations import Mutation

# Holds the sitecustomize.py of the processes that a trial starts.
CHILDREN = Path(__file__).resolve().parent / "children"


class MutatedImport(MetaPathFinder):
    """A finder for the module that a mutation changes. It must be the first finder."""

    def __init__(self, mutation: Mutation, package: Path) -> None:
        self._mutation, self._package = mutation, package
        self._path = mutation.path
        self._name = module_name(mutation.path, package)
        self._loader = _Loader(self._name, mutation)

    def install(self) -> None:
        """Installs the finder. The module must not have been imported before."""
        assert self._name not in sys.modules, self._name
        sys.meta_path.insert(0, self)

    def install_in_children(self) -> None:
        """Installs the finder in every Python process that this one starts; `children/sitecustomize.py` does so."""
        fields = asdict(self._mutation) | {"path": str(self._path)}
        os.environ["IMP_MUTANT"] = json.dumps({"mutation": fields, "package": str(self._package)})
        others = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = os.pathsep.join([str(CHILDREN), *([others] if others else [])])

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != self._name:
            return None
        folders = [str(self._path.parent)] if self._path.name == "__init__.py" else None
        return importlib.util.spec_from_file_location(
            name, self._path, loader=self._loader, submodule_search_locations=folders
        )


class _Loader(SourceLoader):
    def __init__(self, name: str, mutation: Mutation) -> None:
        self._name = name
        self._mutation = mutation

    def get_filename(self, fullname: str) -> str:
        return str(self._mutation.path)

    def get_data(self, path: bytes | str) -> bytes:
        return self._mutation.apply(self._mutation.path.read_bytes())

    def get_code(self, fullname: str) -> CodeType:
        # Compiles without the cache file, which belongs to the unchanged source.
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


def install_for_children(text: str) -> None:
    """Installs the finder that the environment variable IMP_MUTANT describes."""
    found = json.loads(text)
    fields = found["mutation"] | {"path": Path(found["mutation"]["path"])}
    MutatedImport(Mutation(**fields), Path(found["package"])).install()


def module_name(path: Path, package: Path) -> str:
    """Returns the dotted name of a file of the package."""
    parts = path.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
