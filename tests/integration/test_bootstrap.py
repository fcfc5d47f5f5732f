"""SGLang's protocol. Both workers get the same request at once, with bootstrap_host, bootstrap_port and bootstrap_room."""

import concurrent.futures
import http.server
import itertools
import json
import threading
import urllib.error
import urllib.request

import pytest

from conftest import fake_worker, metric

ROOM = itertools.count(2**62)


def post(url, body, timeout=30):
    request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=timeout) as reply:
        return json.load(reply)


def port_of(url):
    return int(url.rsplit(":", 1)[1])


@pytest.fixture(scope="module")
def pair(folder):
    workers = [fake_worker(role, folder, f"{role}-0") for role in ("prefill", "decode", "both")]
    try:
        yield [worker.wait_ready().url for worker in workers]
    finally:
        for worker in workers:
            worker.stop()


def body_of(prefill, **more):
    return {"prompt": "The room is theirs alone.", "max_tokens": 6, "temperature": 0, "bootstrap_host": "127.0.0.1",
            "bootstrap_port": port_of(prefill), "bootstrap_room": next(ROOM), **more}


def test_both_legs_at_once_hand_the_kv_over(pair):
    prefill, decode, single = pair
    expected = post(single, {"prompt": "The room is theirs alone.", "max_tokens": 6, "temperature": 0})["choices"][0]["text"]
    before = metric(decode, "pdjob_kv_received_total")
    with concurrent.futures.ThreadPoolExecutor() as pool:
        for _ in range(8):
            body = body_of(prefill)
            legs = [pool.submit(post, url, body) for url in (prefill, decode)]
            first, whole = (leg.result() for leg in legs)
            assert whole["choices"][0]["text"] == expected
            assert first["usage"]["completion_tokens"] == 1
    assert metric(decode, "pdjob_kv_received_total") == before + 8


def test_a_worker_of_both_roles_answers_by_itself(pair):
    prefill, _, single = pair
    assert post(single, body_of(prefill))["usage"]["completion_tokens"] == 6


def status_of(url, body):
    with pytest.raises(urllib.error.HTTPError) as refused:
        post(url, body)
    return refused.value.code, json.load(refused.value)["error"]


def test_a_decode_worker_says_which_server_did_not_help(pair):
    prefill, decode, _ = pair
    status, error = status_of(decode, body_of(prefill, bootstrap_port=1))
    assert status == 502 and "bootstrap server 127.0.0.1:1 " in error["message"]

    class Other(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"ok": true}')

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Other) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        status, error = status_of(decode, body_of(prefill, bootstrap_port=server.server_port))
        server.shutdown()
    assert status == 502 and "no pdjob worker" in error["message"]


@pytest.mark.parametrize("wrong", [{"bootstrap_port": None}, {"bootstrap_port": 70000}, {"bootstrap_port": "x"}, {"bootstrap_room": -1},
                                   {"bootstrap_room": [1, 2]}, {"bootstrap_host": 7}])
def test_wrong_fields_are_refused_by_name(pair, wrong):
    prefill, decode, _ = pair
    status, error = status_of(decode, body_of(prefill, **wrong))
    assert status == 400 and error["param"] == next(iter(wrong))
