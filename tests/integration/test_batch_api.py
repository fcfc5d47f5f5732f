"""OpenAI's Batch API on a job's router, with the unmodified `openai` client: results are there exactly once, whatever is killed."""

import contextlib
import hashlib
import http.client
import io
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import threading
import time
import urllib.parse

import openai
import pytest

from conftest import MODEL, Job, eventually, get

KEYS = {"alice": "sk-alice-0123456789", "bob": "sk-bob-9876543210"}
ENDPOINT = "/v1/completions"


def job_text(folder, api="", tenants=False, delay="", router="", launcher="", limits=""):
    """The fake engine answers at once, or with `delay`, after it; everything else is real."""
    keys = ", ".join(f"{name}: {{key_sha256: {hashlib.sha256(key.encode()).hexdigest()}{limits}}}" for name, key in KEYS.items())
    return f"""\
name: test-{pathlib.Path(folder).name.replace("_", "-")[-40:]}
served_name: tiny
engine: {{kind: fake, sequences: 16{delay}}}
prefill: {{workers: 1}}
decode: {{workers: 1}}
router:
  listen: 127.0.0.1:0
  {"tenants: {" + keys + "}" if tenants else "attempts: 3"}
  {router}
batch_api: {{dir: {folder}/api{", " + api if api else ""}}}
launcher: {{state_dir: {folder}/state, restart: {{backoff_min: 50ms}}{", " + launcher if launcher else ""}}}
"""


@contextlib.contextmanager
def running(folder, env=None, **how):
    job = Job(job_text(folder, **how), folder, env)
    try:
        job.wait_ready()
        yield job
    except BaseException:
        print(job.log_tail())
        for log in sorted(pathlib.Path(folder).glob("state/*/logs/*.log")):
            print(f"--- {log.name}\n" + "\n".join(log.read_text(errors="replace").splitlines()[-30:]))
        raise
    finally:
        code = job.stop()
    assert code == 0, job.log_tail()


def client_of(job, name="alice"):
    return openai.OpenAI(base_url=job.url + "/v1", api_key=KEYS[name], max_retries=5, timeout=60)


@pytest.fixture(scope="module")
def job():
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as folder:
        with running(folder, tenants=True, api="file_bytes_max: 1000000, rows_max: 500, batches_max: 3") as made:
            yield made


@pytest.fixture(scope="module")
def client(job):
    return client_of(job)


def row(number, **more):
    body = {"model": "tiny", "prompt": f"Number {number} is", "max_tokens": 4, **more}
    return {"custom_id": f"r{number}", "method": "POST", "url": ENDPOINT, "body": body}


def upload(client, rows, **more):
    text = "".join(json.dumps(each) + "\n" for each in rows)
    return client.files.create(file=("rows.jsonl", text.encode()), purpose="batch", **more)


def start(client, rows, window="24h", **more):
    return client.batches.create(input_file_id=upload(client, rows).id, endpoint=ENDPOINT, completion_window=window, **more)


ENDED = ("completed", "failed", "expired", "cancelled")


def wait_end(client, batch, seconds=120):
    found = {}

    def ended():
        with contextlib.suppress(openai.APIConnectionError, openai.InternalServerError):
            found["batch"] = client.batches.retrieve(batch.id)
        return "batch" in found and found["batch"].status in ENDED

    eventually(ended, seconds, f"the end of {batch.id}")
    return found["batch"]


def lines(client, file_id):
    return [json.loads(line) for line in client.files.content(file_id).text.splitlines()] if file_id else []


# ---- The cycle


