"""Stages before and after the model of a batch: whatever is killed, each row ends once, and a row that kills its stage fails alone."""

import json
import os
import pathlib
import random
import signal
import subprocess
import time

import pytest
from conftest import BIN
from test_batch import comparable, descendants, ended_rows, is_alive, lines, run, server, start, wait_until  # noqa: F401

ROWS = 300
ENDS = {20: "drop", 77: "kill clean", 150: "raise", 222: "kill judge"}  # What happens to some of the rows.

CLEAN = """\
import json, os, sys
for line in sys.stdin:
    row = json.loads(line)
    prompt = row["body"]["prompt"]
    if prompt == "kill clean":
        os._exit(7)
    if prompt == "drop":
        row = {"custom_id": row["custom_id"], "pdjob_drop": "nothing is left of it"}
    else:
        row["body"]["prompt"] = prompt.strip()
        row["words"] = len(prompt.split())
    print(json.dumps(row))
"""
JUDGE = """\
import os
def judge(row):
    print("looks at", row["custom_id"])
    prompt = row["request"]["body"]["prompt"]
    if prompt == "raise":
        raise ValueError("no score for it")
    if prompt == "kill judge":
        os.kill(os.getpid(), 9)
    return {"score": len(row["response"]["choices"][0]["text"]), "saw": [prompt, row["stages"]["clean"]["words"]]}
"""


def job(folder, stages="", more=""):
    """A job of the fake engine in one worker, with these stages."""
    (folder / "clean.py").write_text(CLEAN)
    (folder / "judge.py").write_text(JUDGE)
    path = folder / "job.yaml"
    path.write_text(
        "name: staged\nserved_name: tiny\nengine: {kind: fake, sequences: 8}\nprefill: {workers: 0}\ndecode: {workers: 1}\n"
        f"router: {{listen: 127.0.0.1:8000}}\nlauncher: {{state_dir: {folder}/state}}\n{more}batch:\n  stages:\n"
        + (stages or "    before: {clean: {command: [python3, clean.py], workers: 2}}\n    after: {judge: {python: judge.py:judge, workers: 3}}\n")
    )
    return path


def write_rows(folder, count=ROWS, ends=ENDS):
    prompts = [ends.get(number, f"  Row {number} " + "and more " * (number % 7)) for number in range(count)]
    rows = [
        {"custom_id": f"r{number}", "method": "POST", "url": "/v1/completions", "body": {"model": "tiny", "prompt": prompt, "max_tokens": 4 + number % 9, "temperature": 0}}
        for number, prompt in enumerate(prompts)
    ]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / "rows.jsonl"


def stage_processes(batch):
    """The processes of stages, by pid: their stage."""
    found = {}
    for pid in descendants(batch)[1:]:
        try:
            words = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        names = [word.split(b"=")[1].decode() for word in words if word.startswith(b"PDJOB_STAGE=")]
        found.update({pid: name for name in names})
    return found


def left_in(folder):
    """Processes that work in this folder: those of stages do."""
    found = []
    for place in pathlib.Path("/proc").glob("[0-9]*/cwd"):
        try:
            if os.readlink(place) == str(folder):
                found.append(int(place.parent.name))
        except OSError:
            continue
    return found


def status_of(out):
    return json.loads((out / "status.json").read_text())


def all_ended(tree):
    wait_until(lambda: not any(is_alive(pid) for pid in tree), 30)


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """A run in which only its rows kill processes."""
    folder = tmp_path_factory.mktemp("reference")
    text = run(write_rows(folder), "--out", folder / "out", "--config", job(folder), code=4)
    assert f"{ROWS - 4} of {ROWS} rows were answered" in text and "stage judge: process" in text, text
    return folder


