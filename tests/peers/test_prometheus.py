"""The alerts and the dashboard of configs/monitoring on a real Prometheus, which follows a real job. `./dev peers prometheus` runs this."""

import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
from conftest import BIN, ROOT, Job, eventually, free_port, job_yaml  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
MONITORING = ROOT / "configs/monitoring"
PROGRAMS = pathlib.Path(os.environ.get("PDJOB_PROMETHEUS", ""))  # ./dev peers sets it.
METRIC = re.compile(r"\bpdjob_[a-z0-9_]+\b")
JOB_LABEL = "pdjob_job"
# This test does not cause these: a request that kills two workers, a node on which much fails, HTTPS.
RARE = {"pdjob_router_requests_blamed_total", "pdjob_node_distrust"}
NOT_HERE = RARE | {"pdjob_router_certificate_expires_seconds"}

NEEDS_PROMETHEUS = pytest.mark.skipif(not os.access(PROGRAMS / "prometheus", os.X_OK), reason="run ./dev peers, which fetches Prometheus")


def known_metrics():
    """The names of all series that docs/reference/metrics.md promises."""
    names = set()
    for name, kind in re.findall(r"^\| `(pdjob_\w+)` \| (\w+) \|", (ROOT / "docs/reference/metrics.md").read_text(), re.MULTILINE):
        names |= {name + part for part in ("_bucket", "_sum", "_count")} if kind == "histogram" else {name}
    return names


def dashboard_queries():
    """Returns (title, query) of every panel and annotation."""
    board = json.loads((MONITORING / "grafana_dashboard.json").read_text())
    found = [(panel["title"], target["expr"]) for panel in board["panels"] for target in panel.get("targets", [])]
    return found + [("annotation", each["expr"]) for each in board["annotations"]["list"]]


def alert_rules():
    """Returns {alert: the text of its rule}."""
    rules = (MONITORING / "alerts.yaml").read_text().split("- alert: ")[1:]
    return {rule.split("\n")[0]: rule for rule in rules}


def metrics_in(query):
    return set(METRIC.findall(query)) - {JOB_LABEL}


def test_the_queries_name_only_metrics_that_exist():
    rules = [(alert, rule.partition("annotations:")[0]) for alert, rule in alert_rules().items()]
    queries = dashboard_queries() + rules
    assert len(queries) > 80
    unknown = {(title, name) for title, query in queries for name in metrics_in(query) - known_metrics()}
    assert not unknown


def test_each_alert_says_what_to_do_and_has_a_test():
    tested = set(re.findall(r'alertname="(\w+)"', (HERE / "alerts_test.yaml").read_text()))
    assert set(alert_rules()) == tested
    for alert, rule in alert_rules().items():
        assert "Next:" in rule.partition("summary:")[2], alert
        assert re.search(r"labels: \{severity: (page|ticket)\}", rule), alert


