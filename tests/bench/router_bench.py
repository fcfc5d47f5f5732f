"""Compares pdjob's router with nginx and, where they are installed (--peers fetches them), with vllm-router and sglang-router.

In one interleaved run, all of them stand before the same two backends, which compute nothing (router_backend.cc). Backends and load share the
first core; the measured router has the second. pdjob runs with HTTPS, too. Then pdjob runs alone: its memory over many requests, with 10,000 idle connections, and with slow
readers. Prints JSON, then Markdown tables. Only ratios of rates within one run are meaningful.

    ./dev bench router [--peers] [--rounds N] [--seconds N] [--requests N]
"""

import argparse
import json
import os
import pathlib
import resource
import signal
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

TEXT = "import os; def walk(top, topdown=True): the quick brown fox jumps over the lazy dog and then returns a list of names"
EVENTS = 64
IDLE_CONNECTIONS = 10_000
SLOW_READERS = 64
PACE_US = 200

NGINX = """daemon off; worker_processes 1; pid {tmp}/nginx.pid; error_log {tmp}/nginx.error warn;
events {{ worker_connections 1024; }}
http {{
  access_log off; keepalive_requests 100000000;
  client_body_temp_path {tmp}; proxy_temp_path {tmp}; fastcgi_temp_path {tmp}; uwsgi_temp_path {tmp}; scgi_temp_path {tmp};
  upstream backends {{ server 127.0.0.1:{b1}; server 127.0.0.1:{b2}; keepalive 64; keepalive_requests 100000000; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{ proxy_pass http://backends; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off; }}
  }}
}}
"""
WRK = """wrk.method = "POST"; wrk.body = os.getenv("BODY"); wrk.headers["Content-Type"] = "application/json"
function done(summary, latency)
  local e = summary.errors
  io.write(string.format('RESULT {"requests":%d,"us":%d,"p50":%.1f,"p99":%.1f,"failed":%d}\\n', summary.requests, summary.duration,
    latency:percentile(50), latency:percentile(99), e.connect + e.read + e.write + e.timeout + e.status))
end
"""


def body(**more):
    return json.dumps({"model": "tiny", "prompt": TEXT, "max_tokens": EVENTS, "temperature": 0, **more})


# Name: (connections, body). The body may ask for a stream.
WORKLOADS = {
    "JSON, 1 connection": (1, body()),
    "JSON, 32 connections": (32, body()),
    "SSE, 32 connections": (32, body(stream=True)),
}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


UNCHECKED = ssl.create_default_context()
UNCHECKED.check_hostname, UNCHECKED.verify_mode = False, ssl.CERT_NONE


def get(port, path, scheme="http"):
    with urllib.request.urlopen(f"{scheme}://127.0.0.1:{port}{path}", timeout=3, context=UNCHECKED if scheme == "https" else None) as reply:
        return reply.read()


