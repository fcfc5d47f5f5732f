"""Batches with the real model: every row is answered exactly once, whatever is killed."""

import collections
import contextlib
import csv
import gzip
import io
import json
import os
import pathlib
import random
import shutil
import signal
import sqlite3
import ssl
import subprocess
import threading
import time

import pytest
from conftest import BIN, MODEL

ROWS = 32
SCHEMA = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"], "additionalProperties": False}


def job(folder, workers=1):
    """The quickstart job, with this test's model and state."""
    path = pathlib.Path(folder) / "job.yaml"
    path.write_text(
        f"name: quickstart\nmodel: {MODEL}\nserved_name: tiny\nengine: {{threads: 1, sequences: 4}}\n"
        f"prefill: {{workers: {workers}}}\ndecode: {{workers: {workers}}}\nrouter: {{listen: 127.0.0.1:8000}}\n"
        f"launcher: {{state_dir: {folder}/state, restart: {{backoff_min: 50ms}}}}\n"
    )
    return path


def row(number):
    """Greedy, seeded, with a schema, and with two choices: rows whose answers are always the same."""
    body = {"model": "tiny", "max_tokens": 4 + number % 5, "temperature": 0}
    if number % 4 == 1:
        body.update(temperature=0.9, seed=number)
    if number % 4 == 2:
        body.update(max_tokens=12, response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}})
    if number % 4 == 3:
        body.update(n=2, temperature=0.7, seed=number)
    if number % 2:
        body["prompt"] = f"Number {number} is"
        return {"custom_id": f"r{number}", "method": "POST", "url": "/v1/completions", "body": body}
    body["messages"] = [{"role": "user", "content": f"Say something about {number}."}]
    return {"custom_id": f"r{number}", "method": "POST", "url": "/v1/chat/completions", "body": body}


def write_rows(path, count):
    path.write_text("".join(json.dumps(row(number)) + "\n" for number in range(count)))
    return path


