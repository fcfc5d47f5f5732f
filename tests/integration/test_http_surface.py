"""What any HTTP client may expect of a job's servers: HEAD, paths, packed bodies, pages of other origins, models, streams, usage."""

import gzip
import json
import re
import tempfile

import httpx
import openai
import pytest

from conftest import key_header, running_job

PAGE = "https://chat.example"
ASK = {"model": "smollm2", "prompt": "One, two, three,", "max_tokens": 4, "temperature": 0}


@pytest.fixture(scope="module")
def job():
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as folder:
        with running_job(folder, router=f'allowed_origins: ["{PAGE}"]', extra=f"batch_api: {{dir: {folder}/api}}") as running:
            yield running


@pytest.fixture(scope="module")
def servers(job):
    """Address and headers of each HTTP server of the job."""
    processes = job.processes()
    (launcher,) = job.folder.glob("state/*/launcher.json")
    urls = [job.url, *(process["url"] for name, process in processes.items() if not name.startswith("router"))]
    return {url: key_header(url) for url in urls} | {"http://" + json.loads(launcher.read_text())["admin"]: {}}


def ask(job, path="/v1/completions", timeout=60, **more):
    return httpx.post(job.url + path, json={**ASK, **more}, timeout=timeout)


def events(reply):
    assert reply.status_code == 200, reply.text
    return [json.loads(line[6:]) for line in reply.text.split("\n") if line.startswith("data: {")]


def test_head_is_answered_like_get_everywhere(servers):
    for url, headers in servers.items():
        for path in ("/health", "/metrics", "//health/"):
            whole, head = (httpx.request(method, url + path, headers=headers, timeout=30) for method in ("GET", "HEAD"))
            assert (head.status_code, head.content) == (200, b"") and whole.status_code == 200, (url, path)
            assert head.headers["content-type"] == whole.headers["content-type"]


def test_head_asks_no_worker_for_a_stream_that_does_not_end(job):
    with httpx.Client(timeout=30) as client:
        for path in ("/pdjob/members", "/tokenizer_info", "/v1/models"):
            for _ in range(2):
                reply = client.head(job.url + path, headers={"Accept": "text/event-stream"})
                assert (reply.status_code, reply.content) == (200, b""), path


def test_a_wrong_method_learns_the_right_ones(servers):
    for url, headers in servers.items():
        reply = httpx.delete(url + "/health", headers=headers, timeout=30)
        assert (reply.status_code, reply.headers["allow"]) == (405, "GET, HEAD"), url


def test_the_router_names_all_methods_of_a_path(job):
    for path, allowed in (("/v1/completions", "POST"), ("/generate", "POST, PUT"), ("/v1/models/smollm2", "GET, HEAD"),
                          ("/v1/files", "GET, HEAD, POST"), ("/v1/batches/x/cancel", "POST")):
        reply = httpx.patch(job.url + path, timeout=30)
        assert (reply.status_code, reply.headers.get("allow")) == (405, allowed), path
    assert httpx.get(job.url + "/nothing", timeout=30).status_code == 404


def test_models_say_what_they_fit(job):
    card = httpx.get(job.url + "/v1//models/", timeout=30).json()["data"][0]
    assert card["id"] == "smollm2" and card["max_model_len"] == 2048 and card["created"] > 1_700_000_000
    assert httpx.get(job.url + "/v1/models/smollm2", timeout=30).json() == card
    assert httpx.get(job.url + "/v1/models/smoll%6D2", timeout=30).json() == card
    for name in ("nope", "smollm2%2Fx", "smollm2/x"):
        missing = httpx.get(f"{job.url}/v1/models/{name}", timeout=30)
        assert missing.status_code == 404 and missing.json()["error"]["code"] == "model_not_found"
    client = openai.OpenAI(base_url=job.url + "//v1/", api_key="any", max_retries=0, timeout=120)
    assert client.models.retrieve("smollm2").id == "smollm2"


