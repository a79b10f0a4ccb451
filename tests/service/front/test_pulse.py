"""Which engine processes count as hung. The clock is the test's."""

from __future__ import annotations

from imp_service.front.supervision.pulse import LONGEST_SILENCE, LONGEST_START, ProbeAnswer, Pulse


class Machine:
    """A clock, and what keeps the process from running: a share of each second."""

    def __init__(self, share_held: float = 0.0) -> None:
        self.now = 50.0
        self.share_held = share_held
        self._before = self.now
        self.pulse = Pulse(lambda: self.now, self._held_back)

    def _held_back(self) -> float:
        passed, self._before = self.now - self._before, self.now
        return passed * self.share_held

    def seconds_until_hung(self, step: float = 1.0, most: float = 200.0) -> float:
        """The seconds of silence after which the process counts as hung; `most` if it never does."""
        begin = self.now
        while self.now - begin < most:
            if self.pulse.why_hung():
                return self.now - begin
            self.now += step
            self.pulse.tick()
        return most


def served(share_held: float = 0.0) -> Machine:
    machine = Machine(share_held)
    machine.pulse.answered(ProbeAnswer.ALIVE, serves=True)
    return machine


def test_iso_6_c02_a_process_hangs_after_five_seconds_and_three_more_questions() -> None:
    assert 5.0 <= LONGEST_SILENCE <= 8.0
    machine = served()
    assert machine.seconds_until_hung() == LONGEST_SILENCE
    assert machine.pulse.why_hung() == "no answer to /health/live for 7 s"
    assert served().seconds_until_hung(step=0.25) == LONGEST_SILENCE


def test_iso_6_an_answer_ends_the_silence() -> None:
    machine = served()
    for _ in range(100):
        machine.now += 6.0
        for _ in range(3):
            machine.pulse.tick()
        machine.pulse.answered(ProbeAnswer.ALIVE, serves=True)
        assert not machine.pulse.why_hung()


def test_iso_6_a_process_that_loads_its_model_has_longer() -> None:
    assert Machine().seconds_until_hung() == LONGEST_START
    machine = Machine()
    machine.pulse.answered(ProbeAnswer.ALIVE, serves=False)
    assert machine.seconds_until_hung() == LONGEST_START


def test_iso_6_y25_a_machine_that_sleeps_and_a_clock_that_jumps_are_no_hang() -> None:
    machine = served()
    for jump in (3600.0, -3600.0, 10.0**7, 0.0):
        machine.now += jump
        machine.pulse.tick()
        assert not machine.pulse.why_hung(), jump
        machine.pulse.answered(ProbeAnswer.ALIVE, serves=True)


def test_iso_6_y25_seconds_in_which_it_could_not_run_count_less() -> None:
    assert served(0.5).seconds_until_hung() == 2 * LONGEST_SILENCE
    # However little it gets, a process that never answers is found.
    for share in (0.95, 1.0, 7.5):
        assert 9 * LONGEST_SILENCE <= served(share).seconds_until_hung() <= 11 * LONGEST_SILENCE


def test_iso_6_c02_an_engine_that_makes_no_step_is_found_by_its_own_answer() -> None:
    pulse = served().pulse
    for n in range(3):
        assert not pulse.why_hung(), n
        pulse.answered(ProbeAnswer.STUCK, serves=True)
    assert pulse.why_hung() == "its engine makes no step"
    pulse.answered(ProbeAnswer.ALIVE, serves=True)
    assert not pulse.why_hung()