def test_rows_go_through_stages_and_some_fail_alone(reference):
    records = lines(reference / "out/output.jsonl")
    assert [record["custom_id"] for record in records] == [f"r{number}" for number in range(ROWS) if number not in ENDS]
    for record in records:
        number = int(record["custom_id"][1:])
        prompt = f"Row {number} " + "and more " * (number % 7)
        assert record["stages"]["clean"] == {"words": len(prompt.split())}
        assert record["stages"]["judge"]["saw"] == [prompt.strip(), len(prompt.split())]
        assert record["stages"]["judge"]["score"] == len(record["response"]["body"]["choices"][0]["text"])
    errors = {record["custom_id"]: record for record in lines(reference / "out/errors.jsonl")}
    assert {name: record["error"]["code"] for name, record in errors.items()} == {
        "r20": "dropped_by_clean",
        "r77": "failed_in_clean",
        "r150": "failed_in_judge",
        "r222": "failed_in_judge",
    }
    assert errors["r20"]["error"]["message"].endswith("rows.jsonl:21: nothing is left of it") and errors["r20"]["response"] is None
    assert "ended 3 times at this row; the last time: exit code 7" in errors["r77"]["error"]["message"]
    assert "ValueError: no score for it" in errors["r150"]["error"]["message"]
    assert errors["r150"]["response"]["status_code"] == 200, "the model's answer is kept"
    assert "signal 9 (Killed)" in errors["r222"]["error"]["message"]
    report = (reference / "out/report.md").read_text()
    assert "| restarts of processes of stage clean | 3 |" in report and "| restarts of processes of stage judge | 3 |" in report, report
    assert left_in(reference) == []
    logs = "".join(log.read_text() for log in (reference / "out/stages").glob("judge-*.log"))
    assert "Traceback" in logs and "looks at r9\n" in logs, "what a function prints is in its log"


def test_kills_of_stages_and_of_the_batch_change_nothing(reference, tmp_path):
    chance, out = random.Random(5), tmp_path / "out"
    words = (write_rows(tmp_path), "--out", out, "--config", job(tmp_path))
    (tmp_path / "clean.py").write_text(CLEAN.replace("    row = json", "    __import__('time').sleep(0.02)\n    row = json"))
    batch, killed = None, 0
    for target in ("stage", "stage", "batch", "stage", "stage", "batch", "stage"):
        batch = batch or start(*words)
        wanted = ended_rows(out) + 12
        wait_until(lambda: batch.poll() is not None or (ended_rows(out) >= wanted and len(stage_processes(batch.pid)) >= 3), 120)
        if batch.poll() is not None:
            break
        tree = descendants(batch.pid)
        if target == "batch":
            batch.kill()
            batch.communicate()
            all_ended(tree)
            batch = None
        else:
            try:
                os.kill(chance.choice(sorted(stage_processes(batch.pid))), signal.SIGKILL)
            except (ProcessLookupError, IndexError):
                continue
        killed += 1
    if batch is not None:
        batch.kill()
        batch.communicate()
    assert killed >= 5
    run(*words, code=4)
    assert comparable(out / "output.jsonl") == comparable(reference / "out/output.jsonl")
    codes = lambda folder: [(record["custom_id"], record["error"]["code"]) for record in lines(folder / "out/errors.jsonl")]
    assert codes(tmp_path) == codes(reference)