def test_the_whole_cycle_with_the_official_client(client):
    rows = [row(number) for number in range(50)] + [row(50, max_tokens=-2), row(51, model="nobody")]
    file = upload(client, rows)
    assert (file.object, file.purpose, file.filename, file.status) == ("file", "batch", "rows.jsonl", "processed")
    assert file.bytes == len(client.files.content(file.id).content)
    batch = client.batches.create(input_file_id=file.id, endpoint=ENDPOINT, completion_window="24h", metadata={"who": "me"})
    assert (batch.object, batch.endpoint, batch.input_file_id, batch.metadata) == ("batch", ENDPOINT, file.id, {"who": "me"})
    assert batch.expires_at == batch.created_at + 24 * 3600
    ended = wait_end(client, batch)
    assert ended.status == "completed" and ended.errors is None
    counts = ended.request_counts
    assert (counts.total, counts.completed, counts.failed) == (52, 50, 2)
    assert ended.created_at <= ended.in_progress_at <= ended.finalizing_at <= ended.completed_at
    output = lines(client, ended.output_file_id)
    assert [each["custom_id"] for each in output] == [f"r{number}" for number in range(50)], "each row once, in order"
    assert all(each["error"] is None and each["response"]["status_code"] == 200 for each in output)
    assert all(each["response"]["body"]["choices"][0]["text"] for each in output)
    assert ended.usage.output_tokens == sum(each["response"]["body"]["usage"]["completion_tokens"] for each in output)
    errors = lines(client, ended.error_file_id)
    assert [(each["custom_id"], each["response"]["status_code"]) for each in errors] == [("r50", 400), ("r51", 404)]
    names = [client.files.retrieve(id).filename for id in (ended.output_file_id, ended.error_file_id)]
    assert names == [f"{batch.id}_output.jsonl", f"{batch.id}_error.jsonl"]
    assert client.files.retrieve(ended.output_file_id).purpose == "batch_output"


def test_lists_have_pages(client):
    made = [upload(client, [row(number)]).id for number in range(5)]
    assert [file.id for file in client.files.list(limit=2, purpose="batch")][:5] == made[::-1], "the client asks for every page"
    page = client.files.list(limit=2, purpose="batch", order="desc", after=made[4])
    assert [file.id for file in page.data] == [made[3], made[2]] and page.has_more
    batches = []
    for id in made[:3]:
        batch = client.batches.create(input_file_id=id, endpoint=ENDPOINT, completion_window="1h")
        batches.append(wait_end(client, batch).id)
    assert [batch.id for batch in client.batches.list(limit=1)][:3] == batches[::-1]
    page = client.batches.list(limit=2, after=batches[2])
    assert [batch.id for batch in page.data] == [batches[1], batches[0]]
    for id in made:
        assert client.files.delete(id).deleted
        with pytest.raises(openai.NotFoundError):
            client.files.retrieve(id)


def test_a_batch_outlives_its_input(client):
    file = upload(client, [row(number) for number in range(20)])
    batch = client.batches.create(input_file_id=file.id, endpoint=ENDPOINT, completion_window="1h")
    client.files.delete(file.id)
    assert wait_end(client, batch).request_counts.completed == 20


def test_a_wrong_line_fails_the_batch(client):
    file = client.files.create(
        file=("rows.jsonl", "\n".join([json.dumps(row(1)), "{not json", json.dumps({**row(2), "url": "/v1/chat/completions"})]).encode()),
        purpose="batch",
    )
    ended = wait_end(client, client.batches.create(input_file_id=file.id, endpoint=ENDPOINT, completion_window="24h"))
    assert ended.status == "failed" and ended.failed_at and not ended.output_file_id
    assert [(error.code, error.line) for error in ended.errors.data] == [("invalid_json_line", 2), ("invalid_url", 3)]
    twice = wait_end(client, start(client, [row(1), row(2), row(1)]))
    assert [(error.code, error.line) for error in twice.errors.data] == [("duplicate_custom_id", 3)]
    many = wait_end(client, start(client, [row(number) for number in range(501)]))
    assert [error.code for error in many.errors.data] == ["too_many_requests"]
    file = client.files.create(file=("rows.jsonl", b"\n"), purpose="batch")
    empty = wait_end(client, client.batches.create(input_file_id=file.id, endpoint=ENDPOINT, completion_window="24h"))
    assert [error.code for error in empty.errors.data] == ["empty_file"]


# ---- Tenants, limits, hostile clients


def test_tenants_see_only_what_is_theirs(job, client):
    other = client_of(job, "bob")
    batch = wait_end(client, start(client, [row(1)]))
    for ask in (
        lambda: other.files.retrieve(batch.input_file_id),
        lambda: other.files.content(batch.output_file_id),
        lambda: other.files.delete(batch.output_file_id),
        lambda: other.batches.retrieve(batch.id),
        lambda: other.batches.cancel(batch.id),
        lambda: other.batches.create(input_file_id=batch.input_file_id, endpoint=ENDPOINT, completion_window="24h"),
        lambda: other.batches.list(after=batch.id).data,
    ):
        with pytest.raises(openai.NotFoundError):
            ask()
    assert other.files.list().data == [] and other.batches.list().data == []
    # A header cannot change who asks, at neither address.
    other = other.with_options(default_headers={"x-pdjob-batch-tenant": "alice", "x-pdjob-tenant": "alice"})
    assert other.files.list().data == []
    with pytest.raises(openai.NotFoundError):
        other.batches.retrieve(batch.id)
    nobody = client.with_options(api_key="sk-mallory")
    with pytest.raises(openai.AuthenticationError):
        nobody.files.list()
    with pytest.raises(openai.AuthenticationError):
        upload(nobody, [row(1)])


