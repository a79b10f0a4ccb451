"""The cost of constraints: compilation and masks are bounded in time and memory; an exhausted program is replaced."""

from __future__ import annotations

import errno
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from imp_service.process import worker_process
from imp_service.text import (
    ConstraintCompiler,
    ConstraintKind,
    ConstraintSpec,
    FieldInvalid,
    NativePanic,
    TextLimits,
    Tokenizer,
)
from imp_service.text.constraints import state as state_module
from imp_service.text.constraints.program import ConstraintProgram
from imp_service.text.constraints.state import ConstraintState
from support.run.growth import ATTEMPTS
from support.run.patience import HANGS_AFTER
from support.text.constraint_sampling import allowed_ids
from support.text.tiny_vocabularies import byte_level

PAIRS = [(chr(first), chr(second)) for first in range(97, 123) for second in range(97, 123)]
TOKENIZER = Tokenizer.from_metadata(byte_level(merges=PAIRS))
V = TOKENIZER.vocab_size


def _compiler(**limits: int) -> ConstraintCompiler:
    return ConstraintCompiler(TOKENIZER, vocab_size=V, limits=TextLimits(**limits))


def _schema(schema: object) -> ConstraintSpec:
    return ConstraintSpec(ConstraintKind.JSON_SCHEMA, json.dumps(schema))


def _regex(source: str) -> ConstraintSpec:
    return ConstraintSpec(ConstraintKind.REGEX, source)


def _gbnf(source: str) -> ConstraintSpec:
    return ConstraintSpec(ConstraintKind.GBNF, source)


# Without bounds these take gigabytes and minutes.
MULTIPLE = _schema({"type": "integer", "multipleOf": 99_999_989})
CONJUNCTION = _schema({"type": "string", "allOf": [{"pattern": f".*{chr(97 + i)}.*"} for i in range(20)]})
HARMLESS = _schema({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})


def _own_peak() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


@pytest.mark.long
@pytest.mark.parametrize("constraint", [MULTIPLE, CONJUNCTION], ids=["multiple", "conjunction"])
def test_txt_31_t53_memory_of_compiling_is_bounded_and_not_taken_here(constraint: ConstraintSpec) -> None:
    compiler = _compiler(compile_ms=60_000, compile_bytes=16 << 20)
    compiler.compile(HARMLESS)
    Path("/proc/self/clear_refs").write_text("5")
    before = _own_peak()
    with pytest.raises(FieldInvalid, match="takes more than 16 MiB to compile") as caught:
        compiler.compile(constraint)
    assert caught.value.path == "constraint.json_schema"
    assert _own_peak() - before < 4 << 20
    assert compiler.compile(_regex("ab+")).start().accept(ord("a")), "the next one finds a worker"


@pytest.mark.long
@pytest.mark.parametrize("constraint", [MULTIPLE, CONJUNCTION], ids=["multiple", "conjunction"])
def test_txt_31_t53_time_of_compiling_is_bounded(constraint: ConstraintSpec) -> None:
    compiler = _compiler(compile_ms=100, compile_bytes=1 << 30)
    compiler.compile(HARMLESS)
    with pytest.raises(FieldInvalid, match="takes more than 100 ms to compile"):
        compiler.compile(constraint)
    assert compiler.compile(_regex("ab+")).start().accept(ord("a"))


def test_txt_31_t53_compiling_is_bounded_in_a_process_that_ignores_its_children() -> None:
    """In process 1 of a container nobody learns how a worker ended. The constraint must not be retried forever."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        compiler = _compiler(compile_ms=100, compile_bytes=1 << 30)
        with pytest.raises(FieldInvalid, match="takes more than 100 ms or 1024 MiB to compile"):
            compiler.compile(MULTIPLE)
        assert compiler.compile(_regex("ab+")).start().accept(ord("a")), "the next one finds a worker"
        compiler.close()
    finally:
        signal.signal(signal.SIGCHLD, before)


@pytest.mark.long
@pytest.mark.parametrize("handler", [signal.SIG_DFL, signal.SIG_IGN], ids=["told", "not told"])
def test_txt_31_a_worker_that_cannot_start_is_no_fault_of_the_constraint(
    handler: signal.Handlers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds whether or not the process learns how its children end; process 1 of a container does not."""
    before = signal.signal(signal.SIGCHLD, handler)
    try:
        with monkeypatch.context() as patch:
            patch.setattr("imp_service.text.constraints.trial._WORKER", "/no/such/worker.py")
            compiler = _compiler()
            with pytest.raises(NativePanic, match="the process that compiles constraints does not start") as caught:
                compiler.compile(HARMLESS)
            assert caught.value.reason == "BUG"
        assert compiler.compile(_regex("ab+")).start().accept(ord("a")), "the next one finds a worker"
        compiler.close()
    finally:
        signal.signal(signal.SIGCHLD, before)


