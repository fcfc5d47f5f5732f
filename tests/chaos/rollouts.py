"""Rollouts while a trainer changes the weights, and while a process is killed in each phase of the changes.

A version says which of two sets of weights it names, so each token can be checked: its span's version must be one that was ordered, and the token must
be the one that this set alone makes after the same tokens. Tokens of KV of other weights would be others.
"""

import collections
import contextlib
import dataclasses
import http.client
import itertools
import json
import os
import pathlib
import queue
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.parse

HERE = pathlib.Path(__file__).resolve().parent
sys.path += [str(HERE), str(HERE.parent / "integration")]
from gguf_weights import swap_layers  # noqa: E402
from job import MARK, Job  # noqa: E402

SETS = ("a", "b")
MODES = ("abort", "wait", "keep")  # What others call retract and in_place is keep.
PHASES = ("prepare", "close", "apply", "verify", "publish", "reopen")
# The launcher's words for them.
WORDS = {"prepare": "preparing", "close": "closing", "apply": "applying", "verify": "applying"}
ORDER = ("idle", "preparing", "closing", "applying", "published")
VICTIMS = ("prefill", "decode", "router", "launcher")
FORMS = ("generate", "generate stream", "completions", "completions stream", "tokens")
LENGTHS = (8, 12, 16)
ENGINE = "kv_type: q8_0, threads: 1, tokens_per_sequence: 1024, sequences: 8"
PROMPT_TEXTS = [
    "The capital of France is a city that",
    "Once upon a time there was a small boat on a wide river, and its captain",
    "A list of three things that every garden needs, with the reasons for each of them:",
    "The sea is",
    "Question: what is the sum of two and two? Answer:",
    "In the winter of that year the old market was closed, and nobody in the town could say when",
]
ANSWER_SECONDS = 120.0  # Of one request.
ORDER_SECONDS = 180.0  # Of one order, with all repetitions.
HEAL_SECONDS = 120.0


def yaml(folder, model, weights, workers):
    return f"""\
name: rollouts
mode: rollout
model: {model}
served_name: smollm2
engine: {{{ENGINE}}}
prefill: {{workers: {workers}}}
decode: {{workers: {workers}}}
rollout: {{weights_dir: {weights}, control: same_address}}
router: {{listen: "127.0.0.1:0", queue_timeout: 120s}}
launcher: {{orphan_timeout: 10min, state_dir: {folder}/state, log_dir: {folder}/logs}}
"""


def ask(url, method, path, body=None, headers=None, seconds=ANSWER_SECONDS):
    """Returns the status and the body."""
    address = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=seconds)
    try:
        connection.request(method, path, None if body is None else json.dumps(body), {"Content-Type": "application/json", **(headers or {})})
        reply = connection.getresponse()
        return reply.status, reply.read().decode(errors="replace")
    finally:
        connection.close()


class References:
    """For each set of weights, one process alone that nobody hurts. It says which tokens these weights make after given ones."""

    def __init__(self, binary, folder, files):
        self._binary, self._folder, self._files = binary, folder, files
        self._urls, self._children, self._known = {}, [], {}

    def __enter__(self):
        settings = [word for setting in [*ENGINE.split(", "), "prefix_cache: false"] for word in ("--set", self._setting(setting))]
        for which, file in self._files.items():
            log = open(pathlib.Path(self._folder) / f"reference-{which}.log", "wb")
            argv = [self._binary, "worker", "--role", "both", "--model", str(file), "--listen", "127.0.0.1:0", *settings, "--set", "served_name=smollm2"]
            child = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True)
            log.close()
            self._children.append(child)
            url = next((line.strip().removeprefix("ready url=") for line in child.stdout if line.startswith("ready url=")), None)
            assert url, f"the reference does not start: {log.name}"
            self._urls[which] = url
        return self

    def __exit__(self, *_):
        for child in self._children:
            child.terminate()
            child.wait(60)

    @staticmethod
    def _setting(setting):
        key, value = setting.split(": ")
        return f"decode.{key}={value}" if key == "prefix_cache" else f"engine.{key}={value}"

    def tokenize(self, text):
        status, told = ask(self._urls["a"], "POST", "/tokenize", {"prompt": text})
        assert status == 200, told
        return json.loads(told)["tokens"]

    def after(self, which, before, count):
        key = (which, tuple(before))
        if len(self._known.get(key, [])) < count:
            params = {"max_new_tokens": max(count, *LENGTHS), "temperature": 0, "ignore_eos": True}
            status, told = ask(self._urls[which], "POST", "/generate", {"input_ids": before, "sampling_params": params})
            assert status == 200, told
            self._known[key] = json.loads(told)["output_ids"]
        return self._known[key][:count]


