"""The dashboard's files and pages over HTTP. tests/peers/test_dashboard_in_browser.py looks at them in a browser."""

import http.client
import json

import httpx
import pytest

from conftest import eventually


@pytest.fixture
def admin(job):
    (found,) = job.folder.glob("state/*/launcher.json")
    return "http://" + json.loads(found.read_text())["admin"]


def test_the_page_comes_whole_with_a_strict_policy(admin):
    for path, kind, word in (("/", "text/html", "<main"), *((f"/dashboard{part}.js", "text/javascript", "'use strict'") for part in ("", "_words", "_requests", "_drawings")), ("/dashboard.css", "text/css", ":root")):
        reply = httpx.get(admin + path)
        assert reply.status_code == 200 and reply.headers["content-type"].startswith(kind) and word in reply.text
        policy = reply.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';")
        assert "unsafe" not in policy and "frame-ancestors 'none'" in policy
        assert reply.headers["x-content-type-options"] == "nosniff"
    assert httpx.post(admin + "/").status_code == 405


def test_another_sites_name_does_not_lead_here(admin):
    """A page of another site that points its name at 127.0.0.1 (DNS rebinding) reads nothing."""
    host, port = admin.removeprefix("http://").split(":")
    for name, status in (("evil.example", 403), ("localhost", 200), (f"127.0.0.1:{port}", 200)):
        for path in ("/status", "/", "/links"):
            connection = http.client.HTTPConnection(host, int(port), timeout=30)
            connection.request("GET", path, headers={"Host": name})
            assert connection.getresponse().status == status, (name, path)
            connection.close()


def test_links_show_what_has_moved(job, admin):
    reply = httpx.post(job.url + "/v1/completions", json={"model": "smollm2", "prompt": "One, two, three,", "max_tokens": 4}, timeout=60)
    assert reply.status_code == 200

    def moved():
        for worker in httpx.get(admin + "/links").json()["workers"]:
            if any(link["direction"] == "receives" and link["bytes"] > 0 and link["state"] == "open" for link in worker["links"]):
                return worker["name"] == "decode-0"
        return False

    eventually(moved, 30, "links of the decode worker")


def test_requests_show_where_their_time_went(job, admin):
    secret = "my secret words"
    for stream, name in ((True, None), (False, secret)):
        body = {"model": "smollm2", "prompt": secret, "max_tokens": 8, "stream": stream}
        headers = {"x-request-id": name} if name else {}
        assert httpx.post(job.url + "/v1/completions", json=body, headers=headers, timeout=60).status_code == 200
    assert httpx.post(job.url + "/v1/completions", json={"model": "nobody", "prompt": "x"}, timeout=60).status_code == 404

    def shown():
        page = httpx.get(admin + "/requests")  # The first look has nothing yet.
        requests = [each for router in page.json()["routers"] for each in router["requests"]]
        return (page.text, requests) if any(each["outcome"] == "client_error" for each in requests) else None

    eventually(shown, 30, "the requests are shown")
    text, requests = shown()
    assert secret not in text, "no words of clients"
    refused, whole, streamed = requests[:3]
    assert refused["outcome"] == "client_error" and refused["decode"] == "" and refused["prefill_us"] == refused["decode_us"] == 0
    for each in (whole, streamed):
        assert each["outcome"] == "ok" and each["prefill"] == "prefill-0" and each["decode"] == "decode-0" and each["attempts"] == 1
        assert each["prefill_us"] > 0 and each["kv_us"] > 0 and each["decode_us"] > 0 and each["status"] == 200
    assert streamed["stream"] and streamed["request_id"].startswith("req-") and whole["request_id"] == ""
    # Only the launcher's key opens the router's page. Probes are not in it.
    assert httpx.get(job.url + "/pdjob/timings").status_code == 404
    assert httpx.get(job.url + "/pdjob/timings", headers={"Authorization": "Bearer x"}).status_code == 404


def test_the_history_goes_on_while_nobody_looks(admin):
    def points():
        return httpx.get(admin + "/history").json()["points"]

    eventually(lambda: len(points()) >= 3, 30, "a point for each second")
    assert all(len(point) == 4 for point in points())


def test_one_page_and_one_list_have_the_metrics_of_all_processes(job, admin):
    """What Prometheus reads: the list of targets, each target, and the page of the whole job."""
    names = set(job.processes()) | {"launcher"}
    targets = httpx.get(admin + "/sd").json()
    assert {target["labels"]["process"] for target in targets} == names
    for target in targets:
        labels = target["labels"]
        query = {"name": labels["__param_name"]} if "__param_name" in labels else {}
        page = httpx.get(f"http://{target['targets'][0]}{labels['__metrics_path__']}", params=query)
        assert page.status_code == 200 and "# TYPE pdjob_" in page.text, labels
    page = httpx.get(admin + "/metrics/all").text
    families = [line.split(" ")[2] for line in page.splitlines() if line.startswith("# TYPE ")]
    assert len(families) == len(set(families)), "each family comes once"
    for name in names - {"launcher"}:
        assert f'pdjob_process_scraped{{process="{name}"}} 1' in page
    assert 'pdjob_kv_rows_max{process="decode-0"}' in page and 'pdjob_process_up{process="launcher",name="decode-0",role="decode"} 1' in page
    assert httpx.get(admin + "/metrics/process?name=nobody").status_code == 404
