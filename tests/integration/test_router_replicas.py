"""Several routers share one address. Each serves and is listed by itself. When one dies, later requests still succeed."""

import json
import os
import signal
import urllib.request

import pytest

from conftest import eventually, get, metric, running_job

ROUTERS = ["router-0", "router-1", "router-2"]


@pytest.fixture(scope="module")
def job(folder):
    with running_job(folder, router="replicas: 3", prefill_extra="engine: {kind: fake}", decode_extra="engine: {kind: fake}") as job:
        yield job


def ask(url):
    request = urllib.request.Request(url + "/v1/completions", b'{"prompt": "Hello", "max_tokens": 2}', {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as reply:
        return json.load(reply)


def picks(url):
    return metric(url, "pdjob_router_picks_total", stage="decode")


def test_connections_are_shared_among_all_routers(job):
    urls = [job.processes()[name]["url"] for name in ROUTERS]
    assert len({*urls, job.url}) == 4
    before = [picks(url) for url in urls]
    for _ in range(90):
        ask(job.url)
    served = [picks(url) - was for url, was in zip(urls, before)]
    assert sum(served) == 90 and all(served), served


def test_each_router_knows_the_workers_and_their_load(job):
    for name in ROUTERS:
        workers = json.loads(get(job.processes()[name]["url"] + "/pdjob/workers"))["workers"]
        assert {worker["name"] for worker in workers} == {"prefill-0", "decode-0"}


def members_as_they_change(url):
    """Yields every list that a subscriber gets."""
    request = urllib.request.Request(url + "/pdjob/members", headers={"Accept": "text/event-stream"})
    with urllib.request.urlopen(request, timeout=60) as stream:
        for line in stream:
            if line.startswith(b"data: "):
                yield json.loads(line.removeprefix(b"data: "))


def test_a_subscriber_sees_a_router_go_and_come_back(job):
    seen = members_as_they_change(job.processes()["router-0"]["url"])
    first = next(seen)
    assert {router["name"] for router in first["routers"]} == {*ROUTERS}
    assert [worker["role"] for worker in first["workers"]] == ["prefill", "decode"]
    before = {router["name"]: router["url"] for router in first["routers"]}
    os.kill(job.processes()["router-2"]["pid"], signal.SIGKILL)
    assert {router["name"] for router in next(seen)["routers"]} == {"router-0", "router-1"}
    after = {router["name"]: router["url"] for router in next(seen)["routers"]}
    assert after.keys() == before.keys() and after["router-2"] != before["router-2"]
    assert "pdjob_router_requests_alive" in get(after["router-2"] + "/metrics")  # The new router serves there.


def test_a_router_that_dies_is_replaced_and_no_later_request_fails(job):
    before = job.processes()["router-1"]
    os.kill(before["pid"], signal.SIGKILL)
    for _ in range(60):
        ask(job.url)
    eventually(lambda: job.processes()["router-1"]["state"] == "ready" and job.processes()["router-1"]["restarts"] == before["restarts"] + 1,
               what="a new router-1")
    assert metric(job.processes()["router-1"]["url"], "pdjob_router_workers") >= 2