def test_the_process_itself_wants_a_key(job):
    address = next(process["url"] for process in job.status()["processes"] if process["name"] == "batch")
    with pytest.raises(Exception, match="401"):
        get(address + "/v1/files", headers={"x-pdjob-batch-tenant": "alice", "Authorization": f"Bearer {KEYS['alice']}"})


def post_raw(job, body, content_type, key=KEYS["alice"], path="/v1/files"):
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(job.url).netloc, timeout=30)
    connection.request("POST", path, body, {"Content-Type": content_type, "Authorization": f"Bearer {key}"})
    reply = connection.getresponse()
    return reply.status, json.loads(reply.read())


def form(*parts, boundary="b0"):
    text = b""
    for head, content in parts:
        text += f"--{boundary}\r\nContent-Disposition: form-data; {head}\r\n\r\n".encode() + content + b"\r\n"
    return text + f"--{boundary}--\r\n".encode()


FORM = "multipart/form-data; boundary=b0"
PURPOSE = ('name="purpose"', b"batch")


def test_a_form_must_be_right(job):
    good = ('name="file"; filename="a.jsonl"', b"{}\n")
    assert post_raw(job, form(PURPOSE, good), FORM)[0] == 200
    assert post_raw(job, form(good, PURPOSE), FORM)[0] == 200, "the purpose may come last"
    bad = [
        (form(PURPOSE, good), "application/json"),
        (form(PURPOSE, good), "multipart/form-data"),
        (form(PURPOSE, good), "multipart/form-data; boundary=other"),
        (form(PURPOSE, good)[:-6], FORM),
        (b"", FORM),
        (form(PURPOSE), FORM),
        (form(good), FORM),
        (form(PURPOSE, good, good), FORM),
        (form(('name="purpose"', b"fine-tune"), good), FORM),
        (form(PURPOSE, ('name="file"', b"{}\n")), FORM),
        (form(PURPOSE, good, ('name="expires_after[seconds]"', b"5"), ('name="expires_after[anchor]"', b"created_at")), FORM),
        (form(*[('name="x"', b"")] * 20), FORM),
        (form(PURPOSE, ('name="file"; filename="' + "a" * 5000 + '"', b"")), FORM),
    ]
    for body, content_type in bad:
        status, reply = post_raw(job, body, content_type)
        assert status == 400 and reply["error"]["type"] == "invalid_request_error", (body[:200], reply)


def test_names_of_files_reach_no_disk(job, client):
    for name in ("../../../tmp/pdjob-evil.jsonl", "/etc/passwd", "a\\..\\b", "..", 'with "quotes".jsonl', "süß.jsonl"):
        file = client.files.create(file=(name, b"{}\n"), purpose="batch")
        assert client.files.content(file.id).content == b"{}\n"
    assert not pathlib.Path("/tmp/pdjob-evil.jsonl").exists()
    api = job.folder / "api"
    inside = {path.relative_to(api).parts[0] for path in api.rglob("*")}
    assert inside <= {"files", "batches", "catalog.sqlite", "catalog.sqlite-wal", "catalog.sqlite-shm"}
    assert all(path.name.removesuffix(".part").startswith("file-") for path in (api / "files").iterdir())
    for hostile in ("..", "..%2F..%2Fcatalog.sqlite", "../catalog.sqlite", "file-x/../../catalog.sqlite", "%00", "a" * 2000):
        for path in (f"/v1/files/{hostile}", f"/v1/files/{hostile}/content", f"/v1/batches/{hostile}"):
            with pytest.raises(Exception, match="404|400"):
                get(job.url + path, headers={"Authorization": f"Bearer {KEYS['alice']}"})


def test_a_large_file_is_refused(job, client):
    with pytest.raises(openai.APIStatusError) as refusal:
        client.with_options(max_retries=0).files.create(file=("rows.jsonl", b"x" * 1_000_001), purpose="batch")
    assert refusal.value.status_code == 413
    assert refusal.value.body["type"] == "invalid_request_error" and refusal.value.body["code"] == "file_too_large"
    status, reply = post_raw(job, iter([form(PURPOSE, ('name="file"; filename="a"', b"x" * 1_000_001))]), FORM)
    assert status == 413 and reply["error"]["param"] == "file"
    eventually(lambda: not list((job.folder / "api/files").glob("*.part")), 30, "nothing is left of it")