@pytest.mark.long
def test_txt_31_closing_ends_what_is_being_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = _compiler(compile_ms=3_600_000, compile_bytes=8 << 30)
    compiler.compile(HARMLESS)
    has_request = threading.Event()

    def write(*arguments: Any) -> None:
        real_write(*arguments)
        has_request.set()

    real_write = worker_process._write
    monkeypatch.setattr(worker_process, "_write", write)
    with ThreadPoolExecutor(1) as threads:
        compiling = threads.submit(compiler.compile, MULTIPLE)
        assert has_request.wait(HANGS_AFTER), "the worker was not asked"
        compiler.close()
        with pytest.raises(FieldInvalid, match="not compiled: the model is closed"):
            compiling.result(HANGS_AFTER)


@pytest.mark.long
def test_txt_31_a_worker_that_was_killed_or_left_is_replaced() -> None:
    compiler = _compiler()
    for source in ("ab", "cd", "ef"):
        compiler.compile(_regex(source))
        for child in _workers():
            os.kill(child, signal.SIGKILL)
    assert compiler.compile(_regex("gh")).start().accept(ord("g"))


def _workers() -> list[int]:
    children = Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split()
    return [int(c) for c in children if b"trial_worker" in Path(f"/proc/{c}/cmdline").read_bytes()]


def test_txt_31_a_worker_does_not_ignore_the_signals_that_its_server_ignores() -> None:
    """imp serve ignores SIGALRM, and child processes inherit that: the worker's time limit would never fire."""
    others = set(_workers())
    before = signal.signal(signal.SIGALRM, signal.SIG_IGN)
    try:
        compiler = _compiler()
        compiler.compile(_regex("ab"))
    finally:
        signal.signal(signal.SIGALRM, before)
    (worker,) = set(_workers()) - others
    status = Path(f"/proc/{worker}/status").read_text()
    ignored = int(status.split("SigIgn:")[1].split()[0], 16)
    assert not ignored & (1 << (signal.SIGALRM - 1)) and not ignored & (1 << (signal.SIGPROF - 1))
    compiler.close()


def test_txt_31_a_stop_that_reaches_the_worker_too_ends_no_call() -> None:
    """systemd sends SIGTERM to every process of a service, and the server then drains."""
    others = set(_workers())
    compiler = _compiler()
    compiler.compile(_regex("ab"))
    (worker,) = set(_workers()) - others
    os.kill(worker, signal.SIGTERM)
    compiler.compile(_regex("cd"))
    assert set(_workers()) - others == {worker}
    compiler.close()