def start(*words, **options):
    return subprocess.Popen([BIN, "batch", *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)


def run(*words, code=0, seconds=270, **options):
    child = start(*words, **options)
    text, _ = child.communicate(timeout=seconds)
    assert child.returncode == code, text
    return text


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def comparable(path):
    """The records without what may differ between two runs: ids and times."""
    records = []
    for record in lines(path):
        body = record["response"]["body"]
        del record["id"], record["response"]["request_id"], body["id"], body["created"]
        body["usage"].pop("prompt_tokens_details", None)
        body.pop("system_fingerprint", None)
        records.append(record)
    return records


def descendants(pid):
    """The process and all that it started, the deepest last."""
    children = collections.defaultdict(list)
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        children[int(fields[1])].append(int(stat.parent.name))
    found = [pid]
    for each in found:
        found.extend(children[each])
    return found


def is_alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def wait_until(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.02)


def ended_rows(out):
    """Counts the records in the part files, without waiting for the next status."""
    return sum(part.read_bytes().count(b"\n") for part in out.glob("parts/*"))


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """An undisturbed run."""
    folder = tmp_path_factory.mktemp("reference")
    rows = write_rows(folder / "rows.jsonl", ROWS)
    text = run(rows, "--out", folder / "out", "--config", job(folder))
    assert f"{ROWS} of {ROWS} rows were answered" in text
    return folder


def test_every_row_is_answered_in_order(reference):
    records = lines(reference / "out/output.jsonl")
    assert [record["custom_id"] for record in records] == [f"r{number}" for number in range(ROWS)]
    assert all(record["error"] is None and record["response"]["status_code"] == 200 for record in records)
    assert all(len(record["response"]["body"]["choices"]) == (2 if number % 4 == 3 else 1) for number, record in enumerate(records))
    assert (reference / "out/errors.jsonl").read_text() == ""
    assert f"| answered | {ROWS} |" in (reference / "out/report.md").read_text()
    assert (reference / "out/report.html").read_text().count("<svg") == 4
    assert "completed" in subprocess.check_output([BIN, "batch", "status", reference / "out"], text=True)
    # Once more: nothing is left to do, and no job is started.
    begun = time.monotonic()
    run(reference / "rows.jsonl", "--out", reference / "out", "--config", reference / "job.yaml")
    assert time.monotonic() - begun < 5


def kind_of(tree, pid):
    """What a process of a batch is: batch, launcher, router, prefill or decode."""
    if pid in tree[:2]:
        return ("batch", "launcher")[tree.index(pid)]
    return pathlib.Path(f"/proc/{pid}/comm").read_text().strip().removeprefix("pdjob:").split("-")[0]


class Killer:
    """Runs a batch, and kills one of its processes again and again. The same command goes on whenever the batch ends by it."""

    def __init__(self, rows, out, config, seed):
        self.command, self.out, self.chance = (rows, "--out", out, "--config", config), out, random.Random(seed)
        self.batch, self.killed = None, collections.Counter()

    def kill(self, kind, more_rows):
        """Kills a process of this kind once the job runs and so many rows more have ended; a moment later, at random."""
        self.batch = self.batch or start(*self.command)
        wanted = ended_rows(self.out) + more_rows
        # A job of a launcher, a router and two workers.
        wait_until(lambda: self.batch.poll() is not None or (len(descendants(self.batch.pid)) >= 5 and ended_rows(self.out) >= wanted), 240)
        assert self.batch.poll() is None, f"it ended before kill {self.killed.total()}: {self.batch.stdout.read()}"
        time.sleep(self.chance.random() / 2)
        tree = descendants(self.batch.pid)
        try:
            victims = [pid for pid in tree if kind_of(tree, pid) == kind]
            os.kill(self.chance.choice(victims or tree[:1]), signal.SIGKILL)
        except (FileNotFoundError, ProcessLookupError):  # It has just ended, by an earlier kill.
            return
        self.killed[kind if victims else "batch"] += 1
        if kind in ("batch", "launcher") or not victims:
            text, _ = self.batch.communicate(timeout=60)
            assert self.batch.returncode in (-signal.SIGKILL, 1), text
            wait_until(lambda: not any(is_alive(pid) for pid in tree), 30)
            self.batch = None

    def finish(self, seconds):
        if self.batch:
            self.batch.kill()
            self.batch.communicate()
        run(*self.command, seconds=seconds)


def test_kills_change_nothing(reference, tmp_path):
    """Worker, launcher, router and the batch itself are killed at random moments; the results are those of the undisturbed run."""
    killer = Killer(write_rows(tmp_path / "rows.jsonl", ROWS), tmp_path / "out", job(tmp_path), 7)
    for kind in ("decode", "launcher", "router", "batch"):
        killer.kill(kind, 1)
    killer.finish(270)
    assert comparable(tmp_path / "out/output.jsonl") == comparable(reference / "out/output.jsonl")
    assert (tmp_path / "out/errors.jsonl").read_text() == ""


def test_a_row_that_crashes_workers_is_set_aside_alone_though_the_batch_is_killed(tmp_path):
    """Two crashes set the row aside. A crash before the kill of the whole batch is forgotten."""

    def crashes():
        logs = [log.read_text(errors="replace") for log in tmp_path.glob("state/*/logs/prefill-*.log")]
        return sum("fake_crash_on_token" in line for log in logs for line in log.splitlines())

    path = job(tmp_path, workers=2)
    path.write_text(path.read_text().replace(f"model: {MODEL}\n", "").replace(
        "threads: 1, sequences: 4", "kind: fake, sequences: 4, fake_crash_on_token: 35, fake_delay_per_token: 20ms"))
    rows = [{"custom_id": f"r{number}", "method": "POST", "url": "/v1/completions",
             "body": {"model": "tiny", "prompt": "crash #" if number == 1 else f"Row {number}", "max_tokens": 8}} for number in range(40)]
    file, out = tmp_path / "rows.jsonl", tmp_path / "out"
    file.write_text("".join(json.dumps(each) + "\n" for each in rows))
    batch = start(file, "--out", out, "--config", path)
    wait_until(crashes, 120)
    tree = descendants(batch.pid)
    for pid in tree:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    batch.communicate(timeout=60)
    wait_until(lambda: not any(is_alive(pid) for pid in tree), 30)
    run(file, "--out", out, "--config", path, code=4)
    (error,) = lines(out / "errors.jsonl")
    assert error["custom_id"] == "r1" and error["response"]["status_code"] == 422, error
    assert error["response"]["body"]["error"]["code"] == "request_kills_workers"
    answered = [record["custom_id"] for record in lines(out / "output.jsonl")]
    assert answered == [each["custom_id"] for each in rows if each["custom_id"] != "r1"], "no other row is set aside"
    # The logs are those of this life: they begin anew with the job. If no other worker was ready in time, the batch asked again, and the count began anew.
    assert 2 <= crashes() <= 4


@pytest.mark.heavy
def test_fifty_kills_in_a_thousand_rows_change_nothing(tmp_path):
    """The same, with each kind of process ten times, in random order."""
    rows, kills = 1000, 50
    calm, wild = tmp_path / "calm", tmp_path / "wild"
    calm.mkdir(), wild.mkdir()
    run(write_rows(calm / "rows.jsonl", rows), "--out", calm / "out", "--config", job(calm), seconds=3600)
    killer = Killer(write_rows(wild / "rows.jsonl", rows), wild / "out", job(wild), 11)
    kinds = ["batch", "launcher", "router", "prefill", "decode"] * (kills // 5)
    killer.chance.shuffle(kinds)
    while killer.killed.total() < kills:
        killer.kill(kinds[killer.killed.total()], killer.chance.randrange(rows // kills))
    killer.finish(3600)
    print(dict(killer.killed))
    assert comparable(wild / "out/output.jsonl") == comparable(calm / "out/output.jsonl")
    assert (wild / "out/errors.jsonl").read_text() == ""


def test_a_job_file_of_mode_batch_runs_it(reference, tmp_path):
    """`pdjob --config` runs the section's rows and ends; flags of `pdjob batch` win over the section."""
    rows, config = write_rows(tmp_path / "rows.jsonl", 4), job(tmp_path)
    config.write_text(config.read_text() + "mode: batch\nbatch: {in: ['row*.jsonl'], out: out, attempts: 3}\n")
    plan = subprocess.run([BIN, "plan", "--config", config], capture_output=True, text=True, check=True).stdout
    assert f"batch: the rows of {tmp_path}/row*.jsonl, results in {tmp_path}/out" in plan and "job quickstart-batch" in plan, plan
    child = subprocess.run([BIN, "--config", config], capture_output=True, text=True, timeout=240)
    assert child.returncode == 0, child.stderr
    assert comparable(tmp_path / "out/output.jsonl") == comparable(reference / "out/output.jsonl")[:4]
    # The section may change: the batch goes on, and has nothing left to do.
    config.write_text(config.read_text().replace("attempts: 3", "attempts: 4"))
    assert "4 of 4 rows were answered" in run("--config", config)
    run(rows, "--config", config, "--out", tmp_path / "other", "--order", "completed")
    assert len(lines(tmp_path / "other/output.jsonl")) == 4
    broken = tmp_path / "broken.yaml"
    broken.write_text(config.read_text().replace("attempts: 4", "attempts: 0") + "router: {async: {file: a.db}}\n")
    text = subprocess.run([BIN, "--config", broken], capture_output=True, text=True)
    assert text.returncode == 2 and "batch.attempts: must be 1..100, got 0" in text.stderr and "^" in text.stderr


def make_certificate(folder, name):
    """Returns a file with a self-signed certificate for 127.0.0.1, and its key."""
    file = folder / f"{name}.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}"]
    subprocess.run([*command, "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", file, "-out", file], check=True, capture_output=True)
    return file


def test_https_with_a_trusted_certificate_and_a_key_of_the_environment(server, tmp_path):
    known, unknown = make_certificate(tmp_path, "known"), make_certificate(tmp_path, "unknown")
    behave = lambda body, times: (503, {}, {"retry-after": "1"}) if times == 1 else (200, {"ok": body["max_tokens"]}, {})
    server = server(behave, known)
    rows, out = write_rows(tmp_path / "rows.jsonl", 20), tmp_path / "out"
    words = (rows, "--out", out, "--url", server.url)
    environment = {**os.environ, "PDJOB_API_KEY": "secret"}
    begun = time.monotonic()
    for refused in ([], ["--ca-file", unknown], ["--ca-file", tmp_path / "nothing.pem"]):
        assert "certificate" in run(*words, *refused, env=environment, code=1).lower()
    assert time.monotonic() - begun < 20 and not server.seen, "an untrusted server is no server: nobody waits for it"
    run(*words, "--ca-file", known, env=environment)
    assert [record["response"]["body"]["ok"] for record in lines(out / "output.jsonl")] == [row(number)["body"]["max_tokens"] for number in range(20)]
    assert server.keys == {"Bearer secret"} and set(server.seen.values()) == {2}


class Server(threading.Thread):
    """A server that answers like OpenAI's, or as `behave` says."""

    def __init__(self, behave=None, certificate=None):
        super().__init__(daemon=True)
        import http.server

        owner = self
        self.seen, self.keys = collections.Counter(), set()
        self.behave = behave or (lambda body, times: (200, {"echo": body.get("prompt"), "usage": {"completion_tokens": 2}}, {}))

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                key = json.dumps(body, sort_keys=True)
                owner.seen[key] += 1
                owner.keys.add(self.headers["authorization"])
                status, reply, headers = owner.behave(body, owner.seen[key])
                text = json.dumps(reply).encode()
                self.send_response(status)
                for name, value in {"content-type": "application/json", "content-length": str(len(text)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(text)

            def do_GET(self):
                self.send_error(404)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"{'https' if certificate else 'http'}://127.0.0.1:{self.server.server_port}/v1"
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.start()

    def run(self):
        self.server.serve_forever(poll_interval=0.05)


@pytest.fixture
def server():
    made = []

    def make(*arguments):
        made.append(Server(*arguments))
        return made[-1]

    yield make
    for each in made:
        each.server.shutdown()
        each.server.server_close()


def test_csv_gzip_and_standard_input(server, tmp_path):
    words = ["--url", server().url, "--template", '{"prompt": "Say {{word}}"}']
    (tmp_path / "a.csv").write_text('id,word\n1,"one, or\ntwo"\n2,three\n')
    run(tmp_path / "a.csv", "--out", tmp_path / "csv", "--id-column", "id", *words)
    assert [(r["custom_id"], r["response"]["body"]["echo"]) for r in lines(tmp_path / "csv/output.jsonl")] == [
        ("1", "Say one, or\ntwo"),
        ("2", "Say three"),
    ]
    with gzip.open(tmp_path / "b.jsonl.gz", "wt") as file:
        file.write('{"word": "x"}\n{"word": "y"}\n')
    run(f"{tmp_path}/b*.gz", "--out", tmp_path / "gz", *words)
    assert [r["response"]["body"]["echo"] for r in lines(tmp_path / "gz/output.jsonl")] == ["Say x", "Say y"]
    child = start("-", "--format", "jsonl", "--out", tmp_path / "in", *words, stdin=subprocess.PIPE)
    child.communicate('{"word": "z"}\n', timeout=60)
    assert child.returncode == 0
    assert lines(tmp_path / "in/output.jsonl")[0]["custom_id"] == "row-1"


def run_table(server, folder, file, columns):
    """Asks all rows of a table, and returns the fields that the server saw, and the exit code."""
    template = json.dumps({"prompt": ["{{%s}}" % column for column in columns]})
    out = folder / (file.name + ".out")
    child = start(file, "--out", out, "--url", server.url, "--template", template)
    child.communicate(timeout=270)
    return [record["response"]["body"]["echo"] for record in lines(out / "output.jsonl")], child.returncode, out


@pytest.mark.parametrize("ending", ["csv", "tsv"])
def test_tables_are_read_as_pythons_csv_reads_them(server, tmp_path, ending):
    """A file of each seed has all that can go wrong with quotes and ends of lines."""
    server = server()
    comma, other = (",", "\t") if ending == "csv" else ("\t", ",")
    pieces = [comma] * 4 + ['"'] * 3 + ["\n", "\r", "\r\n", "\n\n", "\\", other, " ", "a", "b", "ü", '""', comma + '"', '"' + comma, '"\n']
    for seed in range(25):
        draw = random.Random(seed)
        text = f"a{comma}b\n" + "".join(draw.choice(pieces) for _ in range(draw.choice([4, 40, 400]))) + f"\nlast{comma}row\n"
        read = lambda text: [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=comma) if row]
        if read(text)[-1] != ["last", "row"]:
            text += '"\n'  # The last line is in quotes, or behind some.
        file = tmp_path / f"{seed}.{ending}"
        file.write_bytes(text.encode())
        expected = read(text)[1:]
        answered, code, _ = run_table(server, tmp_path, file, "ab")
        assert answered == [row for row in expected if len(row) == 2], (seed, text)
        assert code == (0 if all(len(row) == 2 for row in expected) else 4), (seed, text)


def test_a_quote_in_a_table_loses_no_row(server, tmp_path):
    server = server()
    (tmp_path / "nails.csv").write_text('text\na 5" nail\nplain row\na 6" nail\nlast row\n')
    assert run_table(server, tmp_path, tmp_path / "nails.csv", ["text"])[:2] == ([['a 5" nail'], ["plain row"], ['a 6" nail'], ["last row"]], 0)
    (tmp_path / "open.csv").write_text('id,text\n1,"a\n2,b\n3,c\n')
    answered, code, out = run_table(server, tmp_path, tmp_path / "open.csv", ["id", "text"])
    assert (answered, code) == ([["2", "b"], ["3", "c"]], 4)
    (error,) = lines(out / "errors.jsonl")
    assert error["error"]["code"] == "invalid_row" and "open.csv:2: a field that begins with a quote" in error["error"]["message"]


def test_a_file_without_rows_starts_nothing(server, tmp_path):
    (tmp_path / "empty.csv").write_text("text\r")
    text = run(tmp_path / "empty.csv", "--out", tmp_path / "out", "--url", server().url, "--template", '{"prompt": "{{text}}"}', code=2)
    assert "empty.csv has no rows" in text


def test_failed_rows_are_told_and_can_be_tried_again(server, tmp_path):
    broken = True
    behave = lambda body, times: (400, {"error": {"message": "no"}}, {}) if broken and body["prompt"] == "r1" else (200, {"ok": 1}, {})
    url = server(behave).url
    rows = tmp_path / "rows.jsonl"
    text = "".join(json.dumps({"custom_id": f"r{n}", "url": "/v1/completions", "body": {"prompt": f"r{n}"}}) + "\n" for n in range(3))
    rows.write_text(text + "nonsense\n" + text.splitlines()[0] + "\n")
    out = tmp_path / "out"
    assert "3 rows failed" in run(rows, "--out", out, "--url", url, code=4)
    errors = {(record["custom_id"], record["error"]["code"]): record for record in lines(out / "errors.jsonl")}
    assert set(errors) == {("r1", "http_400"), (None, "invalid_json_line"), ("r0", "duplicate_custom_id")}
    assert f"{rows}:4: " in errors[None, "invalid_json_line"]["error"]["message"]
    assert f"{rows}:5: its custom_id is that of {rows}:1" in errors["r0", "duplicate_custom_id"]["error"]["message"]
    assert errors["r1", "http_400"]["response"]["body"] == {"error": {"message": "no"}}
    broken = False
    run(rows, "--out", out, "--url", url, "--retry-failed", code=4)
    assert [record["custom_id"] for record in lines(out / "output.jsonl")] == ["r0", "r1", "r2"]
    assert len(lines(out / "errors.jsonl")) == 2


def test_a_busy_server_is_asked_again_when_it_says(server, tmp_path):
    begun = time.monotonic()
    server = server(lambda body, times: (429, {}, {"retry-after": "2"}) if times == 1 else (200, {"ok": 1}, {}))
    (tmp_path / "rows.txt").write_text("one\n")
    run(tmp_path / "rows.txt", "--out", tmp_path / "out", "--url", server.url, "--template", '{"prompt": "{{text}}"}')
    assert time.monotonic() - begun >= 2
    assert list(server.seen.values()) == [2]


def blamed_rows(out, folder):
    """Reads a copy: the ledger belongs to the living batch alone."""
    for name in ("ledger.sqlite", "ledger.sqlite-wal"):
        shutil.copy(out / name, folder / name)
    with contextlib.closing(sqlite3.connect(folder / "ledger.sqlite")) as ledger:
        return ledger.execute("SELECT count(*) FROM blames").fetchone()[0]


def test_failures_of_a_row_count_over_the_lives_of_a_batch(server, tmp_path):
    server = server(lambda body, times: (500, {}, {"retry-after": "600"}))
    (tmp_path / "rows.txt").write_text("one\n")
    (tmp_path / "copy").mkdir()
    out = tmp_path / "out"
    words = (tmp_path / "rows.txt", "--out", out, "--url", server.url, "--template", '{"prompt": "{{text}}"}', "--attempts", 2)
    batch = start(*words)
    wait_until(lambda: server.seen and blamed_rows(out, tmp_path / "copy"))
    batch.kill()
    batch.communicate()
    assert "1 rows failed" in run(*words, code=4)
    assert list(server.seen.values()) == [2] and lines(out / "errors.jsonl")[0]["error"]["code"] == "http_500"


def test_wrong_use_starts_nothing(server, tmp_path):
    url = server().url
    rows = write_rows(tmp_path / "rows.jsonl", 2)
    out = tmp_path / "out"
    assert "one of --config, --job and --url" in run(rows, "--out", out, code=2)
    assert "cannot open" in run(tmp_path / "nothing.jsonl", "--out", out, "--url", url, code=2)
    assert "cannot make the folder" in run(rows, "--out", "/proc/out", "--url", url, code=2)
    assert "need a template" in run(rows, "--format", "text", "--out", out, "--url", url, code=2)
    run(rows, "--out", out, "--url", url)
    rows.write_text(rows.read_text() + "\n\n")
    assert "is not the file that it was" in run(rows, "--out", out, "--url", url, code=2)
    run(rows, "--out", out, "--url", url, "--restart")
    config = job(tmp_path)
    text = run(rows, "--out", out, "--config", config, code=2)
    assert "the job file or the server is another one" in text


def test_one_process_works_in_a_folder(server, tmp_path):
    held = threading.Event()
    server = server(lambda body, times: (held.wait(60), (200, {"ok": 1}, {}))[1])
    rows, out = write_rows(tmp_path / "rows.jsonl", 1), tmp_path / "out"
    first = start(rows, "--out", out, "--url", server.url)
    wait_until(lambda: server.seen)
    wait_until(lambda: subprocess.check_output([BIN, "batch", "status", out], text=True).startswith("running"))
    assert "another pdjob batch works in this folder" in run(rows, "--out", out, "--url", server.url, code=2)
    held.set()
    first.communicate(timeout=60)
    assert first.returncode == 0


def test_a_killed_batch_says_so(server, tmp_path):
    server = server(lambda body, times: (time.sleep(30), (200, {"ok": 1}, {}))[1])
    rows, out = write_rows(tmp_path / "rows.jsonl", 1), tmp_path / "out"
    batch = start(rows, "--out", out, "--url", server.url)
    wait_until(lambda: server.seen)
    batch.kill()
    batch.communicate()
    assert "interrupted" in subprocess.check_output([BIN, "batch", "status", out], text=True)


def test_a_full_disk_loses_nothing(server, tmp_path):
    """A limit of file sizes stands in for a full disk: both are a write that fails."""
    url = server(lambda body, times: (200, {"long": "x" * 20000}, {})).url
    rows, out = write_rows(tmp_path / "rows.jsonl", 200), tmp_path / "out"
    command = [BIN, "batch", rows, "--out", out, "--url", url]
    limited = subprocess.run(
        ["bash", "-c", 'trap "" XFSZ; ulimit -f 1024; exec "$@"', "-", *command], capture_output=True, text=True, timeout=120
    )
    assert limited.returncode == 1, limited.stderr
    assert "cannot write" in limited.stderr and "the same command" in limited.stderr
    run(*command[2:])
    assert [record["custom_id"] for record in lines(out / "output.jsonl")] == [f"r{number}" for number in range(200)]


def test_ctrl_c_stops_and_the_same_command_goes_on(server, tmp_path):
    server = server(lambda body, times: (time.sleep(0.1), (200, {"ok": 1}, {}))[1])
    rows, out = write_rows(tmp_path / "rows.jsonl", 100), tmp_path / "out"
    batch = start(rows, "--out", out, "--url", server.url, "--concurrency", 4)
    wait_until(lambda: ended_rows(out) >= 10)
    batch.send_signal(signal.SIGINT)
    text, _ = batch.communicate(timeout=30)
    assert batch.returncode == 130, text
    assert "the same command goes on" in text
    run(rows, "--out", out, "--url", server.url)
    assert len(lines(out / "output.jsonl")) == 100