def test_a_batch_of_embeddings(client):
    rows = [{"custom_id": f"e{number}", "method": "POST", "url": "/v1/embeddings", "body": {"model": "tiny", "input": [f"text {number}", "b"]}} for number in range(20)]
    batch = client.batches.create(input_file_id=upload(client, rows).id, endpoint="/v1/embeddings", completion_window="24h")
    ended = wait_end(client, batch)
    assert (ended.status, ended.request_counts.completed, ended.request_counts.failed) == ("completed", 20, 0)
    answers = [json.loads(line) for line in client.files.content(ended.output_file_id).text.splitlines()]
    assert sorted(answer["custom_id"] for answer in answers) == sorted(row["custom_id"] for row in rows)
    assert all(len(answer["response"]["body"]["data"]) == 2 for answer in answers)


def test_requests_for_batches_must_be_right(job, client):
    file = upload(client, [row(1)]).id
    good = {"input_file_id": file, "endpoint": ENDPOINT, "completion_window": "24h"}
    for wrong, status, param in [
        ({"input_file_id": "file-none"}, 404, "input_file_id"),
        ({"input_file_id": "../" + file}, 404, "input_file_id"),
        ({"endpoint": "/v1/files"}, 400, "endpoint"),
        ({"endpoint": None}, 400, "endpoint"),
        ({"completion_window": "forever"}, 400, "completion_window"),
        ({"completion_window": "9999d"}, 400, "completion_window"),
        ({"metadata": {str(n): "x" for n in range(17)}}, 400, "metadata"),
        ({"metadata": {"a": 1}}, 400, "metadata"),
        ({"output_expires_after": {"anchor": "created_at", "seconds": 1}}, 400, "output_expires_after.seconds"),
    ]:
        got, reply = post_raw(job, json.dumps({**good, **wrong}), "application/json", path="/v1/batches")
        assert (got, reply["error"]["param"]) == (status, param), reply
    assert post_raw(job, "{", "application/json", path="/v1/batches")[0] == 400
    assert post_raw(job, "x" * 100_000, "application/json", path="/v1/batches")[0] == 413
    with pytest.raises(openai.NotFoundError):
        client.batches.cancel("batch_none")


def test_requests_for_batches_count_towards_a_tenants_rate(tmp_path):
    with running(tmp_path, tenants=True, limits=", requests_per_minute: 5") as job:
        one, other = (client_of(job, name).with_options(max_retries=0) for name in KEYS)
        for _ in range(5):
            one.batches.list()
        for ask in (one.batches.list, one.files.list, lambda: upload(one, [row(1)])):
            with pytest.raises(openai.RateLimitError) as refusal:
                ask()
            assert refusal.value.code == "rate_limit_exceeded" and int(refusal.value.response.headers["retry-after"]) > 0
        other.batches.list()
        # Online requests have their own.
        assert one.completions.create(model="tiny", prompt="a", max_tokens=1).choices


# ---- Deaths


def named(job, name):
    return next(process for process in job.status()["processes"] if process["name"] == name)


def assert_exactly_once(client, batch, count):
    assert batch.status == "completed", batch
    counts = batch.request_counts
    assert (counts.total, counts.completed, counts.failed) == (count, count, 0)
    names = [each["custom_id"] for each in lines(client, batch.output_file_id)]
    assert names == [f"r{number}" for number in range(count)], "each row once, in order"
    assert batch.error_file_id is None


