"""`pdjob simulate`: loads in words and files, its three forms of output, and what it says of bad input. Nothing is started."""

import html.parser
import json
import subprocess

import pytest

from conftest import BIN

JOB = """name: simulated
model: none-is-needed
prefill: {workers: 1}
decode: {workers: 1}
engine: {sequences: 8, tokens_per_sequence: 1024}
"""
WORDS = ["--rate", "1", "--prompt", "60~0.4", "--output", "5..15", "--requests", "40", "--slo", "ttft=1s,itl=50ms"]


@pytest.fixture
def job_file(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text(JOB)
    return path


def simulate(*words, timeout=120):
    return subprocess.run([BIN, "simulate", *map(str, words)], capture_output=True, text=True, timeout=timeout)


def simulated(*words):
    done = simulate(*words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_text_begins_with_what_disaggregation_gains_or_costs(job_file):
    text = simulated(job_file, *WORDS)
    assert text.startswith("Disaggregation "), text
    assert "requests/s within the SLO with 1 prefill + 1 decode" in text.split("\n")[0]
    for part in ["40 requests in", "SmolLM2-135M in q8_0", "prefill: busy", "decode: busy", "both: busy", "TTFT p50 / p90 / p99", "KV moved", "worker-hours"]:
        assert part in text, text


def test_a_job_that_scales_is_played_with_its_autoscaler(job_file, tmp_path):
    job_file.write_text(JOB.replace("prefill: {workers: 1}", "prefill: {workers: 1, scaling: {max: 3, ttft: 300ms}}"))
    words = ["--rate", "0.5@20s,8@20s", "--prompt", "60", "--output", "4", "--duration", "40s", "--slo", "ttft=2s,itl=60ms"]
    result = json.loads(simulated(job_file, *words, "--start-time", "3s", "--json", "--html", tmp_path / "page.html"))
    assert result["headline"].startswith("Scaling "), result["headline"]
    assert "prefill: from 1 to 2 workers: " in result["decisions"][0]
    job = result["job"]
    assert job["served"] == job["requests"] and job["roles"]["prefill"]["workers"] > job["roles"]["prefill"]["workers_min"] == 1
    assert "Decisions of the autoscaler" in (tmp_path / "page.html").read_text()
    late = simulate(job_file, *words, "--start-time", "10min")
    assert late.returncode == 2 and "launcher.start_timeout" in late.stderr, late.stderr


def test_equal_seeds_give_equal_output(job_file, tmp_path):
    pages = []
    for name in ["one.html", "two.html"]:
        pages.append(simulated(job_file, *WORDS, "--html", tmp_path / name))
    assert pages[0] == pages[1]
    assert (tmp_path / "one.html").read_bytes() == (tmp_path / "two.html").read_bytes()
    assert simulated(job_file, *WORDS, "--seed", "2") != pages[0]


def test_json_has_every_request_once(job_file):
    result = json.loads(simulated(job_file, *WORDS, "--json"))
    job = result["job"]
    assert job["requests"] == 40 == job["served"] + job["refused"] + job["unfinished"]
    assert job["kv_transfers"] == 40
    assert job["roles"]["prefill"]["workers"] == job["roles"]["decode"]["workers"] == 1
    assert 0 < job["ttft_seconds"]["p50"] <= job["ttft_seconds"]["p99"]
    assert [fleet["roles"]["both"]["workers"] for fleet in result["both"]] == [2] * len(result["both"]) and len(result["both"]) > 2
    assert result["best_both_chunk"] in [fleet["chunk"] for fleet in result["both"]]
    assert all(fleet["kv_transfers"] == 0 for fleet in result["both"])


class Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.references = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        if tag not in ("meta",):
            self.open.append(tag)
        self.references += [value for name, value in attributes if name in ("src", "href", "data", "action")]

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, tag


def test_page_is_whole_and_needs_no_other_file(job_file, tmp_path):
    path = tmp_path / "page.html"
    text = simulated(job_file, *WORDS, "--html", path)
    page = Page(path.read_text())
    assert page.open == [] and page.references == [] and "script" not in page.tags
    assert page.tags.count("figure") == 5 and page.tags.count("polyline") >= 9
    assert text.split("\n")[0] in path.read_text()


def test_a_recorded_load_is_read(job_file, tmp_path):
    trace = tmp_path / "load.jsonl"
    trace.write_text("".join(json.dumps({"timestamp": 3000 * (i // 4), "input_length": 520, "output_length": 4, "hash_ids": [1, 100 + i]}) + "\n" for i in range(12)))
    text = simulated(job_file, "--trace", trace, "--set", "router.prefill_policy=prefix_aware")
    assert "12 requests of" in text and "(Mooncake)" in text and "spread within the file's steps of 3.00 s" in text
    # All prompts begin with the same 512 tokens. Those that come before the first one is computed find nothing.
    result = json.loads(simulated(job_file, "--trace", trace, "--set", "router.prefill_policy=prefix_aware", "--json"))
    assert result["job"]["prompt_tokens_from_cache"] > 0.3
    table = tmp_path / "load.csv"
    table.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.68,374,4\n2023-11-16 18:15:50.99,96,9\n")
    assert "2 requests of" in simulated(job_file, "--trace", table)


def test_more_workers_serve_more(job_file):
    few = json.loads(simulated(job_file, "--rate", "8", "--prompt", "100", "--output", "5", "--requests", "200", "--json"))
    many = json.loads(simulated(job_file, "--rate", "8", "--prompt", "100", "--output", "5", "--requests", "200", "--json", "--set", "prefill.workers=3"))
    assert many["job"]["within_slo"] > few["job"]["within_slo"]
    assert many["job"]["ttft_seconds"]["p50"] < few["job"]["ttft_seconds"]["p50"]
    # Not twice as fast as the engine: 100 tokens take 0.225 s by the built-in model, and 2223 us per token.
    assert few["job"]["ttft_seconds"]["p50"] > 0.225


@pytest.mark.parametrize(
    "words, says",
    [
        ([], "give the load: --trace FILE, or all of --rate, --prompt and --output"),
        (["--rate", "20", "--prompt", "10"], "give the load"),
        (["--rate", "fast", "--prompt", "10", "--output", "1"], '--rate: expected requests per second: 20, or a ramp 5..40@10min'),
        (["--rate", "1", "--prompt", "0", "--output", "1"], "--prompt: expected tokens from 1 to 1000000"),
        (["--rate", "1", "--prompt", "10", "--output", "1~9"], "--output: expected tokens"),
        (["--rate", "1", "--prompt", "10", "--output", "1", "--slo", "ttft=1s"], "--slo: expected ttft=TIME,itl=TIME"),
        (["--rate", "1", "--prompt", "10", "--output", "1", "--duration", "5"], "--duration: expected a time such as"),
        (["--rate", "90000", "--prompt", "10", "--output", "1"], "more than 1000000 requests: give a shorter --duration or fewer --requests"),
        (["--rate", "1", "--prompt", "3000", "--output", "300"], "give --set engine.tokens_per_sequence=3300"),
        (["--rate", "1", "--prompt", "10", "--output", "1", "--model", "/no/such.json"], "/no/such.json"),
        (["--trace", "/no/such.jsonl"], "/no/such.jsonl: No such file"),
        (["--trace", "/dev/zero"], "it is not a regular file"),
        (["--trace", BIN], ":1: "),
        (["--trace", "x", "--rate", "1"], "excludes"),
        (["--rate", "1", "--prompt", "10", "--output", "1", "--requests", "5", "--html", "/no/such/folder/page.html"], "page.html cannot be written"),
    ],
)
def test_bad_input_is_refused_with_advice(job_file, words, says):
    done = simulate(job_file, *words)
    assert done.returncode == 2 and says in done.stderr, done.stderr
    assert done.stdout == ""


def test_a_job_that_is_not_disaggregated_is_compared_with_other_chunks(job_file):
    text = simulated(job_file, *WORDS, "--set", "prefill.workers=0", "--set", "decode.workers=2")
    assert text.startswith("The job is not disaggregated"), text


def test_engines_of_other_makes_are_refused_with_another_way(tmp_path):
    job = tmp_path / "job.yaml"
    job.write_text("name: x\nmodel: m\nengine: {kind: vllm}\n")
    done = simulate(job, "--rate", "1", "--prompt", "10", "--output", "1")
    assert done.returncode == 2 and "engines of other makes cannot be simulated" in done.stderr, done.stderr