class Process:
    """A process group pinned to one core. Its CPU and memory are those of the whole group."""

    def __init__(self, name, core, argv, port, folder):
        self.name, self.port = name, port
        self.scheme = "https" if "HTTPS" in name else "http"
        self.log = folder / f"{name.replace(' ', '-')}.log"
        argv = ["taskset", "--cpu-list", str(core), *argv]
        environment = {**os.environ, "no_proxy": "127.0.0.1", "NO_PROXY": "127.0.0.1"}
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(argv, stdout=log, stderr=log, start_new_session=True, env=environment)

    def wait_until_up(self):
        for _ in range(600):
            if self.process.poll() is not None:
                break
            try:
                get(self.port, "/health", self.scheme)
                return
            except OSError:
                time.sleep(0.1)
        sys.exit(f"router_bench: {self.name} does not come up: see {self.log}")

    def _stats(self):
        for entry in os.listdir("/proc"):
            try:
                fields = pathlib.Path(f"/proc/{entry}/stat").read_text().rsplit(")", 1)[1].split() if entry.isdigit() else None
            except OSError:
                continue
            if fields and int(fields[2]) == self.process.pid:
                yield fields

    def cpu_us(self):
        return sum(int(fields[11]) + int(fields[12]) for fields in self._stats()) * 1e6 / os.sysconf("SC_CLK_TCK")

    def rss_mib(self):
        return sum(int(fields[21]) for fields in self._stats()) * os.sysconf("SC_PAGE_SIZE") / 2**20

    def close(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Bench:
    def __init__(self, folder, binaries):
        self.folder, self.binaries = folder, binaries
        (folder / "wrk.lua").write_text(WRK)
        backend = str(pathlib.Path(os.environ["PDJOB_BENCH_DIR"]) / "router_backend")
        self.processes, self.backends = [], []
        for name in ("backend 1", "backend 2"):
            port = free_port()
            self.backends.append(self.start(name, 0, [backend, str(port)], port))

    def start(self, name, core, argv, port):
        process = Process(name, core, argv, port, self.folder)
        self.processes.append(process)
        process.wait_until_up()
        return process

    def start_router(self, name, pairs):
        port, side_port = free_port(), free_port()
        first, second = (f"http://127.0.0.1:{backend.port}" for backend in self.backends)
        listen = ["--host", "127.0.0.1", "--port", str(port), "--policy", "round_robin", "--log-level", "error"]
        listen += ["--worker-startup-check-interval", "1", "--prometheus-port", str(side_port)]
        if name == "nginx":
            config = NGINX.format(tmp=self.folder, port=port, b1=self.backends[0].port, b2=self.backends[1].port)
            (self.folder / "nginx.conf").write_text(config)
            argv = ["nginx", "-c", str(self.folder / "nginx.conf")]
        elif name.startswith("pdjob"):
            workers = ["--prefill", first, "--decode", second] if pairs else ["--worker", first, "--worker", second]
            argv = [self.binaries["pdjob"], "router", "--listen", f"127.0.0.1:{port}", *workers]
            if "HTTPS" in name:
                argv += ["--set", f"router.tls.certificate={self.certificate()}.pem", "--set", f"router.tls.key={self.certificate()}.key"]
        elif name == "vllm-router":
            workers = ["--vllm-pd-disaggregation", "--prefill", first, "--decode", second] if pairs else ["--worker-urls", first, second]
            argv = [self.binaries[name], *listen, *workers]
        else:
            workers = ["--pd-disaggregation", "--prefill", first, "9001", "--decode", second] if pairs else ["--worker-urls", first, second]
            argv = [self.binaries[name], "launch", *listen, "--prometheus-host", "127.0.0.1", *workers]
        return self.start(f"{name} PD" if pairs else name, 1, argv, port)

    def certificate(self):
        at = str(self.folder / "server")
        if not os.path.exists(at + ".pem"):
            made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=bench"]
            subprocess.run([*made, "-keyout", at + ".key", "-out", at + ".pem"], check=True, capture_output=True)
        return at

    def load(self, target, connections, request, seconds):
        argv = ["taskset", "--cpu-list", "0", "wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "10s", "-s", str(self.folder / "wrk.lua")]
        argv.append(f"{target.scheme}://127.0.0.1:{target.port}/v1/completions")
        said = subprocess.run(argv, capture_output=True, text=True, check=True, env={**os.environ, "BODY": request}).stdout
        result = json.loads(said.split("RESULT ", 1)[1])
        if result["failed"] or not result["requests"]:
            sys.exit(f"router_bench: failed requests: {result}")
        return result

    def measure(self, target, connections, request, seconds):
        """Runs one slice of load. The backends confirm the work: each PD request was prefilled and fetched."""
        for backend in self.backends:
            get(backend.port, "/reset")
        before = target.cpu_us()
        result = self.load(target, connections, request, seconds)
        result["cpu"] = (target.cpu_us() - before) / result["requests"]
        result["rate"] = result["requests"] / result["us"] * 1e6
        stats = [json.loads(get(backend.port, "/stats")) for backend in self.backends]
        if target.name.endswith(" PD") and max(stats[1]["fetches"], stats[1]["bootstraps"]) < result["requests"]:
            sys.exit(f"router_bench: {target.name} did not hand over: {stats}")
        return result

    def close(self):
        for process in self.processes:
            process.close()


def first_event_us(target, count=150):
    """Returns the median of microseconds to the first event of paced streams, one stream at a time."""
    request = body(stream=True, user=f"itl={PACE_US}").encode()
    head = b"POST /v1/completions HTTP/1.1\r\nHost: r\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(request)
    taken = []
    with socket.create_connection(("127.0.0.1", target.port)) as plain:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = UNCHECKED.wrap_socket(plain) if target.scheme == "https" else plain
        for _ in range(count):
            begun, received, first = time.perf_counter(), b"", None
            connection.sendall(head + request)
            while not received.endswith(b"0\r\n\r\n"):
                received += connection.recv(65536)
                if first is None and b"data:" in received:
                    first = time.perf_counter() - begun
            taken.append(first * 1e6)
    return statistics.median(taken[20:])


def measure_all(bench, targets, rounds, seconds):
    figures = {}
    for round_ in range(-1, rounds):  # The first round warms up and is dropped.
        for workload, (connections, request) in WORKLOADS.items():
            for target in targets:
                result = bench.measure(target, connections, request, seconds if round_ >= 0 else 1)
                if round_ >= 0:
                    figures.setdefault(workload, {}).setdefault(target.name, []).append(result)
        for target in targets:
            if round_ >= 0:
                figures.setdefault("TTFT", {}).setdefault(target.name, []).append({"p50": first_event_us(target)})
        print(f"router_bench: round {round_ + 1} of {rounds}", file=sys.stderr)
    return figures


def measure_memory(bench, router, requests):
    """Returns MiB after a tenth of the requests, and after all of them."""
    sizes, done = [], 0
    for goal in (requests // 10, requests):
        while done < goal:
            done += bench.load(router, 32, body(), 5)["requests"]
        sizes.append(router.rss_mib())
    return {"requests": done, "early_mib": sizes[0], "late_mib": sizes[1]}


def connect(port):
    return socket.create_connection(("127.0.0.1", port))


def wait_until_quiet(router):
    """Waits until the router has finished the work for clients that came or left."""
    before, now = -1, router.cpu_us()
    while now - before > 50_000:
        time.sleep(0.5)
        before, now = now, router.cpu_us()


def measure_bystanders(bench, router, seconds, rounds):
    """Returns rate and P99 of other clients: alone, with idle connections, and with readers that never read."""
    request = body(stream=True).encode()
    stalled = b"POST /v1/completions HTTP/1.1\r\nHost: r\r\nContent-Length: %d\r\n\r\n" % len(request) + request
    figures = {}
    for _ in range(rounds):
        for crowd in ("alone", f"{IDLE_CONNECTIONS} idle connections", f"{SLOW_READERS} slow readers"):
            sockets = [connect(router.port) for _ in range(IDLE_CONNECTIONS)] if "idle" in crowd else []
            if "slow" in crowd:
                sockets = [connect(router.port) for _ in range(SLOW_READERS)]
                for one in sockets:
                    one.setblocking(False)
                    for _ in range(200):  # Pipelined requests: megabytes of events that stay unread.
                        try:
                            one.send(stalled)
                        except BlockingIOError:
                            break
            wait_until_quiet(router)
            result = bench.measure(router, 32, body(), seconds)
            figures.setdefault(crowd, []).append({**result, "rss": router.rss_mib()})
            for one in sockets:
                one.close()
            wait_until_quiet(router)
    return figures


def median(results, key):
    return statistics.median(result[key] for result in results)


def ratio(ours, theirs, key):
    ratios = [a[key] / b[key] for a, b in zip(ours, theirs)]
    return f"{min(ratios):.2f} / **{statistics.median(ratios):.2f}** / {max(ratios):.2f}"


def print_tables(figures, targets):
    for workload in WORKLOADS:
        print(f"\n| {workload} | requests/s | CPU, us/request | p50, us | p99, us |\n|---|---|---|---|---|")
        for target in targets:
            of = figures[workload][target.name]
            print(f"| {target.name} | {median(of, 'rate'):,.0f} | {median(of, 'cpu'):.1f} | {median(of, 'p50'):,.0f} | {median(of, 'p99'):,.0f} |")
    print("\n| | TTFT p50, us | RSS, MiB |\n|---|---|---|")
    for target in targets:
        print(f"| {target.name} | {median(figures['TTFT'][target.name], 'p50'):,.0f} | {target.rss_mib():.0f} |")
    print("\n| pdjob / other, rate (min/median/max) | " + " | ".join(WORKLOADS) + " |\n|---" + "|---" * len(WORKLOADS) + "|")
    names = [target.name for target in targets]
    for ours in ("pdjob", "pdjob PD", "pdjob HTTPS", "pdjob HTTPS PD"):
        for other in names:
            if "HTTPS" in other or ("HTTPS" in ours and other != ours.replace(" HTTPS", "")):
                continue
            if other in (ours, "direct") or (other.endswith(" PD") != ours.endswith(" PD") and other != "nginx"):
                continue
            cells = [ratio(figures[workload][ours], figures[workload][other], "rate") for workload in WORKLOADS]
            print(f"| {ours} / {other} | " + " | ".join(cells) + " |")


def print_crowds(memory, crowds):
    print(f"\nRSS after {memory['requests'] // 10:,} requests {memory['early_mib']:.1f} MiB, after {memory['requests']:,} {memory['late_mib']:.1f} MiB")
    print("\n| pdjob PD, JSON, 32 connections, beside | requests/s | p99, us | RSS, MiB |\n|---|---|---|---|")
    for crowd, results in crowds.items():
        print(f"| {crowd} | {median(results, 'rate'):,.0f} | {median(results, 'p99'):,.0f} | {median(results, 'rss'):.0f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=2, help="of each slice of load")
    parser.add_argument("--requests", type=int, default=1_000_000, help="over which memory is watched")
    options = parser.parse_args()
    _, descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
    peers = pathlib.Path(os.environ.get("PDJOB_PEERS", "/nowhere"))
    binaries = {"pdjob": os.environ["PDJOB_BIN"]}
    for name, program in (("vllm-router", "vllm-router"), ("sglang-router", "smg")):
        if (peers / name / "bin" / program).exists():
            binaries[name] = str(peers / name / "bin" / program)
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(pathlib.Path(folder), binaries)
        try:
            targets = [bench.start_router("nginx", False)]
            targets += [bench.start_router(name, pairs) for name in [*binaries, "pdjob HTTPS"] for pairs in (False, True)]
            time.sleep(2)  # Routers without a launcher ask for their members once a second.
            targets.insert(0, bench.backends[0])
            targets[0].name = "direct"
            figures = measure_all(bench, targets, options.rounds, options.seconds)
            print(json.dumps(figures))
            print_tables(figures, targets)
            router = bench.start_router("pdjob", True)
            time.sleep(2)
            memory = measure_memory(bench, router, options.requests)
            crowds = measure_bystanders(bench, router, options.seconds, options.rounds)
            print(json.dumps({"memory": memory, "crowds": crowds}))
            print_crowds(memory, crowds)
        finally:
            bench.close()


if __name__ == "__main__":
    main()
