"""Settings and memory plan of the pods, independent of the node that runs them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from imp_service.config import AUTO, Config, read_settings
from imp_service.config.config import build
from imp_service.config.machine import MemoryLimit
from imp_service.config.select import select_model
from imp_service.config.sources import Assignment
from imp_service.config.tree import KeyOrigin, Tree, Value, branch, merged, origin_at
from imp_service.core import open_file
from imp_service.core.inspect import ModelReport, inspect_model
from imp_service.deploy.bases import Base
from imp_service.deploy.resources import Resources, cpus_for

MODEL_FOLDER = "/model"


@dataclass(frozen=True, slots=True)
class Sizing:
    """One kind of pod for one model."""

    config: Config  # for the imp.conf of the pods
    report: ModelReport
    is_cache_auto: bool  # kv.bytes was auto

    @property
    def threads(self) -> int:
        """Compute threads; the bases always set them."""
        threads = self.config.settings.device.threads
        assert isinstance(threads, int)  # narrows
        return threads

    @property
    def resources(self) -> Resources:
        """Requests and limits of imp's container."""
        return Resources(self.report.memory.total_bytes, cpus_for(self.threads))


def base_settings(base: Base, assignments: Sequence[str | Assignment]) -> Config:
    """The imp.conf of the base with --set; ignores the environment and the files of this machine."""
    return read_settings(str(base.conf), assignments, variables={})


def size(config: Config, model: str | None, inside: str | None = None) -> Sizing:
    """Plans the memory of the model at this path, or of the built-in one. The plan becomes the limit of the pod.

    `inside` is the model's path in the volume, if it is not just its name.

    The cache has `kv.bytes`, or room for 4 sequences of full context if that is auto. Raises the core's errors.
    """
    local = _with_projector_of(model, select_model(config, model)) if model is not None else _without_path(config)
    report = inspect_model(open_file(local), local, MemoryLimit(None, "what the pod is given"))
    pod = local
    if model is not None:
        stated = origin_at(config.tree, ("model", "path")).source == "--set"
        path = Path(MODEL_FOLDER, Path(model).name if inside is None else inside)
        pod = config if stated else _with_path(config, str(path))
    is_cache_auto = config.settings.kv.bytes is AUTO
    if is_cache_auto:
        pod = pod.resolve(("kv", "bytes"), report.memory.items["kv"], "the memory plan")
    return Sizing(pod, report, is_cache_auto)


def termination_seconds(base: Base, config: Config) -> int:
    """The time of the drain, plus the margin of the base."""
    before, after = base_settings(base, []).settings.drain, config.settings.drain
    longer = (after.delay + after.grace) - (before.delay + before.grace)
    stated: int = base.pod["terminationGracePeriodSeconds"]
    return stated + math.ceil(longer.total_seconds())


def _with_path(config: Config, path: str) -> Config:
    tree = merged(config.tree, branch(("model", "path"), Value(path, KeyOrigin("--model"))))
    return Config(build(tree), config.file, tree)


def _with_projector_of(model: str, config: Config) -> Config:
    """With the projector of the pods beside the model of this machine."""
    projector = config.settings.model.projector
    if projector is None:
        return config
    path = str(Path(model).parent / Path(projector).name)
    tree = merged(config.tree, branch(("model", "projector"), Value(path, KeyOrigin("--model"))))
    return Config(build(tree), config.file, tree)


def _without_path(config: Config) -> Config:
    model = config.tree["model"]
    assert isinstance(model, dict)  # narrows
    kept: Tree = {name: node for name, node in model.items() if name != "path"}
    tree: Tree = {**config.tree, "model": kept}
    return Config(build(tree), config.file, tree)
