"""Measures a model with each number of threads. Each repetition also measures the limits of the machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from imp_service import _core
from imp_service.config import Config
from imp_service.core.bench.cases import TEXT_TOKENS, BenchPlan, Case
from imp_service.core.bench.engine_runs import DecodeBatch, EngineRuns
from imp_service.core.bench.guesses import GuessBench, Sample, read_samples
from imp_service.core.bench.json_lines import Encode
from imp_service.core.bench.pictures import ImageBench, Pictures
from imp_service.core.bench.report import (
    BenchReport,
    CaseResult,
    ModelFacts,
    OverheadResult,
    Repetition,
    SparseResult,
    Spread,
)
from imp_service.core.bench.sparse_prompts import Divergence, SparseBench, read_prompts
from imp_service.core.bench.vectors import VectorBench
from imp_service.core.bench.work import ModelWork, Work, model_work
from imp_service.core.errors import field_invalid, make_error
from imp_service.core.load import LoadedModel, load_weights

Report = Callable[[str], None]

BUILT_IN_REMARK = (
    "The built-in model fits into the CPU's caches and is too small to say anything about the speed of real models: "
    "name one with -m, or take random weights of a real shape with --synthetic."
)
SYNTHETIC_REMARK = "The weights are random: as fast as real ones, but their output is meaningless."
WARM_UP_TOKENS = 8
NO_POOLING = "none"
NO_VECTORS = "this model generates no text, and its files do not say how a text becomes a vector; see imp inspect"
# Measurements of a limit that a case exceeds.
FURTHER_PROBES = 3


@dataclass(frozen=True, slots=True)
class Tools:
    """What the bench takes from other packages."""

    # Makes a model's encoder of texts, for answers and prompts of files. None: they are token ids.
    encoder_of: Callable[[LoadedModel], Encode] | None = None
    # Compares the answers to prompts evaluated in part.
    divergence: Divergence | None = None
    # Makes what makes images for a model. Raises if it reads none.
    pictures_of: Callable[[LoadedModel], Pictures] | None = None


def run_bench(
    configs: Sequence[Config],
    plan: BenchPlan,
    file: _core.ModelFile | None,
    report: Report,
    tools: Tools | None = None,
) -> BenchReport:
    """Measures the settings' model, or `file` in its place, with each of `configs`, which differ in threads.

    `report` gets a line before each measurement. A case that does not fit is refused before the first one.
    """
    if not configs:
        raise field_invalid("threads", "none, expected at least one number")
    reports = [_measure(config, plan, file, report, tools or Tools()) for config in configs]
    return BenchReport(
        reports[0].facts,
        tuple(case for report in reports for case in report.cases),
        tuple(overhead for report in reports for overhead in report.overheads),
        tuple(rows for report in reports for rows in report.rows),
        tuple(replay for report in reports for replay in report.replays),
        tuple(sparse for report in reports for sparse in report.sparse),
        tuple(image for report in reports for image in report.images),
        tuple(vectors for report in reports for vectors in report.vectors),
    )


def _measure(
    config: Config,
    plan: BenchPlan,
    file: _core.ModelFile | None,
    report: Report,
    tools: Tools,
) -> BenchReport:
    report(f"loading, device.threads = {config.settings.device.threads}")
    loaded = load_weights(config, file)
    pictures = None
    try:
        if not loaded.model.has_head:
            plan = _without_generation(plan, loaded)
        pictures = None if tools.pictures_of is None else tools.pictures_of(loaded)
        loaded.start(cell_token=None if pictures is None else pictures.cell_token)
        bench = ModelBench(loaded, plan.reps, report)
        encode = None if tools.encoder_of is None else tools.encoder_of(loaded)
        samples = [] if plan.replay is None else bench.samples(plan.replay, encode)
        prompts = (
            []
            if plan.sparse_prefill is None
            else bench.prompts(plan.sparse_prefill, encode, max(plan.decode, default=0))
        )
        depths = plan.depths if plan.has_rows else ()
        cases, overheads = plan.cases(bench.threads), plan.overhead_cases(bench.threads)
        for case in [*cases, *overheads]:
            bench.require_room(case)
        images = None if pictures is None else bench.images(pictures, plan.images)
        calls = bench.calls(plan)
        return BenchReport(
            model_facts(loaded, is_synthetic=file is not None),
            tuple(bench.measure(case) for case in cases),
            tuple(bench.measure_overhead(case) for case in overheads),
            tuple(rows for depth in depths for rows in bench.guesses.rows(depth)),
            tuple(
                replay
                for tokens in (plan.decode if samples else ())
                for batch in plan.batches
                for replay in bench.guesses.replay(samples, batch, tokens)
            ),
            tuple(_sparse(bench, plan, prompts, tools.divergence)),
            tuple(images.measure(size) for size in plan.images) if images is not None else (),
            tuple(bench.vectors.measure(texts, tokens) for texts, tokens in calls),
        )
    finally:
        if pictures is not None:
            pictures.close()
        loaded.close()


def _without_generation(plan: BenchPlan, loaded: LoadedModel) -> BenchPlan:
    """What a model that generates no text can be measured at. Raises if that is nothing, or not what was asked."""
    option = plan.generation_option
    if option or loaded.model.pooling == NO_POOLING:
        words = f"{option}: this model generates no text" if option else NO_VECTORS
        raise make_error("NOT_SUPPORTED_BY_MODEL", words, {"feature": "generation" if option else "embeddings"})
    return replace(plan, prefill=(), decode=(), overhead_batches=())


def _sparse(
    bench: ModelBench, plan: BenchPlan, prompts: Sequence[list[int]], divergence: Divergence | None
) -> Iterator[SparseResult]:
    if prompts and divergence is not None:
        for tokens in plan.decode:
            yield from bench.sparse(divergence).measure(prompts, tokens)


def model_facts(loaded: LoadedModel, *, is_synthetic: bool) -> ModelFacts:
    """The properties of the model."""
    model = loaded.model
    weights: Counter[str] = Counter()
    for weight in model.weights:
        weights[weight["dtype"]] += weight["n_bytes"]
    remark = (
        SYNTHETIC_REMARK if is_synthetic else BUILT_IN_REMARK if loaded.config.settings.model.path is None else None
    )
    return ModelFacts(
        model=loaded.name,
        architecture=model.architecture,
        device=model.device_name,
        weights_bytes=dict(weights),
        kv_bytes_per_token=model.memory["items"]["kv"] / (model.n_blocks * model.kv_block_tokens),
        remarks=() if remark is None else (remark,),
    )


class ModelBench:
    """One loaded model under measurement."""

    def __init__(self, loaded: LoadedModel, reps: int, report: Report) -> None:
        self._model = loaded.model
        self._scheduler = loaded.config.settings.scheduler
        self._max_sessions = loaded.config.settings.sessions.max
        self._runs = EngineRuns(loaded.client, loaded.model.n_tokens)
        self._reps = reps
        self._report = report
        self.threads: int = loaded.model.n_threads
        self._cpus = loaded.cpus
        self._speculation = loaded.config.settings.speculation
        self._no_sparse_prefill = loaded.no_sparse_prefill
        self._sparse_prefill = loaded.config.settings.sparse_prefill
        most = loaded.model.max_context
        self.vectors = VectorBench(
            self._runs,
            threads=self.threads,
            most_tokens=min(most, self._scheduler.step_tokens) if loaded.model.needs_whole_texts else most,
            reps=reps,
            report=report,
        )
        self.guesses = GuessBench(self._runs, self.threads, self._speculation.max_draft_tokens, reps, report)

    @cached_property
    def _work(self) -> ModelWork:
        return model_work(self._model)

    def samples(self, path: Path, encode: Encode | None) -> list[Sample]:
        """The known answers of a file. Each fits into the context."""
        if not self._speculation.drafters:
            raise field_invalid("replay", "given, but speculation.drafters is empty")
        samples = read_samples(path, encode, self._model.n_tokens)
        longest = max((len(sample.prompt) + len(sample.answer) for sample in samples), default=0)
        if longest > self._model.max_context:
            raise make_error("CONTEXT_TOO_LONG", f"{path}: {longest} tokens, the context is {self._model.max_context}")
        return samples

    def prompts(self, path: Path, encode: Encode | None, n_outputs: int) -> list[list[int]]:
        """The prompts of a file. Each fits into the context, with its answer."""
        if self._no_sparse_prefill:
            raise field_invalid("sparse_prefill", f"given, but {self._no_sparse_prefill}")
        if n_outputs == 0:
            raise field_invalid("sparse_prefill", "given, but decode is 0, so that there is no answer to compare")
        prompts = read_prompts(path, encode, self._model.n_tokens)
        longest = max(map(len, prompts), default=0) + n_outputs
        if longest > self._model.max_context:
            raise make_error("CONTEXT_TOO_LONG", f"{path}: {longest} tokens, the context is {self._model.max_context}")
        return prompts

    def sparse(self, divergence: Divergence) -> SparseBench:
        """Compares whole prompts with parts of them."""
        return SparseBench(
            self._runs,
            self.threads,
            self._sparse_prefill,
            divergence=divergence,
            reps=self._reps,
            report=self._report,
        )

    def images(self, pictures: Pictures, sizes: Sequence[tuple[int, int]]) -> ImageBench:
        """Measures images. Each of these sizes fits into the context."""
        bench = ImageBench(self._runs, pictures, threads=self.threads, reps=self._reps, report=self._report)
        for size in sizes:
            bench.require_room(size, self._model.max_context)
        return bench

    def calls(self, plan: BenchPlan) -> list[tuple[int, int]]:
        """The texts of each call that makes vectors, and the tokens of each text. Raises if one cannot run."""
        if self._model.pooling == NO_POOLING:
            return []
        most = self._scheduler.max_waiting
        for texts in plan.text_batches:
            if texts > most:
                raise field_invalid(f"batch {texts}", f"expected at most {most} texts (scheduler.max_waiting)")
        lengths = plan.text_tokens or tuple(min(each, self.vectors.most_tokens) for each in TEXT_TOKENS)
        for tokens in lengths:
            self.vectors.require_room(tokens)
        return [(texts, tokens) for tokens in dict.fromkeys(lengths) for texts in plan.text_batches]

    def require_room(self, case: Case) -> None:
        """Raises if the case cannot run."""
        model, batch_limit = self._model, min(self._scheduler.max_running, self._max_sessions)
        if case.batch > batch_limit:
            raise field_invalid(
                case.label,
                f"expected at most {batch_limit} sequences (scheduler.max_running, sessions.max)",
            )
        if case.context > model.max_context:
            raise make_error(
                "CONTEXT_TOO_LONG", f"{case.label}: {case.context} tokens, the context is {model.max_context}"
            )
        blocks = case.batch * -(-case.context // model.kv_block_tokens)
        if blocks > model.n_blocks:
            raise make_error(
                "KV_FULL", f"{case.label}: {blocks} blocks are needed, the cache has {model.n_blocks} (kv.bytes)"
            )

    def measure(self, case: Case) -> CaseResult:
        """All repetitions of a case, after a warm-up."""
        if case.kind == "prefill":
            chunk = min(self._scheduler.prefill_chunk, self._scheduler.step_tokens)
            self._runs.prefill(case.tokens)
            return self._repeat(case, self._work.prefill(case.tokens, chunk), lambda: self._runs.prefill(case.tokens))
        self._report(f"{case.label}: filling the cache")
        with DecodeBatch(self._runs, case.batch, case.depth) as batch:
            batch.decode(min(WARM_UP_TOKENS, case.tokens))
            work = self._work.decode(case.batch, case.depth, case.tokens)
            return self._repeat(case, work, lambda: batch.decode(case.tokens))

    def measure_overhead(self, case: Case) -> OverheadResult:
        """The time of a step of the case outside its forward pass."""
        self._report(f"overhead of a step, batch {case.batch}")
        with DecodeBatch(self._runs, case.batch, case.depth) as batch:
            batch.decode(min(WARM_UP_TOKENS, case.tokens))
            costs = [batch.step_costs(case.tokens) for _ in range(self._reps)]
        return OverheadResult(
            self.threads,
            case.batch,
            sampling_seconds_per_step=Spread.of(cost.sampling for cost in costs),
            engine_seconds_per_step=Spread.of(cost.engine for cost in costs),
        )

    def _repeat(self, case: Case, work: Work, run: Callable[[], float]) -> CaseResult:
        repetitions = []
        for i in range(self._reps):
            self._report(f"{case.label}: {i + 1} of {self._reps}")
            bandwidth, peak = self._read_bandwidth(), self._peak()
            seconds = run()
            bandwidth = _at_least(work.bytes / seconds, bandwidth, self._read_bandwidth)
            peak = _at_least(work.ops / seconds, peak, self._peak)
            repetitions.append(Repetition(seconds, bandwidth, peak))
        return CaseResult(case, work, self._work.peak, tuple(repetitions))

    def _read_bandwidth(self) -> float:
        return _core.probe_read_bandwidth(self.threads, cpus=self._cpus)

    def _peak(self) -> float:
        return _core.probe_peak(self._work.peak, self.threads, cpus=self._cpus)


def _at_least(reached: float, limit: float, probe: Callable[[], float]) -> float:
    """A limit of the machine that is not below what a case reached: on a busy machine a probe measures too little."""
    for _ in range(FURTHER_PROBES):
        if limit >= reached:
            break
        limit = max(limit, probe())
    return max(limit, reached)