def test_too_many_tokens_are_refused_with_the_number_that_fits(job):
    refused = ask(job, max_tokens=32000)
    assert refused.status_code == 400 and refused.json()["error"]["code"] == "context_length_exceeded"
    fits = int(re.search(r"at most (\d+) fit", refused.json()["error"]["message"])[1])
    prompt = ask(job).json()["usage"]["prompt_tokens"]
    assert fits == 2048 - prompt
    assert ask(job, max_tokens=fits + 1).status_code == 400
    with httpx.stream("POST", job.url + "/v1/completions", json={**ASK, "max_tokens": fits, "stream": True}, timeout=60) as reply:
        assert reply.status_code == 200


def test_packed_bodies_reach_the_worker_unpacked(job):
    body = json.dumps(ASK).encode()
    plain = httpx.post(job.url + "/v1/completions", content=body, timeout=60).json()
    for coding, packed in (("gzip", gzip.compress(body)), ("identity", body), ("gzip", gzip.compress(b"\xef\xbb\xbf" + body))):
        reply = httpx.post(job.url + "/v1/completions", content=packed, headers={"Content-Encoding": coding}, timeout=60)
        assert reply.status_code == 200 and reply.json()["choices"] == plain["choices"], reply.text
    for coding in ("br", "deflate", "gzip, gzip"):
        reply = httpx.post(job.url + "/v1/completions", content=gzip.compress(body), headers={"Content-Encoding": coding}, timeout=60)
        assert (reply.status_code, reply.headers["accept-encoding"]) == (415, "gzip, zstd")
    bomb = gzip.compress(b" " * 100_000_000)
    assert httpx.post(job.url + "/v1/completions", content=bomb, headers={"Content-Encoding": "gzip"}, timeout=60).status_code == 413
    damaged = httpx.post(job.url + "/v1/completions", content=body, headers={"Content-Encoding": "gzip"}, timeout=60)
    assert damaged.status_code == 400 and "Content-Encoding" in damaged.json()["error"]["message"]


def test_a_byte_order_mark_is_ignored(job):
    for path, body in (("/v1/completions", ASK), ("/tokenize", {"model": "smollm2", "prompt": "a"}), ("/generate", {"text": "a", "sampling_params": {"max_new_tokens": 1}})):
        reply = httpx.post(job.url + path, content=b"\xef\xbb\xbf" + json.dumps(body).encode(), timeout=60)
        assert reply.status_code == 200, reply.text


def test_pages_of_allowed_origins_may_call(job):
    question = {"Origin": PAGE, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type"}
    reply = httpx.options(job.url + "/v1/chat/completions", headers=question, timeout=30)
    assert reply.status_code == 204 and reply.headers["access-control-allow-origin"] == PAGE
    assert reply.headers["access-control-allow-headers"] == "authorization,content-type" and "POST" in reply.headers["access-control-allow-methods"]
    for body, status in ((ASK, 200), ({**ASK, "stream": True}, 200), ({**ASK, "model": "nope"}, 404), ({"prompt": 1}, 400)):
        reply = httpx.post(job.url + "/v1/completions", json=body, headers={"Origin": PAGE}, timeout=60)
        assert reply.status_code == status
        assert reply.headers.get_list("access-control-allow-origin") == [PAGE], status
        assert "x-request-id" in reply.headers["access-control-expose-headers"]
    other = httpx.options(job.url + "/v1/chat/completions", headers={**question, "Origin": "https://evil.example"}, timeout=30)
    assert other.status_code == 403 and "access-control-allow-origin" not in other.headers


def test_streams_name_their_charset_and_pass_proxies(job):
    text = "\u2705\u2028\u2029\u0085 Zw\u00f6lf"
    for path, body in (("/v1/completions", {"prompt": text, "echo": True}), ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]})):
        reply = httpx.post(job.url + path, json={"model": "smollm2", "max_tokens": 4, "stream": True, **body}, timeout=60)
        assert reply.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert reply.headers.get_list("x-accel-buffering") == ["no"]
        assert all(line.startswith("data: ") for line in reply.text.splitlines() if line), "splitlines() ends lines as httpx does"
    shown = "".join(event["choices"][0]["text"] for event in events(ask(job, prompt=text, echo=True, stream=True)))
    assert shown.startswith(text)


