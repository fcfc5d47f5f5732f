#!/usr/bin/env python3
"""A toy policy gradient over a running pdjob job of mode rollout. It needs Python only, no libraries and no GPU.

    pdjob --config configs/rollouts.yaml
    configs/toy_trainer.py --model MODEL.gguf --weights-dir build/toy-weights --key-file ~/.local/state/pdjob/rollouts/control_key

The reward of an answer is the share of its tokens that contain a letter. The trainer is not told which tokens those are. It samples groups of answers,
compares the answers of a group, and makes the tokens of the better ones likelier (REINFORCE with the group's mean as baseline). The parameters that it
trains are few: one factor for the output row of each token. It writes them into a new GGUF file, and orders the job to serve it.
"""

import argparse
import concurrent.futures
import json
import math
import pathlib
import random
import struct
import sys
import time
import urllib.error
import urllib.request

PROMPTS = ["Once upon a time", "The sea is", "My favourite food is", "In the winter of that year"]
FACTOR_MAX = 0.35  # Of the logarithm of a row's factor.

# --- GGUF files

_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_STRING, _ARRAY, _Q8_0 = 8, 9, 8
_BLOCK, _BLOCK_BYTES = 32, 34  # Of Q8_0: a factor of two bytes, and 32 numbers of one byte.


class GgufReader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def number(self, form):
        value = struct.unpack_from("<" + form, self.data, self.at)[0]
        self.at += struct.calcsize("<" + form)
        return value

    def string(self):
        size = self.number("Q")
        self.at += size
        return bytes(self.data[self.at - size : self.at]).decode()

    def skip_value(self, kind):
        if kind == _STRING:
            self.string()
        elif kind == _ARRAY:
            item, count = self.number("I"), self.number("Q")
            if item in _SIZES:
                self.at += _SIZES[item] * count
            else:
                for _ in range(count):
                    self.skip_value(item)
        else:
            self.at += _SIZES[kind]


def gguf_tensors(data):
    """Returns {name: (type, dimensions, offset in the file)}."""
    reader = GgufReader(data)
    if reader.number("I") != 0x46554747:
        raise ValueError("not a GGUF file")
    reader.number("I")  # The version.
    tensors, pairs = reader.number("Q"), reader.number("Q")
    alignment = 32
    for _ in range(pairs):
        key, kind = reader.string(), reader.number("I")
        if key == "general.alignment":
            alignment = reader.number("I")
        else:
            reader.skip_value(kind)
    found = {}
    for _ in range(tensors):
        name = reader.string()
        dimensions = [reader.number("Q") for _ in range(reader.number("I"))]
        found[name] = (reader.number("I"), dimensions, reader.number("Q"))
    start = (reader.at + alignment - 1) // alignment * alignment
    return {name: (kind, dimensions, start + offset) for name, (kind, dimensions, offset) in found.items()}


class Policy:
    """The weights of a model, with a factor for the output row of each token."""

    def __init__(self, file):
        self._data = pathlib.Path(file).read_bytes()
        tensors = gguf_tensors(self._data)
        kind, (width, self.tokens), self._start = tensors.get("output.weight", tensors["token_embd.weight"])
        if kind != _Q8_0:
            raise ValueError("the output rows of this model are not of type Q8_0: quantize it first")
        self._blocks = width // _BLOCK
        self.factors = {}  # By token: the logarithm. Absent: 0.

    def write(self, file):
        data = bytearray(self._data)
        for token, factor in self.factors.items():
            for block in range(self._blocks):
                at = self._start + (token * self._blocks + block) * _BLOCK_BYTES
                struct.pack_into("<e", data, at, struct.unpack_from("<e", data, at)[0] * math.exp(factor))
        # A file that appears under its name is complete.
        part = pathlib.Path(file).with_suffix(".part")
        part.write_bytes(data)
        part.rename(file)

    def learn(self, gradient, rate):
        for token, slope in gradient.items():
            factor = self.factors.get(token, 0.0) + rate * slope
            self.factors[token] = max(-FACTOR_MAX, min(FACTOR_MAX, factor))


# --- the job