# --- rollouts


@dataclasses.dataclass
class Piece:
    """An answer to one request: all of a rollout, or what an abort left of it."""

    prompt: list
    tokens: list
    spans: list  # {"version", "start", "end"}
    logprobs: int | None  # How many.
    begun: float
    ended: float


@dataclasses.dataclass
class Rollout:
    number: int
    prompt: list
    length: int
    form: str
    pieces: list = dataclasses.field(default_factory=list)
    again: list = dataclasses.field(default_factory=list)  # Why it was asked once more.
    failure: str = ""

    def tokens(self):
        return [token for piece in self.pieces for token in piece.tokens]


class Broken(Exception):
    """The connection ended too early, so the request must be sent again."""


class Clients:
    """Threads that take rollouts from a queue until each has all its tokens, as a trainer's do: broken connections are tried again, and an aborted
    answer is continued from its tokens."""

    def __init__(self, url, rollouts, threads):
        self.url, self.rollouts = url, rollouts
        self.done = 0
        self._waiting = queue.SimpleQueue()
        [self._waiting.put(rollout) for rollout in rollouts]
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(threads)]

    def start(self):
        [thread.start() for thread in self._threads]

    def join(self, seconds):
        deadline = time.monotonic() + seconds
        [thread.join(max(0.0, deadline - time.monotonic())) for thread in self._threads]

    def _run(self):
        with contextlib.suppress(queue.Empty):
            while True:
                rollout = self._waiting.get_nowait()
                try:
                    self._finish(rollout)
                except Exception as error:  # Each failure is the judge's to report.
                    rollout.failure = repr(error)
                with self._lock:
                    self.done += 1

    def _finish(self, rollout):
        deadline = time.monotonic() + 2 * ANSWER_SECONDS
        while len(rollout.tokens()) < rollout.length:
            if time.monotonic() > deadline:
                rollout.failure = f"not done in {2 * ANSWER_SECONDS} s: {rollout.again}"
                return
            try:
                rollout.pieces.append(self._ask(rollout))
            except (OSError, http.client.HTTPException, Broken) as error:
                rollout.again.append(repr(error))
                time.sleep(0.05)

    def _ask(self, rollout):
        prompt, left = rollout.prompt + rollout.tokens(), rollout.length - len(rollout.tokens())
        begun = time.monotonic()
        greedy = {"temperature": 0, "ignore_eos": True}
        stream = rollout.form.endswith("stream")
        if rollout.form.startswith("generate"):
            body = {"input_ids": prompt, "sampling_params": {**greedy, "max_new_tokens": left}, "return_logprob": not stream, "stream": stream}
            reply = self._send("/generate", body)
            told = reply[-1]
            meta = told["meta_info"]
            logprobs = None if stream else len(meta["output_token_logprobs"])
            tokens, spans, finish = told["output_ids"], meta["weight_versions"], meta["finish_reason"]["type"]
        elif rollout.form.startswith("completions"):
            reply = self._send("/v1/completions", {"prompt": prompt, "max_tokens": left, **greedy, "stream": stream, "return_token_ids": True, "logprobs": 0})
            choices = [choice for event in reply for choice in event["choices"]]
            tokens = [token for choice in choices for token in choice.get("token_ids") or []]
            logprobs = sum(len(choice["logprobs"]["token_logprobs"]) for choice in choices if choice.get("logprobs"))
            spans, finish = choices[-1]["weight_versions"], choices[-1]["finish_reason"]
        else:
            (reply,) = self._send("/inference/v1/generate", {"token_ids": prompt, "sampling_params": {**greedy, "max_tokens": left, "logprobs": 1}})
            (choice,) = reply["choices"]
            tokens, spans, finish = choice["token_ids"], choice["weight_versions"], choice["finish_reason"]
            logprobs = len(choice["logprobs"]["content"])
        assert finish in ("length", "abort"), finish
        assert finish == "abort" or len(tokens) == left, (finish, tokens)
        return Piece(prompt, tokens, spans, logprobs, begun, time.monotonic())

    def _send(self, path, body):
        """Returns the JSON of the answer, or of each event of the stream."""
        status, text = ask(self.url, "POST", path, {"model": "smollm2", **body})
        if status != 200:
            raise Broken(f"{status} {text}")
        if not body.get("stream"):
            return [json.loads(text)]
        events = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
        if not events or events[-1] != "[DONE]":
            raise Broken("a stream ended too early")
        told = [json.loads(event) for event in events[:-1]]
        if any("error" in event for event in told):
            raise Broken(text[-300:])
        return told


