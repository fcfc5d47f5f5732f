"""Requests in the background take what others leave: rows of a batch beside an online job, and `service_tier: flex`."""

import json
import subprocess
import threading
import time

import pytest
from conftest import BIN, eventually, get, job_yaml, metric, running_job

ROWS = 24


@pytest.fixture(scope="module")
def online(folder):
    """A job with few sequences, so that requests are in each other's way."""
    with running_job(folder, prefill_extra="engine: {sequences: 4}", decode_extra="engine: {sequences: 4}") as job:
        yield job


def write_rows(path, count=ROWS, tokens=160):
    with open(path, "w") as file:
        for number in range(count):
            body = {"model": "smollm2", "prompt": f"Row {number}: once upon a time", "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
            file.write(json.dumps({"custom_id": f"r{number}", "method": "POST", "url": "/v1/completions", "body": body}) + "\n")
    return path


def start_batch(rows, out, *where):
    return subprocess.Popen([BIN, "batch", str(rows), "--out", str(out), *map(str, where)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finish(batch, seconds=240):
    text, _ = batch.communicate(timeout=seconds)
    assert batch.returncode == 0, text
    return text


def answers(out):
    found = {}
    for line in (out / "output.jsonl").read_text().splitlines():
        record = json.loads(line)
        assert record["custom_id"] not in found, "a row twice"
        found[record["custom_id"]] = record["response"]["body"]["choices"][0]["text"]
    return found


def stream(client, number, **more):
    """Returns the text of a stream."""
    text = ""
    for chunk in client.completions.create(
        model="smollm2", prompt=f"Stream {number}: the weather", max_tokens=24, temperature=0, stream=True, extra_body={"ignore_eos": True}, **more
    ):
        text += chunk.choices[0].text if chunk.choices else ""
    return text


def decode_url(job):
    return job.processes()["decode-0"]["url"]


def client_of(job):
    import openai

    return openai.OpenAI(base_url=job.url + "/v1", api_key="any", max_retries=0, timeout=120)


def test_a_batch_beside_a_job_gives_way_and_loses_nothing(online, single, tmp_path):
    """Streams take sequences from rows that run. All rows and streams are those of one process; no row is there twice."""
    rows = write_rows(tmp_path / "rows.jsonl")
    reference = start_batch(rows, tmp_path / "reference", "--url", single.url)
    finish(reference)
    client = client_of(online)
    alone = [stream(client_of(single), number) for number in range(6)]
    url = decode_url(online)
    ways = metric(url, "pdjob_background_ways_given_total")
    batch = start_batch(rows, tmp_path / "out", "--job", online.config)
    eventually(lambda: metric(url, "pdjob_background_requests_running") >= 3, what="rows in all sequences but one")
    shown = ["status", "--config", str(online.config)]
    eventually(lambda: "in the background" in subprocess.check_output([BIN, *shown], text=True), what="a status that says so")
    seen = {}
    threads = [threading.Thread(target=lambda number=number: seen.update({number: stream(client, number)})) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert [seen.get(number) for number in range(6)] == alone
    finish(batch)
    assert answers(tmp_path / "out") == answers(tmp_path / "reference")
    assert metric(url, "pdjob_background_ways_given_total") > ways
    assert metric(url, "pdjob_background_requests_running") == 0


def test_a_batch_beside_a_job_that_is_killed_goes_on(online, tmp_path):
    rows = write_rows(tmp_path / "rows.jsonl")
    batch = start_batch(rows, tmp_path / "out", "--job", online.config)
    time.sleep(2)
    batch.kill()
    batch.communicate()
    finish(start_batch(rows, tmp_path / "out", "--job", online.config))
    assert len(answers(tmp_path / "out")) == ROWS
    # What was in flight at the kill is cancelled, too.
    eventually(lambda: metric(decode_url(online), "pdjob_background_requests_running") == 0, what="an idle worker")


def test_a_flex_request_is_in_the_background(online):
    """By OpenAI's own field, and unmodified client. Its latency is not among the others'."""
    client = client_of(online)
    url = decode_url(online)
    before = metric(url, "pdjob_time_to_first_token_seconds_count")
    seen = []
    thread = threading.Thread(target=lambda: seen.append(client.chat.completions.create(
        model="smollm2", messages=[{"role": "user", "content": "Say something"}], max_tokens=400, service_tier="flex", extra_body={"ignore_eos": True})))
    thread.start()
    eventually(lambda: metric(url, "pdjob_background_requests_running") == 1, what="the request")
    thread.join(120)
    assert seen[0].usage.completion_tokens == 400
    assert metric(url, "pdjob_time_to_first_token_seconds_count") == before


def test_a_batch_beside_a_job_that_does_not_run_says_so(tmp_path):
    rows = write_rows(tmp_path / "rows.jsonl", 1)
    batch = start_batch(rows, tmp_path / "out", "--job", "no-such-job")
    text, _ = batch.communicate(timeout=60)
    assert batch.returncode == 2 and "no-such-job" in text, text