def test_continuous_usage_is_in_each_event(job):
    options = {"include_usage": True, "continuous_usage_stats": True}
    parts = events(ask(job, path="/v1/completions", stream=True, max_tokens=6, stream_options=options))
    made = [part["usage"]["completion_tokens"] for part in parts]
    assert made == sorted(made) and made[-1] == 6 and parts[-1]["choices"] == []
    assert all(part["usage"]["total_tokens"] == part["usage"]["prompt_tokens"] + part["usage"]["completion_tokens"] for part in parts)


def test_numbers_that_are_too_large_are_refused_by_name(job):
    for field, value in (("seed", "18446744073709551616"), ("unknown", "1e999"), ("max_tokens", "99999999999999999999")):
        body = json.dumps(ASK)[:-1] + f', "{field}": {value}}}'
        reply = httpx.post(job.url + "/v1/completions", content=body, timeout=60)
        assert (reply.status_code, reply.json()["error"]["param"]) == (400, field), reply.text
    body = json.dumps(ASK)[:-1] + ', "unknown": [18446744073709551616]}'
    assert httpx.post(job.url + "/v1/completions", content=body, timeout=60).status_code == 200


def cached(usage):
    return usage["prompt_tokens_details"]["cached_tokens"]


def test_the_decode_worker_tells_what_the_prefill_worker_had_kept(job):
    prompt = list(range(1000, 1400))
    body = {"prompt": prompt, "max_tokens": 2}
    first = ask(job, **body)
    assert first.headers["x-pdjob-kv-bytes"] and cached(first.json()["usage"]) == 0, "rows that moved are not kept ones"
    again = ask(job, **body)
    assert again.headers["x-pdjob-prefill"] == "prefill-0" and cached(again.json()["usage"]) == len(prompt) - 1
    streamed = events(ask(job, **body, stream=True, stream_options={"include_usage": True}))
    assert cached(streamed[-1]["usage"]) == len(prompt) - 1
    native = httpx.post(job.url + "/generate", json={"input_ids": prompt, "sampling_params": {"max_new_tokens": 2}}, timeout=60)
    assert native.json()["meta_info"]["cached_tokens"] == len(prompt) - 1
    longer = ask(job, **{**body, "prompt": prompt[:300] + [7, 8, 9]})
    assert cached(longer.json()["usage"]) == 300
    chat = {"model": "smollm2", "messages": [{"role": "user", "content": "Tell me about rivers. " * 20}], "max_tokens": 2}
    usages = [httpx.post(job.url + "/v1/chat/completions", json=chat, timeout=60).json()["usage"] for _ in range(2)]
    assert [cached(usage) for usage in usages] == [cached(usages[0]), usages[0]["prompt_tokens"] - 1] and cached(usages[0]) < 200


def test_tokens_come_with_their_texts(job):
    reply = httpx.post(job.url + "/tokenize", json={"model": "smollm2", "prompt": "Hello world", "return_token_strs": True}, timeout=60).json()
    assert "".join(reply["token_strs"]) == "Hello world" and len(reply["token_strs"]) == reply["count"]
    own = httpx.post(job.url + "/inference/v1/generate", json={"token_ids": [1000, 1001], "sampling_params": {"max_tokens": 2, "logprobs": 0}}, timeout=60)
    entries = own.json()["choices"][0]["logprobs"]["content"]
    assert all([top["token"] for top in entry["top_logprobs"]] == [entry["token"]] for entry in entries) and len(entries) == 2
