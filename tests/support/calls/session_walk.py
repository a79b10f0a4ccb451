"""Random calls on the sessions of two clients, which are to give the same: one of them loses its sessions."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from imp_service import CacheOptions, Chunk, Error, SessionStep, StepOptions, StepOutput, Timings
from imp_service.api.replies import GenerationResult

PROMPTS = ("Once upon a time", "The weather today", "naïve café, 日本語 🙂 🙂", " 3 plus 4 is", [301, 256, 11])
# Texts of several tokens a character, which a mask makes the model write.
SPELLED = "a🙂é日🙂"
MOST_HELD = 200
NO_TIME = Timings(0, 0, 0)
Twins = tuple[Any, Any]


def told(output: StepOutput | Error) -> str:
    """Returns an output without its times and what was cached, or the reason of an error."""
    if isinstance(output, Error):
        return output.reason
    whole = replace(output, timings=NO_TIME, cached_tokens=0, held_scores=None)  # type: ignore[arg-type]
    return repr((asdict(whole), output.scores))


def whole(result: GenerationResult) -> str:
    """Returns what decides a generation: not how often it went on."""
    return repr((result.token_ids, result.text, result.logprobs, result.finish_reason, result.match, result.seed))


class SessionWalk:
    """`plain` and `moved` are two clients. Before each call `disturb` may take the sessions of `moved` away."""

    def __init__(self, plain: Any, moved: Any, seed: int, disturb: Callable[[], None]) -> None:
        self._clients = (plain, moved)
        self._random = random.Random(seed)
        self._disturb = disturb
        self._sessions: list[Twins] = []
        self._n_tokens = plain.num_tokens
        self._spelled = plain.tokenize(SPELLED, add_special_tokens=False)
        self._acts = [self.prefill, self.step, self.step, self.step, self.given, self.resampled, self.masked,
                      self.silent, self.generate, self.generate, self.left_early, self.fork, self.truncate,
                      self.together, self.wrong]  # fmt: skip

    def go(self, n_calls: int) -> list[str]:
        """Makes so many calls, compares what each gives, and returns it."""
        seen = []
        for _ in range(n_calls):
            if len(self._sessions) < 2 or (len(self._sessions) < 4 and self._random.random() < 0.1):
                self._open()
            self._disturb()
            act = self._random.choice(self._acts)
            twins = self._random.choice(self._sessions)
            options = act(twins)
            seen.append(act.__name__ if options is None else options)
        return seen

    def close(self) -> None:
        """Closes the sessions."""
        for twins in self._sessions:
            for session in twins:
                session.close()

    def _open(self) -> None:
        chance = self._random
        sampling: dict[str, Any] = {"temperature": chance.choice([0, 0.8, 1.3]), "seed": chance.randrange(99)}
        if chance.random() < 0.5:
            sampling |= {"frequency_penalty": 0.7, "repetition_penalty": 1.2, "penalty_window": 8}
        if chance.random() < 0.3:
            sampling |= {"logit_bias": {chance.randrange(self._n_tokens): 3.0}, "top_p": 0.9}
        cache = CacheOptions(salt="walk")
        twins = tuple(each.open(**sampling, cache=cache, tenant=name) for each, name in
                      zip(self._clients, ("plain", "moved"), strict=True))  # fmt: skip
        self._sessions.append((twins[0], twins[1]))
        self.prefill(self._sessions[-1])

    def _same(self, twins: Twins, call: Callable[[Any], Any], show: Callable[[Any], str] = told) -> str:
        """Makes a call on both sessions, and compares what they give and hold."""
        found = []
        for session in twins:
            try:
                given = show(call(session))
            except Error as error:
                given = error.reason
            found.append((given, session.position, session.seed))
        assert found[0] == found[1], found
        return str(found[0][0])

    def _options(self) -> dict[str, Any]:
        chance = self._random.random()
        if chance < 0.15:
            return {"scores": True, "top_logprobs": 2}
        return {"top_logprobs": 3} if chance < 0.3 else {"logits": True} if chance < 0.4 else {}

    def prefill(self, twins: Twins) -> str:
        if twins[0].position > MOST_HELD:
            return self.truncate(twins)
        prompt, options = self._random.choice(PROMPTS), self._options()
        if self._random.random() < 0.4:
            options["base"] = self._random.randrange(twins[0].position + 2)
        if self._random.random() < 0.2:
            options |= {"seed": self._random.randrange(99), "temperature": 1.0}
        return self._same(twins, lambda session: session.prefill(prompt, **options))

    def step(self, twins: Twins) -> str:
        options = self._options()
        return self._same(twins, lambda session: session.decode_step(**options))

    def given(self, twins: Twins) -> str:
        tokens = [self._random.randrange(self._n_tokens) for _ in range(self._random.randint(1, 4))]
        options = self._options()
        return self._same(twins, lambda session: session.decode_step(tokens, **options))

    def resampled(self, twins: Twins) -> str:
        sampling = {"temperature": 1.1, "seed": self._random.randrange(99), "presence_penalty": 0.5}
        return self._same(twins, lambda session: session.decode_step(**sampling))

    def masked(self, twins: Twins) -> str:
        """Steps that write characters of several tokens; what follows may disturb them in the middle."""
        mask = bytearray(-(-self._clients[0].vocab_size // 8))
        for token in self._spelled:
            mask[token >> 3] |= 1 << (token & 7)
        return self._same(twins, lambda session: session.decode_step(allowed_token_mask=bytes(mask)))

    def silent(self, twins: Twins) -> str:
        return self._same(twins, lambda session: session.decode_step(sample=False))

    def _generation(self) -> dict[str, Any]:
        chance = self._random
        options: dict[str, Any] = {"max_tokens": chance.randint(1, 12), "logprobs": True}
        if chance.random() < 0.3:
            options |= {"temperature": 1.2, "seed": chance.randrange(99)}
        if chance.random() < 0.3:
            options["choices"] = ["Once there was a cat", "Once there was a tree", "No"]
        elif chance.random() < 0.3:
            options |= {"stop": [" the", "a"], "min_tokens": 1}
        elif chance.random() < 0.3:
            options["ignore_eos"] = True
        return options

    def generate(self, twins: Twins) -> str:
        options = self._generation()
        return self._same(twins, lambda session: session.generate(**options).result(), whole)

    def left_early(self, twins: Twins) -> str:
        """Both leave a generation in the middle. How much they have read by then is not the same."""
        options, before = self._generation() | {"max_tokens": 12}, twins[0].position
        read: list[list[int]] = []
        for session in twins:
            ids: list[int] = []
            try:
                with session.generate(**options) as generation:
                    for reply in generation:
                        ids += reply.token_ids if isinstance(reply, Chunk) else []
                        if ids:
                            break
            except Error as error:
                assert error.reason == "NO_PENDING_TOKEN"
            read.append(ids)
        n_both = min(map(len, read))
        assert read[0][:n_both] == read[1][:n_both] and twins[0].seed == twins[1].seed
        if read[0]:
            position = min(session.position for session in twins)
            assert position >= before
            self._same(twins, lambda session: session.truncate(position - 1), repr)
        return repr(read[0][:n_both])

    def fork(self, twins: Twins) -> str:
        position = None if self._random.random() < 0.5 else self._random.randrange(twins[0].position + 1)
        forks = (twins[0].fork(position), twins[1].fork(position))
        assert forks[0].position == forks[1].position
        if len(self._sessions) == 4:
            for session in self._sessions.pop(self._random.randrange(4)):
                session.close()
        self._sessions.append(forks)
        return self.step(forks) if position is None else self.given(forks)

    def truncate(self, twins: Twins) -> str:
        position = self._random.randrange(min(twins[0].position, 100) + 1)
        return self._same(twins, lambda session: session.truncate(position), repr)

    def together(self, twins: Twins) -> str:
        """One step of all sessions."""
        step = StepOptions(top_logprobs=self._random.randrange(3))
        tokens = [301] if self._random.random() < 0.3 else []
        found = []
        for i, client in enumerate(self._clients):
            outputs = client.decode_step([SessionStep(each[i], tokens, step) for each in self._sessions])
            found.append(list(map(told, outputs)))
        assert found[0] == found[1], found
        return repr(found[0])

    def wrong(self, twins: Twins) -> str:
        """Calls that are refused, and change nothing."""
        self._same(twins, lambda session: session.truncate(10**6), repr)
        self._same(twins, lambda session: session.prefill("a", position=10**6))
        return self._same(twins, lambda session: session.decode_step([10**7]))
