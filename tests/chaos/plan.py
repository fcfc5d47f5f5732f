"""The plan of a run: which faults, in which order, how long and how far apart. The seed decides all of it, and the job decides nothing."""

import dataclasses
import random

KINDS = {
    "kill": "SIGKILL",
    "stop": "SIGSTOP for longer than detection takes",
    "pause": "SIGSTOP for a moment",
    "slow": "stopped four fifths of the time",
    "nothing": "nothing, to compare with",
}

# A deck holds each fault so many times. Long runs take one shuffled deck after the other.
DECK = {
    ("prefill", "kill"): 4,
    ("decode", "kill"): 4,
    ("router", "kill"): 2,
    ("launcher", "kill"): 2,
    ("agent", "kill"): 1,
    ("prefill", "stop"): 2,
    ("decode", "stop"): 2,
    ("router", "stop"): 1,
    ("launcher", "stop"): 1,
    ("agent", "stop"): 1,
    ("prefill", "pause"): 1,
    ("decode", "pause"): 1,
    ("router", "pause"): 1,
    ("launcher", "pause"): 1,
    ("agent", "pause"): 1,
    ("prefill", "slow"): 1,
    ("decode", "slow"): 1,
    ("router", "slow"): 1,
    ("launcher", "slow"): 1,
    ("agent", "slow"): 1,
    ("nobody", "nothing"): 3,
}
SECONDS = {"stop": (20.0, 20.0), "pause": (0.1, 0.8), "slow": (2.0, 5.0)}
LAUNCHER_STOP_SECONDS = (2.0, 8.0)  # Nobody replaces a stopped launcher, so it goes on after a while.


@dataclasses.dataclass(frozen=True)
class Fault:
    role: str
    kind: str
    pick: float  # Which of the role's processes: 0 to 1.
    seconds: float  # stop: at most. pause and slow: exactly.
    restart: float  # Seconds until a killed launcher is started again.
    before: float  # Quiet seconds before the fault.
    hurried: bool  # It begins before the job has recovered from the one before.


def plan(seed, deck=None):
    """Yields faults without end."""
    draw = random.Random(seed)
    cards = [card for card, count in (deck or DECK).items() for _ in range(count)]
    while True:
        draw.shuffle(cards)
        for role, kind in list(cards):
            bounds = LAUNCHER_STOP_SECONDS if (role, kind) == ("launcher", "stop") else SECONDS.get(kind, (0.0, 0.0))
            yield Fault(
                role=role,
                kind=kind,
                pick=draw.random(),
                seconds=draw.uniform(*bounds),
                restart=draw.uniform(0.1, 1.5),
                before=draw.uniform(0.5, 2.0),
                hurried=draw.random() < 0.1,
            )
