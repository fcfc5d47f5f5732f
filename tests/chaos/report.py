"""What a run found: which requests were lost or altered, and how long recovery took, by role and kind of fault."""

import dataclasses
import math

# A stream's tokens that were on their way when the fault came still arrive.
ON_THE_WAY = 0.05
BARS = [  # role, kind, seconds at the 99th percentile
    ("prefill", "kill", 0.5),
    ("decode", "kill", 0.5),
    ("prefill", "stop", 3.0),
    ("decode", "stop", 3.0),
]


def percentile(values, share):
    """Nearest rank. None: there are no values."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)] if values else None


def next_token(asked, at):
    """Returns the seconds from a fault to the stream's next token. None: the stream was over, had not begun, or never went on."""
    if not asked.stream or asked.begun > at or (asked.ended and asked.ended < at):
        return None
    return next((when - at for when in asked.times if when > at + ON_THE_WAY), None)


def was_on(asked, strike):
    """The stream had this worker when it was hurt. Replies name the first decode worker of a stream, and the prefill worker that succeeded; a stream
    that waits for its first token then may have been at either one."""
    started = bool(asked.times) and asked.times[0] <= strike.at
    if strike.role == "decode":
        return started and asked.decode == strike.name
    return strike.role == "prefill" and not started


def next_answer(requests, strike):
    """Returns the seconds from the fault to the first token of a request that began after it."""
    found = [asked.times[0] for asked in requests if asked.begun >= strike.at and asked.times and asked.outcome == "right"]
    return min(found) - strike.at if found else None


def slowest_answer(requests, strike, seconds=2.0):
    """Returns the longest wait for the first token of a request that began within some seconds after the fault."""
    found = [asked.times[0] - asked.begun for asked in requests if strike.at <= asked.begun <= strike.at + seconds and asked.times]
    return max(found, default=None)


@dataclasses.dataclass
class Recovery:
    strike: object
    tokens: list  # Seconds, of each stream that was on the process.
    slow: list  # The streams that took longer than half a second.
    answer: float
    slowest: float


def recovery(requests, strike):
    near = [asked for asked in requests if asked.begun < strike.at + 60 and (not asked.ended or asked.ended > strike.at)]
    streams = [(asked, taken) for asked in near if was_on(asked, strike) and (taken := next_token(asked, strike.at)) is not None]
    slow = [asked for asked, taken in streams if taken > 0.5]
    return Recovery(strike, [taken for _, taken in streams], slow, next_answer(near, strike), slowest_answer(near, strike))


def judge(requests, strikes):
    """Returns the requests by what became of them."""
    found = {"right": [], "apart": [], "lost": [], "altered": []}
    for asked in requests:
        if asked.outcome in ("broken", "refused"):
            found["apart" if any(strike.ended_router_of(asked) for strike in strikes) else "lost"].append(asked)
        elif asked.outcome:
            found[asked.outcome].append(asked)
    return found


def figures(values):
    values = [value for value in values if value is not None]
    return {"count": len(values), **{name: percentile(values, share) for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0))}}


def rows(recoveries):
    """Returns one row for each role and kind of fault. Faults with a peer at hand count, and those of roles that have no peers."""
    grouped = {}
    for each in recoveries:
        strike = each.strike
        alone = strike.role in ("launcher", "agent", "nobody")
        if alone or strike.peer_at_hand:
            grouped.setdefault((strike.role, strike.kind), []).append(each)
    return [
        {
            "role": role,
            "kind": kind,
            "faults": len(group),
            "replaced": sum(each.strike.replaced for each in group),
            "next_token": figures([seconds for each in group for seconds in each.tokens]),
            "next_answer": figures([each.answer for each in group]),
            "slowest_answer": figures([each.slowest for each in group]),
            "well_again": figures([each.strike.well_at - each.strike.at for each in group]),
        }
        for (role, kind), group in sorted(grouped.items())
    ]


def seconds(value):
    return "-" if value is None else f"{value:.2f}"


def table(found):
    """Returns the rows as a Markdown table."""
    head = "| process | fault | faults | replaced | streams on it | next token p50 | p99 | longest | next answer p50 | p99 | slowest answer p99 | all well p50 |"
    lines = [head, "|---|---|" + "---:|" * 10]
    for row in found:
        token, answer = row["next_token"], row["next_answer"]
        cells = [row["role"], row["kind"], row["faults"], row["replaced"], token["count"], *(seconds(token[key]) for key in ("p50", "p99", "max"))]
        cells += [*(seconds(answer[key]) for key in ("p50", "p99")), seconds(row["slowest_answer"]["p99"]), seconds(row["well_again"]["p50"])]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def bars(found):
    """Returns for each bar: the row's words, the bar, what was measured, and whether it held."""
    by_fault = {(row["role"], row["kind"]): row for row in found}
    for role, kind, bar in BARS:
        row = by_fault.get((role, kind))
        if row:
            worst = max((row[name]["p99"] or 0.0 for name in ("next_token", "next_answer")), default=0.0)
            yield role, kind, bar, worst, worst < bar