def reason_in(body):
    """Why the job refuses: the message of its error, or else all that it says."""
    try:
        told = json.loads(body)
        return told.get("error", told)["message"]
    except (ValueError, KeyError, TypeError, AttributeError):
        return body.decode(errors="replace").strip()


class Job:
    def __init__(self, url, key):
        self._url, self._key = url, key

    def _post(self, path, body, headers=None):
        request = urllib.request.Request(self._url + path, json.dumps(body).encode(), {"Content-Type": "application/json", **(headers or {})})
        try:
            with urllib.request.urlopen(request, timeout=300) as reply:
                return json.loads(reply.read())
        except urllib.error.HTTPError as error:
            sys.exit(f"{path}: {error.code}: {reason_in(error.read())}")
        except urllib.error.URLError as error:
            sys.exit(f"{self._url} cannot be reached: {error.reason}")

    def update(self, path, version):
        return self._post("/v1/rl/update", {"path": str(path), "version": version, "mode": "wait"}, {"Authorization": f"Bearer {self._key}"})

    def answer(self, prompt, length, seed):
        """Returns the tokens, their texts, and the versions of the weights that made them."""
        params = {"max_new_tokens": length, "temperature": 1.0, "ignore_eos": True, "sampling_seed": seed}
        told = self._post("/generate", {"text": prompt, "sampling_params": params, "return_logprob": True, "return_text_in_logprobs": True})
        meta = told["meta_info"]
        return told["output_ids"], [text for _, _, text in meta["output_token_logprobs"]], {span["version"] for span in meta["weight_versions"]}


# --- the training


def step(job, group, length, letter, version, draw):
    """Returns the mean reward of the step's answers, and the gradient by token."""
    asked = [(prompt, draw.getrandbits(31)) for prompt in PROMPTS for _ in range(group)]
    with concurrent.futures.ThreadPoolExecutor(2 * group) as threads:
        answers = list(threads.map(lambda each: job.answer(each[0], length, each[1]), asked))
    stale = [versions for _, _, versions in answers if versions != {version}]
    if stale:
        raise RuntimeError(f"answers of {stale[0]}, wanted {version}")
    rewards = [sum(letter in text for text in texts) / len(texts) for _, texts, _ in answers]
    gradient = {}
    for first in range(0, len(answers), group):
        mean = sum(rewards[first : first + group]) / group
        for (tokens, _, _), reward in zip(answers[first : first + group], rewards[first : first + group]):
            for token in tokens:  # All answers have one length, so the baseline's part sums to 0.
                gradient[token] = gradient.get(token, 0.0) + (reward - mean) / len(answers)
    return sum(rewards) / len(rewards), gradient


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--url", default="http://127.0.0.1:8000")
    arguments.add_argument("--model", required=True, help="the GGUF file that the job serves")
    arguments.add_argument("--weights-dir", required=True, help="rollout.weights_dir of the job")
    arguments.add_argument("--key-file", required=True, help="the job's control key")
    arguments.add_argument("--steps", type=int, default=6)
    arguments.add_argument("--group", type=int, default=16, help="answers to each prompt")
    arguments.add_argument("--length", type=int, default=12, help="tokens of an answer")
    arguments.add_argument("--letter", default="a")
    arguments.add_argument("--rate", type=float, default=4.0)
    arguments.add_argument("--seed", type=int, default=1)
    given = arguments.parse_args()

    job = Job(given.url, pathlib.Path(given.key_file).expanduser().read_text().strip())
    policy, folder, draw = Policy(given.model), pathlib.Path(given.weights_dir).resolve(), random.Random(given.seed)
    run = f"toy-{time.time_ns():x}"  # A version must not name other weights than before.
    for number in range(given.steps):
        version, file, begun = f"{run}-{number}", folder / f"{run}-{number}.gguf", time.monotonic()
        policy.write(file)
        job.update(file, version)
        updated = time.monotonic()
        reward, gradient = step(job, given.group, given.length, given.letter, version, draw)
        policy.learn(gradient, given.rate)
        (folder / f"{run}-{number - 1}.gguf").unlink(missing_ok=True)  # A worker that restarts reads the newest file again.
        print(f"step {number}: reward {reward:.3f}, update {updated - begun:.1f} s, answers {time.monotonic() - updated:.1f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