def test_kills_lose_and_double_nothing(tmp_path):
    """Router and batch process are killed while rows run, many times; the job itself once."""
    count = 400
    slow = ", fake_delay_per_token: 2ms"
    with running(tmp_path, delay=slow, api="in_flight_max: 8") as job:
        client = client_of(job)
        batch = start(client, [row(number, max_tokens=8) for number in range(count)])
        done = 0
        for turn in range(6):
            def moved():
                with contextlib.suppress(openai.APIConnectionError, openai.InternalServerError):
                    return client.batches.retrieve(batch.id).request_counts.completed > done
            eventually(moved, 60, "rows that end after a kill")
            done = client.batches.retrieve(batch.id).request_counts.completed
            victim = named(job, "batch" if turn % 2 == 0 else "router-0")
            os.kill(victim["pid"], signal.SIGKILL)
            eventually(lambda: (new := named(job, victim["name"])["pid"]) and new != victim["pid"], 30, "another process")
        before = client.batches.retrieve(batch.id)
        assert before.status == "in_progress" and before.request_counts.completed < count, "it was killed in its midst"
        os.kill(job.pid, signal.SIGKILL)
        job.child.wait()
        again = Job(job_text(tmp_path, delay=slow, api="in_flight_max: 8"), tmp_path).wait_ready()
        client = client_of(again)
        try:
            assert_exactly_once(client, wait_end(client, batch), count)
            assert [each.id for each in client.batches.list()] == [batch.id]
            assert not list((tmp_path / "api/batches").iterdir()), "its folder is gone"
        finally:
            assert again.stop() == 0, again.log_tail()
        job.child.returncode = 0  # It was meant.


def test_several_routers_serve_the_same_batches_and_may_die(tmp_path):
    """Files and batches made at one router are there at the other one; each router is killed while rows run."""
    count = 200
    with running(tmp_path, delay=", fake_delay_per_token: 2ms", api="in_flight_max: 8", router="replicas: 2") as job:
        routers = [named(job, f"router-{number}") for number in range(2)]
        one, other = (openai.OpenAI(base_url=each["url"] + "/v1", api_key="any", max_retries=5, timeout=60) for each in routers)
        batch = other.batches.create(input_file_id=upload(one, [row(number, max_tokens=8) for number in range(count)]).id,
                                     endpoint=ENDPOINT, completion_window="24h")
        assert [each.id for each in one.batches.list()] == [batch.id]
        for number in range(2):
            done = client_of(job).batches.retrieve(batch.id).request_counts.completed
            victim = named(job, f"router-{number}")["pid"]
            os.kill(victim, signal.SIGKILL)
            eventually(lambda: (new := named(job, f"router-{number}")["pid"]) and new != victim, 30, "another router")
            eventually(lambda: client_of(job).batches.retrieve(batch.id).request_counts.completed > done, 60, "rows that end after the kill")
        assert_exactly_once(client_of(job), wait_end(client_of(job), batch), count)
        text = get(named(job, "batch")["url"] + "/metrics")
        assert f'pdjob_batch_rows_total{{outcome="answered"}} {count}\n' in text, "the process itself was never killed"
        assert 'pdjob_batch_batches_total{status="completed"} 1\n' in text


def test_the_real_model_answers_a_batch_as_it_answers_online(tmp_path):
    """Greedy rows get the same texts from the Batch API as from the route itself."""
    text = job_text(tmp_path).replace("engine: {kind: fake, sequences: 16}", f"model: {MODEL}\nengine: {{threads: 1, sequences: 4}}")
    job = Job(text, tmp_path)
    try:
        client = client_of(job.wait_ready())
        rows = [row(number, max_tokens=6, temperature=0) for number in range(12)]
        batch = wait_end(client, start(client, rows))
        assert_exactly_once(client, batch, len(rows))
        for each, record in list(zip(rows, lines(client, batch.output_file_id), strict=True))[:3]:
            online = client.completions.create(**each["body"])
            assert record["response"]["body"]["choices"][0]["text"] == online.choices[0].text != ""
    finally:
        assert job.stop() == 0, job.log_tail()


def test_a_job_that_stops_goes_on_with_its_batches(tmp_path):
    slow = ", fake_delay_per_token: 2ms"
    with running(tmp_path, delay=slow, api="in_flight_max: 4") as job:
        batch = start(client_of(job), [row(number, max_tokens=8) for number in range(100)])
        eventually(lambda: client_of(job).batches.retrieve(batch.id).request_counts.completed > 3, 60, "some rows")
    with running(tmp_path, delay=slow) as job:
        assert_exactly_once(client_of(job), wait_end(client_of(job), batch), 100)


# ---- Ends before the end