@pytest.mark.long
@pytest.mark.parametrize("number", [errno.EAGAIN, errno.ENOMEM])
def test_txt_31_a_process_that_the_system_refuses_is_no_bug(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    compiler = _compiler()
    compiler.compile(_regex("ab"))
    for child in _workers():
        os.kill(child, signal.SIGKILL)
    with monkeypatch.context() as patched, pytest.raises(MemoryError):
        patched.setattr(subprocess, "Popen", refuse)
        compiler.compile(_regex("cd"))
    assert compiler.compile(_regex("cd")).start().accept(ord("c")), "another call may find one"
    compiler.close()


LONG_STRINGS = _schema(
    {
        "type": "object",
        "properties": {f"p{i:02}": {"type": "string", "maxLength": 480 + i} for i in range(20)},
        "additionalProperties": False,
    }
)


def _follow(state: ConstraintState, text: bytes) -> None:
    for byte in text:
        assert state.accept(byte)
        assert any(state.mask())


def test_txt_32_t54_ten_thousand_requests_do_not_wear_a_constraint_out() -> None:
    """The library's states for it run out several times. No request notices."""
    compiler = _compiler()
    program = compiler.compile(LONG_STRINGS)
    rng = random.Random(5)
    shared = {id(program.shared())}
    kept = [program.shared()]
    for request in range(10_000):
        state = compiler.compile(LONG_STRINGS).start()
        assert allowed_ids(state) == [ord("{")]
        n_chars = 300 if request % 100 == 0 else rng.randrange(4)
        text = bytes(rng.choice(b"abcdefghij ABC") for _ in range(n_chars))
        _follow(state, b'{"p%02d":"%b' % (rng.randrange(20), text))
        if id(program.shared()) not in shared:
            shared.add(id(program.shared()))
            kept.append(program.shared())
    assert len(shared) > 3, "nothing wore out: the test tests nothing"


@pytest.mark.long
def test_txt_32_only_the_sequence_that_exhausts_a_program_is_refused() -> None:
    compiler = _compiler()
    costly = _regex("(.*a.{100}|.*b.{99}|.*c.{98}|.*d.{97}|.*e.{93}|.*f.{91}|.*g.{70})")
    program = compiler.compile(costly)
    other = program.start()
    _follow(other, b"xyz")
    spender = program.start()
    rng = random.Random(1)
    with pytest.raises(FieldInvalid, match="needs more memory or time") as caught:
        for _ in range(3000):
            _follow(spender, bytes([rng.choice(b"abcdefg")]))
    assert caught.value.path == "constraint.regex"
    _follow(other, b"xyz")
    _follow(program.start(), b"xyz")


@pytest.mark.long
def test_txt_32_a_sequence_that_moves_to_a_fresh_program_writes_the_same() -> None:
    """Its masks, its end and its rollbacks equal those of a sequence that has its program to itself."""
    shared, own = _compiler().compile(LONG_STRINGS), _compiler().compile(LONG_STRINGS)
    moved, calm = shared.start(), own.start()
    head = b'{"p03":"'
    _follow(moved, head)
    _follow(calm, head)
    before = moved._shared
    for field in range(20):
        _follow(shared.start(), b'{"p%02d":"%b' % (field, b"abcdefgh" * 55))
    for byte in b'some text","p04":"and more"}':
        assert moved.accept(byte) and calm.accept(byte)
        assert allowed_ids(moved) == allowed_ids(calm)
        assert moved.only_end_is_possible == calm.only_end_is_possible
    assert moved._shared is not before, "it never moved: the test tests nothing"
    assert moved.may_end and moved.only_end_is_possible
    moved.rollback(9)
    calm.rollback(9)
    assert allowed_ids(moved) == allowed_ids(calm)
    assert moved.fork().accept(ord("x"))


# Each grows a lexer with many states, many lexemes, or both.
GREEDY = {
    "states": lambda i: _regex(f"[ab]*a[ab]{{{150 + i}}}"),
    "wide states": lambda i: _regex(f"(.*a.{{{100 + i}}}|.*b.{{99}}|.*c.{{98}}|.*d.{{97}}|.*e.{{93}}|.*f.{{91}})"),
    "lexemes": lambda i: _schema(
        {
            "type": "object",
            "properties": {
                f"p{j}": {"type": "string", "pattern": f"^[a-z]{{2,{j % 20 + 2 + i}}}x$"} for j in range(200)
            },
        }
    ),
    "alternatives": lambda i: _regex("|".join(f"w{j}[ab]*{j * 7}.{{{j + i}}}" for j in range(300))),
    "rules": lambda i: _gbnf(
        "root ::= "
        + " | ".join(f"r{j}" for j in range(300))
        + "\n"
        + "\n".join(f'r{j} ::= "k{j}" root? [a-z]{{0,{9 + i}}}' for j in range(300))
    ),
}
MEASURE = """
import ctypes, gc, random, sys
from test_constraint_costs import GREEDY, _compiler, allowed_ids
from imp_service.text.constraints.trial_worker import _Heap
from imp_service.text import FieldInvalid
heap = _Heap()
compiler = _compiler(cache_bytes=int(sys.argv[2]), compile_ms=60_000)
compiler.compile(GREEDY["states"](-100)).start().mask()
gc.collect()
before, counted = heap.n_bytes(), compiler.n_bytes
for i in range(int(sys.argv[3])):
    program = compiler.compile(GREEDY[sys.argv[1]](i))
    for seed in range(4):
        state, rng = program.start(), random.Random(seed)
        try:
            for _ in range(100):
                letters = [t for t in allowed_ids(state) if 97 <= t < 123 or t > 256]
                if not letters or not state.accept(rng.choice(letters)):
                    break
        except FieldInvalid:
            pass
    program = state = None
gc.collect()
print(heap.n_bytes() - before, compiler.n_bytes - counted, compiler.n_bytes)
"""


def _measure(name: str, cache_bytes: int, n: int) -> tuple[int, int, int]:
    """Returns the bytes that a new process holds for `n` constraints, those counted for them, and the total."""
    path = os.pathsep.join([str(Path(__file__).parent), str(Path(__file__).parents[2])])
    run = subprocess.run(
        [sys.executable, "-c", MEASURE, name, str(cache_bytes), str(n)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    held, counted, in_all = map(int, run.stdout.split())
    return held, counted, in_all


@pytest.mark.long
@pytest.mark.parametrize("name", GREEDY)
def test_txt_33_t45_a_program_counts_for_no_less_than_it_holds(name: str) -> None:
    held, counted, _ = _measure(name, 1 << 30, 4)
    assert 0 < held <= counted


@pytest.mark.long
def test_txt_33_t45_the_cache_holds_no_more_than_its_bound() -> None:
    held, _, in_all = _measure("wide states", 32 << 20, 40)
    assert in_all <= 32 << 20
    assert held <= 32 << 20


def test_txt_33_what_is_in_use_counts_until_nobody_uses_it() -> None:
    compiler = _compiler(cache_bytes=0)
    first = compiler.compile(_regex("ab+")).start()
    n_bytes = compiler.n_bytes
    assert n_bytes > 0
    second = compiler.compile(_regex("ab+")).start()
    assert compiler.n_bytes == n_bytes, "found in use, not compiled again"
    del first
    assert compiler.n_bytes == n_bytes
    del second
    assert compiler.n_bytes == 0


@pytest.mark.parametrize("kind", [ConstraintKind.JSON_SCHEMA, ConstraintKind.JSON_OBJECT])
def test_txt_34_white_space_between_two_tokens_of_json_is_bounded_unless_asked_for(kind: ConstraintKind) -> None:
    compiler = _compiler()
    source = '{"type": "object"}' if kind is ConstraintKind.JSON_SCHEMA else ""
    for place in (b"{", b'{"a"', b'{"a":', b'{"a":[', b'{"a":1', b'{"a":1,'):
        for unbounded, blanks, most in (
            (False, b" ", 1),
            (False, b"\t", 0),
            (False, b"\n", 1),
            (False, b"\r\n", 2),
            (False, b"\n" + b" " * 99, 33),
            (False, b"\r\n" + b"\t" * 99, 18),
            (True, b" \n\t\r" * 125, 500),
        ):
            state = compiler.compile(ConstraintSpec(kind, source, unbounded_whitespace=unbounded)).start()
            _follow(state, place)
            n_blanks = 0
            while n_blanks < 500 and state.accept((blanks + b"\n" * 500)[n_blanks]):
                n_blanks += 1
            assert n_blanks == (most if blanks != b"\t" else 0), (place, blanks)
    pretty = json.dumps({"a": [{"b": [1, {"c": [None]}]}]}, indent=4)
    for text in (pretty, pretty.replace("\n", "\r\n"), pretty.replace("    ", "\t")):
        _follow(compiler.compile(ConstraintSpec(kind, source)).start(), text.encode())


AMBIGUOUS = ConstraintSpec(ConstraintKind.GBNF, 'root ::= root root root | "a" root "a" | "a" root | root "a" | "a"')


@pytest.fixture
def program() -> Iterator[ConstraintProgram]:
    """A grammar whose every text has many derivations."""
    tokenizer = Tokenizer.from_metadata(byte_level())
    compiler = ConstraintCompiler(tokenizer, vocab_size=tokenizer.vocab_size, limits=TextLimits())
    yield compiler.compile(AMBIGUOUS)
    compiler.close()


@pytest.mark.long
def test_txt_32_an_ambiguous_grammar_ends_before_its_masks_take_long(
    program: ConstraintProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cost of its rows grows with the text, which the library's own limits do not cover."""
    monkeypatch.setattr(state_module, "MASK_SECONDS", 0.01)

    def last_of_all() -> float:
        """Returns the processor time of the output that ends the sequence."""
        state, began = program.start(), 0.0
        with pytest.raises(FieldInvalid, match="needs more memory or time"):
            for _ in range(100_000):
                began = time.thread_time()
                assert state.accept(ord("a"))
                state.mask()
        return time.thread_time() - began

    # The cost grows in small steps, so the one that exceeds the limit is not far above it. Several attempts: another
    # process may disturb one.
    assert any(0.01 < last_of_all() < 0.2 for _ in range(ATTEMPTS))


def test_txt_32_a_mask_that_takes_longer_than_the_limit_ends_its_sequence(
    program: ConstraintProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock is a stand-in: each mask takes as long as the test says."""
    clock = SimpleNamespace(thread_time=lambda: next(times))
    state = program.start()
    limit = 0.125
    monkeypatch.setattr(state_module, "MASK_SECONDS", limit)
    monkeypatch.setattr(state_module, "time", clock)
    times = iter([1.0, 1.0 + limit, 2.0, 2.0 + limit, 3.0, 3.25])
    for _ in range(2):
        assert any(state.mask())
        assert state.accept(ord("a"))
    with pytest.raises(FieldInvalid, match="needs more memory or time") as caught:
        state.mask()
    assert caught.value.path == "constraint.gbnf"
    assert list(times) == [], "three masks were computed"
