"""Carries out the faults of a plan, one after the other, and notes when each began and how the job recovered."""

import dataclasses
import signal
import time

PULSE_STOPPED, PULSE_RUNS = 0.08, 0.02
WELL_SECONDS = 120.0  # The job must have recovered by then.


@dataclasses.dataclass
class Strike:
    """A fault that happened."""

    number: int
    role: str
    kind: str
    name: str = ""
    at: float = 0.0  # Monotonic.
    peer_at_hand: bool = False  # Another ready process of this role, and nobody else was hurt until all was well.
    replaced: bool = False  # A new process took its place.
    outlived: bool = False  # It was stopped for all the time that the plan allows, and nobody replaced it.
    well_at: float = 0.0  # All were ready again, monotonic.
    before: dict = dataclasses.field(default_factory=dict)  # Pids, by name.
    clients: dict = dataclasses.field(default_factory=dict)  # Of a router: when each client's port was last seen on it.

    def to_json(self, zero):
        times = {"at": round(self.at - zero, 3), "well_at": round(self.well_at - zero, 3)}
        return {"role": self.role, "kind": self.kind, "name": self.name, "replaced": self.replaced, "peer_at_hand": self.peer_at_hand, **times}

    def ended_router_of(self, asked):
        """A router that died by this fault had this request's connection, or would have got it."""
        if not self.replaced:
            return False
        if self.role == "agent":  # All routers and their doors ended with it.
            return asked.begun <= (self.well_at or float("inf")) and asked.ended >= self.at
        return self.clients.get(asked.port, 0.0) >= asked.connected


class Striker:
    def __init__(self, job):
        self.job, self.strikes = job, []

    def run(self, faults, over, on_end):
        """Until `over()`. `on_end(strike)` is called once the job has recovered from it."""
        well = True
        for number, fault in enumerate(faults, start=1):
            if not (fault.hurried and self.strikes):
                well = self.recovered(on_end)
                _sleep(fault.before, over)
            if over() or not well:
                break
            self._strike(number, fault, well and not fault.hurried)
        return self.recovered(on_end)

    def _strike(self, number, fault, alone):
        strike = Strike(number, fault.role, fault.kind)
        targets = [] if fault.role == "nobody" else self.job.targets(fault.role)
        if not targets and fault.role != "nobody":
            return  # Nobody is left to hurt: the fault before is not over.
        target = targets[int(fault.pick * len(targets))] if targets else None
        strike.name = target.name if target else "nobody"
        strike.peer_at_hand = alone and len(targets) > 1
        if target:
            for earlier in self.strikes:
                earlier.peer_at_hand = earlier.peer_at_hand and earlier.well_at > 0
        strike.before = self.job.pids()
        self.strikes.append(strike)
        strike.at = time.monotonic()
        try:
            if target:
                getattr(self, f"_{fault.kind}")(strike, target, fault)
            else:
                time.sleep(1.0)
        finally:
            [each.close() for each in targets]

    def recovered(self, on_end):
        """Waits until all is well, and notes it of each fault since the last time. False: it does not get well."""
        unhurt = ("launcher", "nobody")
        ended = [strike for strike in self.strikes if not strike.well_at and strike.kind in ("kill", "stop") and strike.role not in unhurt]
        well = self.job.wait_well(WELL_SECONDS, lambda: all(self._replaced(strike) for strike in ended if not strike.outlived))
        for strike in self.strikes:
            if not strike.well_at:
                strike.replaced = self._replaced(strike) and (strike.kind in ("kill", "stop") or not self._hurt_again(strike))
                strike.well_at = time.monotonic()
                on_end(strike)
        return well

    def _replaced(self, strike):
        hurt = {name: pid for name, pid in self.job.pids().items() if _belongs(name, strike)}
        return bool(hurt) and all(pid != strike.before.get(name) for name, pid in hurt.items())

    def _hurt_again(self, strike):
        """What replaced it was perhaps not this fault."""
        return any(later.number > strike.number and _belongs(strike.name, later) for later in self.strikes)

    # --- the kinds of faults

    def _hold(self, strike, target):
        target.stop()
        if target.role == "router":
            strike.clients.update(self.job.clients_of(target))

    def _kill(self, strike, target, fault):
        self._hold(strike, target)
        strike.at = time.monotonic()
        target.signal(signal.SIGKILL)
        if target.role == "launcher":
            self.job.child.wait()
            time.sleep(fault.restart)
            self.job.start_launcher()
        while target.alive():
            time.sleep(0.001)

    def _stop(self, strike, target, fault):
        self._hold(strike, target)
        strike.at = time.monotonic()
        while target.alive() and time.monotonic() < strike.at + fault.seconds:
            time.sleep(0.01)
        strike.outlived = target.alive()
        target.signal(signal.SIGCONT)

    _pause = _stop

    def _slow(self, strike, target, fault):
        strike.at = time.monotonic()
        while target.alive() and time.monotonic() < strike.at + fault.seconds:
            self._hold(strike, target)
            time.sleep(PULSE_STOPPED)
            target.signal(signal.SIGCONT)
            time.sleep(PULSE_RUNS)


def _belongs(name, strike):
    """The process was hurt itself, or ends with the one that was. (An agent may end what it runs, and live.)"""
    return name == strike.name or (strike.role == "agent" and name not in ("launcher", "agent"))


def _sleep(seconds, over):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not over():
        time.sleep(0.02)