# --- the trainer


@dataclasses.dataclass
class Update:
    number: int
    which: str
    mode: str
    victim: str = ""
    phase: str = ""
    ordered: float = 0.0
    done: float = 0.0
    status: int = 0
    again: list = dataclasses.field(default_factory=list)
    struck: str = ""  # Who was killed, and what the launcher said of the update just before.

    @property
    def version(self):
        return f"step-{self.number}-{self.which}"


class Kills(threading.Thread):
    """Kills the update's victim once the launcher says that the update is in the wanted phase, or has passed it."""

    def __init__(self, job, update, draw):
        super().__init__(daemon=True)
        self._job, self._update = job, update
        self._victim = draw.random()
        self._delay = draw.uniform(0, 0.03)
        self.over = threading.Event()

    def _launcher(self, path):
        with contextlib.suppress(OSError, ValueError, StopIteration, http.client.HTTPException):
            address = json.loads(next(self._job.folder.glob("state/*/launcher.json")).read_text())["admin"]
            status, told = ask(f"http://{address}", "GET", path, seconds=5)
            return json.loads(told) if status == 200 else None
        return None

    def _reached(self):
        told = self._launcher("/rollout")
        if not told:
            return None
        at = "published" if told["weight_version"] == self._update.version else told["phase"]
        wanted = WORDS.get(self._update.phase, "published")
        if at == wanted == "applying" and self._update.phase == "verify" and not self._proves():
            return None
        if self._update.phase == "reopen" and told["admission"] != "open":
            return None
        return at if ORDER.index(at) >= ORDER.index(wanted) else None  # A short phase may be over between two looks.

    def _proves(self):
        """A worker has come back with the new weights, and is not ready yet."""
        told = self._launcher("/status")
        return told and any(process["state"] == "registered" for process in told["processes"])

    def run(self):
        at = None
        while not at and not self.over.wait(0.001):
            at = self._reached()
        if not at:
            return
        time.sleep(self._delay if self._update.phase in ("prepare", "apply", "reopen") else 0)
        self._job.processes()
        targets = self._job.targets(self._update.victim)
        if targets:
            target = targets[int(self._victim * len(targets))]
            target.signal(signal.SIGKILL)
            self._update.struck = f"{target.name} at {at}"
        [target.close() for target in targets]


class FleetJob(Job):
    """tests/chaos/job.py with a rollout job. A dead launcher is followed by another one at once."""

    def __init__(self, binary, model, weights, workers, folder):
        super().__init__(binary, model, "", folder)
        self.config.write_text(yaml(folder, model, weights, workers))
        self._workers = workers
        self._over = threading.Event()
        self._keeper = threading.Thread(target=self._keep_launcher, daemon=True)

    def begin(self):
        self.start_launcher()
        self.wait_ready()
        self._keeper.start()

    def _keep_launcher(self):
        while not self._over.wait(0.02):
            self.start_launcher()

    def well(self):
        found = self.processes()
        return self.child.poll() is None and len(found) == 2 * self._workers + 1 and all(process["state"] == "ready" for process in found.values())

    def end(self):
        self._over.set()
        if self._keeper.is_alive():
            self._keeper.join()
        return self.stop()

    def key(self):
        (file,) = self.folder.glob("state/*/control_key")
        return {"Authorization": f"Bearer {file.read_text().strip()}"}

    def fleet(self):
        status, told = ask(self.url, "GET", "/v1/rl/fleet", headers=self.key(), seconds=30)
        return status, json.loads(told)

    def worker_metric(self, name):
        """Returns the sum over the workers that run."""
        keys = json.loads(next(self.folder.glob("state/*/worker_keys.json")).read_text())
        total = 0.0
        for process in self.processes().values():
            if process["role"] in ("prefill", "decode"):
                _, text = ask(process["url"], "GET", "/metrics", headers={"Authorization": f"Bearer {keys[process['name']]}"}, seconds=30)
                total += sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(name))
        return total


def order(job, update):
    """Gives the order until it is answered, as trainers do. An order may be repeated."""
    body = {"path": f"{update.which}.gguf", "version": update.version, "mode": update.mode}
    deadline = time.monotonic() + ORDER_SECONDS
    update.ordered = time.monotonic()
    while time.monotonic() < deadline:
        try:
            update.status, told = ask(job.url, "POST", "/v1/rl/update", body, job.key())
            if update.status in (200, 207):
                update.done = time.monotonic()
                return
            update.again.append(f"{update.status} {json.loads(told)['message']}")
        except (OSError, ValueError, http.client.HTTPException) as error:
            update.again.append(repr(error))
        time.sleep(0.1)