def test_cancel_expiry_and_limits(tmp_path):
    slow = ", fake_delay_per_token: 20ms"
    with running(tmp_path, delay=slow, tenants=True, api="in_flight_max: 4, batches_max: 2, running_max: 1, files_max: 6, keep: 1h") as job:
        client = client_of(job)
        rows = [row(number, max_tokens=10) for number in range(1000)]
        first = start(client, rows)
        eventually(lambda: client.batches.retrieve(first.id).request_counts.completed > 2, 60, "some rows")
        # Only one batch runs; the other one waits, and expires.
        second = start(client, [row(number) for number in range(30)], window="6s")
        with pytest.raises(openai.RateLimitError) as refusal:
            start(client.with_options(max_retries=0), [row(1)])
        assert refusal.value.code == "batch_limit_exceeded"
        expired = wait_end(client, second)
        assert expired.status == "expired" and expired.expired_at and not expired.output_file_id
        assert (expired.request_counts.total, expired.request_counts.failed) == (30, 30)
        errors = lines(client, expired.error_file_id)
        assert [(each["custom_id"], each["response"], each["error"]["code"]) for each in errors] == [
            (f"r{number}", None, "batch_expired") for number in range(30)
        ]
        assert client.batches.cancel(first.id).status == "cancelling"
        cancelled = wait_end(client, first)
        assert cancelled.status == "cancelled" and cancelled.cancelled_at >= cancelled.cancelling_at
        done = lines(client, cancelled.output_file_id)
        assert len(done) == cancelled.request_counts.completed > 2 and cancelled.request_counts.failed == 0
        assert len({each["custom_id"] for each in done}) == len(done) < 1000
        assert {each["custom_id"] for each in done} <= {each["custom_id"] for each in rows}
        with pytest.raises(openai.ConflictError):
            client.batches.cancel(first.id)
        # An expired batch keeps the answers that it has.
        for window in ("2s", "6s", "20s"):  # A busy machine may not come to a row before.
            third = wait_end(client, start(client, rows, window=window))
            assert third.status == "expired"
            if third.output_file_id:
                break
            client.files.delete(third.error_file_id)
            client.files.delete(third.input_file_id)
        ended = lines(client, third.output_file_id) + lines(client, third.error_file_id)
        assert sorted(each["custom_id"] for each in ended) == sorted(each["custom_id"] for each in rows), "each row once"
        assert third.request_counts.completed == len(lines(client, third.output_file_id)) > 0
        eventually(lambda: idle(job), 30, "the workers have nothing left")
        # There are seven files now, and a client may have six.
        with pytest.raises(openai.BadRequestError) as refusal:
            upload(client, [row(1)])
        assert refusal.value.code == "too_many_files"
        upload(client_of(job, "bob"), [row(1)])


def idle(job):
    return all(process.get("requests_running", 0) == 0 for process in job.status()["processes"])


def test_files_expire_and_the_disk_is_bounded(tmp_path):
    with running(tmp_path, api="keep: 5s, disk_bytes_max: 1100000") as job:
        client = client_of(job).with_options(max_retries=0)
        file = client.files.create(file=("a.jsonl", b"x" * 1_000_000), purpose="batch")
        with pytest.raises(openai.InternalServerError) as refusal:
            client.files.create(file=("b.jsonl", b"x" * 1_000_000), purpose="batch")
        assert refusal.value.status_code == 503 and refusal.value.response.headers["retry-after"]
        kept = client.files.create(
            file=("c.jsonl", b"{}"), purpose="batch", expires_after={"anchor": "created_at", "seconds": 3600}
        )
        assert kept.expires_at == kept.created_at + 3600

        def gone():
            return [each.id for each in client.files.list()] == [kept.id]

        eventually(gone, 30, "the file expires")
        assert [path.name for path in (tmp_path / "api/files").iterdir()] == [kept.id]
        with pytest.raises(openai.NotFoundError):
            client.files.content(file.id)


def test_a_long_file_passes_in_pieces(tmp_path):
    """200 MB through router and batch process, up and down: neither holds more than a few of its bytes."""
    # AddressSanitizer keeps freed memory for a while.
    with running(tmp_path, env={"ASAN_OPTIONS": "quarantine_size_mb=8"}) as job:
        client = client_of(job)
        content = os.urandom(1 << 20) * 190
        peaks = {name: peak(named(job, name)["pid"]) for name in ("router-0", "batch")}
        file = client.files.create(file=("long.jsonl", io.BytesIO(content)), purpose="batch")
        assert file.bytes == len(content)
        assert hashlib.sha256(client.files.content(file.id).content).digest() == hashlib.sha256(content).digest()
        for name, before in peaks.items():
            grown = peak(named(job, name)["pid"]) - before
            assert grown < 100 << 20, f"{name} took {grown >> 20} MiB more"


def peak(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no peak")
