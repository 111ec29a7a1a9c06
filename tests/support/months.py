"""Simulates months of one partition in seconds: senders, outages, unavailable targets. All choices follow one seed.

When the owner has nothing to do in a turn, time jumps to the next event.
"""

from math import exp, log
from random import Random

from tarry.core.progress.checkpoint import decode_checkpoint
from tarry.core.wheel.filed import due_ms_of
from tarry.core.window.parked import PARK_AFTER_MS
from tests.support.owner import DAY_MS, GEOMETRY, LONGEST_MS, Owner

TARGETS = ("orders", "bills")
START_MS = 1_700_000_000_000


class Months(Owner):
    """One run.

    Args:
        seed: the seed of all random choices.
        days: how long messages are sent.
        messages: about how many messages are sent.
    """

    def __init__(self, seed: int, days: float, messages: int) -> None:
        choose = Random(seed)
        super().__init__(choose, START_MS + choose.randrange(10**9))
        ends_ms = self.now_ms + int(days * DAY_MS)
        self.plan = sorted(choose.randint(self.now_ms, ends_ms) for _ in range(messages // 8))

    def run(self) -> None:
        """Run until all messages have left and all levels are empty."""
        for _ in range(200_000):
            if self.plan and self.plan[0] <= self.now_ms:
                del self.plan[0]
                self.send_some()
            if not self.turn() and not self.pass_time():
                return
        raise AssertionError(f"it does not come to an end: {self.judge.waiting()} messages wait")

    def send_some(self) -> None:
        """Send one message or several together; some are cancelled soon or late, and some are sent twice."""
        choose = self.choose
        longest_ms = exp(choose.uniform(0, log(LONGEST_MS)))
        many = choose.choice((1, 1, 2, 3, 10, 100 if choose.random() < 0.15 else 20))
        spread_ms = choose.choice((0, 0, 5_000, 3_600_000))
        for _ in range(many):
            delay_ms = min(LONGEST_MS, int(longest_ms) + choose.randint(0, spread_ms))
            self.send(delay_ms, choose.choice(TARGETS))
        for _ in range(choose.choice((0, 0, 1, 2))):
            self.cancel(choose.choice(list(self.intake)[-40:]))

    def pass_time(self) -> bool:
        """Jump to the next event; return whether there is one."""
        times = [self.state.next_due_ms(), *self.plan[:1]]
        closed_ms = decode_checkpoint(self.store.offset[1]).closed_ms if self.store.offset else ()
        for level in range(1, GEOMETRY.levels + 1):
            of_level, width_ms = self.levels[level], GEOMETRY.width_of(level)
            dues = {due_ms_of(one.headers) for one in of_level.records.values()}
            starts = {due_ms // width_ms * width_ms for due_ms in dues if due_ms >= closed_ms[level - 1]}
            times += [start_ms - width_ms for start_ms in starts]
        times += [self.now_ms + PARK_AFTER_MS] if self.away and self.state.parked else []
        ahead = [at_ms for at_ms in times if at_ms is not None and at_ms > self.now_ms]
        if not self.plan and not self.judge.waiting() and not any(log.left for log in self.levels.values()):
            return False
        if not self.calm and self.choose.random() < 0.02:
            self.take_away_or_bring_back()
        if not self.calm and self.choose.random() < 0.04:
            self.outage()
        elif ahead and self.choose.random() < 0.7:
            self.now_ms = min(ahead)
        else:
            self.now_ms += self.choose.choice((1, 1_000, 5_000, 20_000))
        self.calm = not self.plan and not ahead
        if self.calm:
            self.away.clear()
            self.cannot_trim = False
        return True

    def take_away_or_bring_back(self) -> None:
        self.away = set() if self.away else {self.choose.choice(TARGETS)}
        self.apart |= self.away
        self.cannot_trim = self.choose.random() < 0.3

    def outage(self) -> None:
        """No owner serves for seconds or weeks; sometimes the group's offsets are lost meanwhile."""
        self.now_ms += int(exp(self.choose.uniform(log(1_000), log(14 * DAY_MS))))
        while self.plan and self.plan[0] <= self.now_ms:
            del self.plan[0]
            self.send_some()
        self.crash()