def test_a_slow_stage_holds_the_batch_back_and_ctrl_c_leaves_nothing_running(tmp_path):
    stages = "    before: {count: {python: 'count.py:count'}}\n    after: {gate: {python: 'gate.py:gate', workers: 2, pipeline: 3}}\n"
    config, out = job(tmp_path, stages), tmp_path / "out"
    (tmp_path / "count.py").write_text("def count(row):\n    open('seen', 'a').write(row['custom_id'] + '\\n')\n    return row\n")
    (tmp_path / "gate.py").write_text("import os, time\ndef gate(row):\n    while not os.path.exists('open'):\n        time.sleep(0.01)\n    return {}\n")
    words = (write_rows(tmp_path, 200, {}), "--out", out, "--config", config)
    batch = start(*words)
    held = lambda: out.joinpath("status.json").exists() and f"stage gate: {status_of(out)['rows_in_flight'] - 6} rows wait, 6 under way" in status_of(out)["stages"]
    wait_until(held, 120)
    status = status_of(out)
    assert status["rows_in_flight"] == status["rows_in_flight_max"] == 8 + 3, "sequences, and processes of stages"
    assert len((tmp_path / "seen").read_text().splitlines()) == 11
    assert "stage gate: 5 rows wait, 6 under way; 0 restarts" in subprocess.check_output([BIN, "batch", "status", out], text=True)
    tree = descendants(batch.pid)
    assert sorted(left_in(tmp_path)) == sorted(stage_processes(batch.pid)) and len(left_in(tmp_path)) == 3
    batch.send_signal(signal.SIGINT)
    batch.communicate(timeout=60)
    assert batch.returncode == 130
    all_ended(tree)
    assert left_in(tmp_path) == []
    (tmp_path / "open").touch()
    run(*words)
    assert len(lines(out / "output.jsonl")) == 200


def test_a_stage_that_cannot_work_ends_the_batch_and_can_be_repaired(tmp_path):
    rows, out = write_rows(tmp_path, 8, {}), tmp_path / "out"
    command = lambda words: f"    before: {{odd: {{command: [{words}]}}}}\n"
    text = run(rows, "--out", out, "--config", job(tmp_path, command("no-such-program")), code=2)
    assert "stage odd: there is no no-such-program in $PATH: install it, or name another program" in text
    text = run(rows, "--out", out, "--config", job(tmp_path, "    after: {judge: {python: 'none.py:judge'}}\n"), code=2)
    assert f"stage judge: there is no file {tmp_path}/none.py" in text
    config = job(tmp_path, command("python3, odd.py"), "mode: batch\n")
    config.write_text(config.read_text() + "  in: [rows.jsonl]\n  out: out\n")
    (tmp_path / "odd.py").write_text("import no_such_module\n")
    text = run("--config", config, code=1)
    assert "stage odd (python3 odd.py) does not work" in text and "ModuleNotFoundError: No module named 'no_such_module'" in text, text
    assert "0 of 8 rows have ended; the same command goes on" in text, "no row fails by it"
    (tmp_path / "odd.py").write_text("import sys\nfor line in sys.stdin:\n    sys.stdout.write(line)\n")
    run("--config", config)
    assert all("stages" not in record for record in lines(out / "output.jsonl")), "it said nothing of the rows"
    plan = subprocess.check_output([BIN, "plan", "--config", config], text=True)
    assert "stage odd, before the model: 1 process of python3 odd.py" in plan, plan
    planned = json.loads(subprocess.check_output([BIN, "plan", "--config", config, "--json"], text=True))
    assert planned["batch"]["stages"] == {"before": [{"name": "odd", "workers": 1, "command": "python3 odd.py"}], "after": []}
    # More processes are the same batch, another command is another one.
    config.write_text(config.read_text().replace("[python3, odd.py]", "[python3, odd.py], workers: 2"))
    run("--config", config)
    config.write_text(config.read_text().replace("[python3, odd.py]", "[python3, -u, odd.py]"))
    assert "its stages are others" in run("--config", config, code=2)


def test_rows_in_stages_go_to_a_server_that_runs(server, tmp_path):  # noqa: F811
    """The file says what is done with the rows, and no job is started."""
    server = server(lambda body, times: (200, {"choices": [{"text": body["prompt"]}]}, {}))
    config, rows, out = job(tmp_path), write_rows(tmp_path, 3, {2: "drop"}), tmp_path / "out"
    run(rows, "--out", out, "--config", config, "--url", server.url, code=4)
    assert {line["custom_id"]: line["stages"]["judge"]["saw"] for line in lines(out / "output.jsonl")} == {"r0": ["Row 0", 2], "r1": ["Row 1 and more", 4]}
    assert lines(out / "errors.jsonl")[0]["error"]["code"] == "dropped_by_clean"
    assert len(server.seen) == 2 and not (tmp_path / "state").exists()