# --- the verdict


def spans_of(rollout):
    """Returns (version, tokens before, tokens) of each span. Raises ValueError if a token has none, or several."""
    for piece in rollout.pieces:
        at = 0
        for span in piece.spans:
            if span["start"] != at or span["end"] <= at or not span["version"]:
                raise ValueError(f"spans {piece.spans}")
            yield span["version"], piece, piece.prompt + piece.tokens[:at], piece.tokens[at : span["end"]]
            at = span["end"]
        if at != len(piece.tokens):
            raise ValueError(f"{len(piece.tokens)} tokens, and spans {piece.spans}")
        if piece.logprobs not in (None, len(piece.tokens)):
            raise ValueError(f"{len(piece.tokens)} tokens, and {piece.logprobs} logprobs")


def judge(rollout, updates, references):
    """Returns what is wrong with the rollout, or nothing."""
    if rollout.failure or len(rollout.tokens()) != rollout.length:
        return rollout.failure or f"{len(rollout.tokens())} of {rollout.length} tokens"
    sets = {"default": "a", **{update.version: update.which for update in updates}}
    numbers = {"default": -1, **{update.version: update.number for update in updates}}
    last = -1
    try:
        for version, piece, before, tokens in spans_of(rollout):
            if version not in sets:
                return f"the version {version} was never ordered"
            number = numbers[version]
            if number < last:
                return f"version {version} after step {last}"
            last = number
            newest = max((update.number for update in updates if update.done and update.done < piece.begun), default=-1)
            if number < newest:
                return f"version {version}, and step {newest} was complete before the request"
            if number >= 0 and updates[number].ordered > piece.ended:
                return f"version {version} before it was ordered"
            expected = references.after(sets[version], before, len(tokens))
            if tokens != expected:
                other = references.after(*[which for which in SETS if which != sets[version]], before, len(tokens))
                return f"version {version} made {tokens}, alone it makes {expected}, the other weights {other}"
    except ValueError as error:
        return str(error)
    return ""


@dataclasses.dataclass
class Result:
    rollouts: list
    updates: list
    wrong: list  # (Rollout, why)
    troubles: list  # Of the fleet as a whole.
    seconds: float
    mixed: int  # Rollouts with tokens of more than one version.
    kept: float  # Prompt tokens whose KV was kept from an earlier prompt.

    def report(self):
        again = collections.Counter(why.split("(")[0] for rollout in self.rollouts for why in rollout.again)
        struck = collections.Counter(update.struck.split("-")[0].split(" ")[0] + " at " + update.struck.split(" at ")[-1] for update in self.updates if update.struck)
        return {
            "rollouts": len(self.rollouts), "tokens": sum(len(rollout.tokens()) for rollout in self.rollouts), "wrong": len(self.wrong),
            "updates": len(self.updates), "updates_done": sum(update.done > 0 for update in self.updates), "kills": dict(sorted(struck.items())),
            "mixed": self.mixed, "aborted_and_continued": sum(len(rollout.pieces) > 1 for rollout in self.rollouts),
            "asked_again": dict(again), "orders_repeated": sum(len(update.again) for update in self.updates), "troubles": self.troubles,
            "prompt_tokens_kept": self.kept, "seconds": round(self.seconds, 1),
        }  # fmt: skip


def plan(modes, updates, kills, seed):
    """Returns the updates. Every victim is killed in every phase, in an order that the seed decides, if there are enough updates."""
    draw = random.Random(seed)
    deck = list(itertools.product(VICTIMS, PHASES))
    draw.shuffle(deck)
    struck = set(draw.sample(range(updates), min(kills, updates)))
    cards = itertools.cycle(deck)
    made = [Update(number, SETS[(number + 1) % 2], modes[number % len(modes)]) for number in range(updates)]
    for update in made:
        if update.number in struck:
            update.victim, update.phase = next(cards)
    return made


def fingerprints_refused(job):
    """How often KV was offered to a worker with other weights, by the logs of all workers, also of those that died."""
    return sum(log.read_text(errors="replace").count("KV fingerprint differs") for log in job.folder.glob("logs/**/*.log"))