def promtool(*words):
    ran = subprocess.run([PROGRAMS / "promtool", *words], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@NEEDS_PROMETHEUS
@pytest.mark.heavy
def test_promtool_takes_the_files():
    promtool("check", "rules", str(MONITORING / "alerts.yaml"))
    promtool("check", "config", str(MONITORING / "prometheus.yaml"))
    promtool("test", "rules", str(HERE / "alerts_test.yaml"))


class Prometheus:
    def __init__(self, folder, scrape):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir()
        port = free_port()
        self.url = f"http://127.0.0.1:{port}/api/v1/"
        config = self.folder / "prometheus.yaml"
        # JSON is YAML, too.
        config.write_text(json.dumps({"global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
                                      "rule_files": [str(MONITORING / "alerts.yaml")], "scrape_configs": [{"job_name": "pdjob", **scrape}]}))
        self.log = open(self.folder / "log", "wb")
        self.child = subprocess.Popen([PROGRAMS / "prometheus", f"--config.file={config}", f"--storage.tsdb.path={self.folder}/data",
                                       f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"], stdout=self.log, stderr=self.log)

    def ask(self, path, **words):
        try:
            with urllib.request.urlopen(self.url + path + "?" + urllib.parse.urlencode(words), timeout=30) as reply:
                return json.loads(reply.read())["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{words}: {error.read().decode()}") from None

    def query(self, text):
        return self.ask("query", query=text.replace("$__rate_interval", "30s").replace("$job", ".*"))["result"]

    def alerts(self):
        return {(alert["labels"]["alertname"], alert["state"]) for alert in self.ask("alerts")["alerts"]}

    def stop(self):
        self.child.terminate()
        self.child.wait(60)
        self.log.close()


@contextlib.contextmanager
def load(url):
    """Clients that ask on and on, with and without streams. Whatever fails while workers die is not this test's matter."""
    done = threading.Event()

    def ask(stream):
        body = json.dumps({"model": "smollm2", "prompt": "Tell me about the sea. " * 20, "max_tokens": 24, "stream": stream}).encode()
        while not done.is_set():
            with contextlib.suppress(OSError):
                urllib.request.urlopen(urllib.request.Request(url + "/v1/completions", body, {"Content-Type": "application/json"}), timeout=60).read()

    clients = [threading.Thread(target=ask, args=(bool(i % 2),)) for i in range(3)]
    for client in clients:
        client.start()
    try:
        yield
    finally:
        done.set()
        for client in clients:
            client.join()


@NEEDS_PROMETHEUS
@pytest.mark.heavy
def test_every_query_has_data_and_alerts_fire():
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as folder, contextlib.ExitStack() as stack:
        (pathlib.Path(folder) / "weights").mkdir()
        extra = f"mode: rollout\nrollout: {{weights_dir: {folder}/weights}}\nbatch_api: {{dir: {folder}/api}}\n"
        restart = "restart: {backoff_min: 100ms, backoff_max: 100ms, attempts: 50}"
        job = Job(job_yaml(folder, prefill=1, decode=2, extra=extra, launcher=restart), folder)
        stack.callback(job.stop, signal.SIGKILL)
        job.wait_ready()
        (found,) = pathlib.Path(folder).glob("state/*/launcher.json")
        admin = json.loads(found.read_text())["admin"]
        ways = {
            "sd": {"http_sd_configs": [{"url": f"http://{admin}/sd", "refresh_interval": "1s"}]},
            "all": {"metrics_path": "/metrics/all", "static_configs": [{"targets": [admin], "labels": {JOB_LABEL: "made-up"}}]},
        }
        servers = {name: Prometheus(f"{folder}/{name}", way) for name, way in ways.items()}
        for server in servers.values():
            stack.callback(server.stop)
        with load(job.url):
            watch_a_job(job, servers)
        job.stop(signal.SIGKILL)
        for name, server in servers.items():
            eventually(lambda server=server: ("PdjobLauncherGone", "firing") in server.alerts(), 120, f"{name}: the launcher is missed")


def watch_a_job(job, servers):
    eventually(lambda: all(server.query("pdjob_router_requests_total") for server in servers.values()), 60, "the first samples")
    subprocess.run([BIN, "scale", "--config", str(job.config), "decode=3"], check=True, capture_output=True, timeout=120)
    for kills in range(4):
        eventually(lambda kills=kills: job.processes()["decode-1"]["state"] == "ready" and job.processes()["decode-1"]["restarts"] == kills, 60, "decode-1 serves")
        time.sleep(2)  # At least one sample has to see it: a counter's first rise within two samples cannot be told from its start.
        os.kill(job.processes()["decode-1"]["pid"], signal.SIGKILL)
    for name, server in servers.items():
        names = server.ask("label/__name__/values")
        for title, query in dashboard_queries():
            if metrics_in(query) & NOT_HERE or title == "annotation":
                server.query(query)  # It is valid.
            else:
                eventually(lambda query=query, server=server: server.query(query), 60, f"{name}: {title}: {query}")
        rules = [rule for group in server.ask("rules")["groups"] for rule in group["rules"]]
        assert {rule["name"] for rule in rules} == set(alert_rules())
        for rule in rules:
            server.query(rule["query"])
            assert rule["health"] == "ok" and metrics_in(rule["query"]) - RARE <= set(names), f"{name}: {rule}"
        eventually(lambda server=server: ("PdjobProcessRestartsInALoop", "firing") in server.alerts(), 60, f"{name}: the loop is told")
        others = {alert for alert in server.alerts() if alert[1] == "firing"} - {("PdjobProcessRestartsInALoop", "firing")}
        assert not others, f"{name}: these fire for a job that heals itself"