def run(binary, model, folder, rollouts, updates, threads=6, workers=1, seed=1, say=lambda text: None):
    folder = pathlib.Path(folder)
    weights = folder / "weights"
    weights.mkdir()
    shutil.copy(model, weights / "a.gguf")
    swap_layers(model, weights / "b.gguf", 1, 4)
    draw = random.Random(seed)
    begun = time.monotonic()
    with References(binary, folder, {which: weights / f"{which}.gguf" for which in SETS}) as references:
        prompts = [references.tokenize(text) for text in PROMPT_TEXTS]
        assert all(references.after("a", prompt, 16) != references.after("b", prompt, 16) for prompt in prompts), "the two sets must say different things"
        asked = [Rollout(i, draw.choice(prompts), draw.choice(LENGTHS), draw.choice(FORMS)) for i in range(rollouts)]
        job = FleetJob(binary, model, weights, workers, folder)
        troubles, kept = [], 0.0
        try:
            job.begin()
            clients = Clients(job.url, asked, threads)
            clients.start()
            for update in updates:
                # The updates are spread over the rollouts.
                while clients.done < rollouts * update.number // len(updates) and any(thread.is_alive() for thread in clients._threads):
                    time.sleep(0.01)
                kills = Kills(job, update, draw) if update.victim else None
                if kills:
                    kills.start()
                order(job, update)
                if kills:
                    kills.join(10)
                    kills.over.set()
                say(f"{update.version} {update.mode}: {update.status} in {update.done - update.ordered:.2f} s, {clients.done} rollouts, {update.struck} {update.again}")
                if not update.done:
                    troubles.append(f"{update.version} was not done: {update.again[-3:]}")
            clients.join(4 * ANSWER_SECONDS)
            troubles += heal(job, updates)
            kept = job.worker_metric("pdjob_prefix_cache_hits_total")
            refused = fingerprints_refused(job)
            if refused or job.worker_metric("pdjob_kv_fingerprints_refused_total"):
                troubles.append(f"KV was offered {refused} times to a worker with other weights")
        finally:
            left = job.end()
        troubles += [f"left behind: {left}"] if left else []
        wrong = [(rollout, why) for rollout in asked if (why := judge(rollout, updates, references))]
    mixed = sum(len({span["version"] for piece in rollout.pieces for span in piece.spans}) > 1 for rollout in asked)
    return Result(asked, updates, wrong, troubles, time.monotonic() - begun, mixed, kept)


def heal(job, updates):
    """Waits until every worker serves with the newest weights and none holds a row. Returns what did not come."""
    if not job.wait_well(HEAL_SECONDS):
        return [f"not well after {HEAL_SECONDS} s: { {name: process['state'] for name, process in job.processes().items()} }"]
    deadline = time.monotonic() + HEAL_SECONDS
    while True:
        status, told = job.fleet()
        versions = {worker["weight_version"] for worker in told["workers"]}
        held = {gauge: job.worker_metric(gauge) for gauge in ("pdjob_kv_rows_used", "pdjob_requests_running", "pdjob_requests_waiting")}
        healed = status == 200 and versions == {updates[-1].version} and len({worker["digest"] for worker in told["workers"]}) == 1 and not told["paused"]
        if healed and not any(held.values()):
            return []
        if time.monotonic() > deadline:
            return [f"not healed: {status} {told}, held {held}"]
        time.sleep(0.1)


def main():
    """A long run by hand: python tests/chaos/rollouts.py [ROLLOUTS UPDATES KILLS WORKERS MODE...]"""
    import tempfile

    numbers = [int(word) for word in sys.argv[1:5]]
    rollouts, updates, kills, workers = [*numbers, *(1000, 30, 30, 2)[len(numbers) :]]
    modes = sys.argv[5:] or list(MODES)
    with tempfile.TemporaryDirectory(prefix="pdjob-rollouts-") as folder:
        binary = os.environ.get("PDJOB_BIN", str(HERE.parents[1] / "build/release/pdjob"))
        planned = plan(modes, updates, kills, seed=19)
        ended = run(binary, os.environ["PDJOB_TEST_MODEL"], folder, rollouts, planned, workers=workers, say=lambda text: print(text, flush=True))
        for rollout, why in ended.wrong[:5]:
            print(f"rollout {rollout.number} ({rollout.form}): {why}\n  {rollout.pieces}\n  {rollout.again}")
        print(json.dumps(ended.report(), indent=1))
        if (ended.wrong or ended.troubles) and "PDJOB_KEEP" in os.environ:
            shutil.copytree(folder, os.environ["PDJOB_KEEP"], dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.gguf"))
    return 1 if ended.wrong or ended.troubles else 0


if __name__ == "__main__":
    sys.exit(main())
