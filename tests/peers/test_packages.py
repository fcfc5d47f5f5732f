"""Packages of pdjob: the wheel and the .deb in a Debian that never saw pdjob, and the variants of libllama's kernels that both carry."""

import asyncio
import gzip
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
import conftest  # noqa: E402
from conftest import CACHE, MODEL, ROOT, Process, eventually, metric, running_job  # noqa: E402
from test_heterogeneous import BODY, ask, by_hand  # noqa: E402
from test_identity import outcome, requests, run_all  # noqa: E402

pytestmark = [pytest.mark.heavy, pytest.mark.skipif(os.geteuid() != 0, reason="a clean Debian needs root")]

DIST = ROOT / "dist"
PROGRAM = ROOT / "build/package/pdjob"
BASE = CACHE / "peers/debian-bookworm"
VARIANTS = ["x64", "sse42", "haswell", "alderlake", "skylakex", "cascadelake", "zen4"]
# What any installation by apt changes, and what Debian's tools keep of themselves.
NOT_OURS = re.compile(
    r"/(proc|sys|dev|tmp|root/job\.yaml|var/cache|var/log|var/lib/(apt|dpkg|systemd/deb-systemd-.*)|etc/(passwd|group|shadow|gshadow)-|etc/ld\.so\.cache)(/|$)"
)


def run(*command, **options):
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    assert done.returncode == 0, f"{command}: {done.stdout[-4000:]}"
    return done.stdout


@pytest.fixture(scope="module", autouse=True)
def packages():
    shutil.rmtree(DIST, ignore_errors=True)
    for form in ("wheel", "deb"):
        run(ROOT / "dev", "package", form)


def make_base():
    if shutil.which("debootstrap") is None:
        run("apt-get", "install", "--yes", "--no-install-recommends", "debootstrap")
    partial = BASE.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.parent.mkdir(parents=True, exist_ok=True)
    run("debootstrap", "--variant=minbase", "--include=python3,python3-venv", "bookworm", partial)
    partial.rename(BASE)


@pytest.fixture
def debian():
    """The folder of a fresh Debian with Python, without any library that only pdjob needs."""
    if not BASE.exists():
        make_base()
    with tempfile.TemporaryDirectory(prefix="pdjob-debian-") as folder:
        root = pathlib.Path(folder, "root")
        run("cp", "--archive", BASE, root)
        shutil.copyfile("/etc/resolv.conf", root / "etc/resolv.conf")
        yield root


def inside(debian, *command):
    """Runs a command in the Debian, with its own /proc, and with an environment that says nothing of this machine."""
    clean = ["env", "--ignore-environment", "HOME=/root", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", "DEBIAN_FRONTEND=noninteractive"]
    script = f'mount -t proc proc "{debian}/proc" && mount --rbind /dev "{debian}/dev" && exec "$@"'
    return run("unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", script, "sh", *clean, "chroot", debian, *command)


def answer_of(debian, program, user="root"):
    """Starts the quickstart in a network of its own, asks it one question, and ends it."""
    (debian / "root/job.yaml").write_text(inside(debian, program, "example"))
    clean = ["env", "--ignore-environment", "HOME=/root", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", "XDG_STATE_HOME=/var/lib"]
    as_user = [] if user == "root" else ["setpriv", "--reuid", user, "--regid", user, "--init-groups"]
    script = f'ip link set lo up && mount -t proc proc "{debian}/proc" && mount --rbind /dev "{debian}/dev" && exec "$@"'
    ask_once = [sys.executable, ROOT / "tests/support/run_and_ask.py", "--once", "--"]
    said = run("unshare", "--mount", "--pid", "--net", "--fork", "--kill-child", "sh", "-c", script, "sh", *ask_once,
               *clean, "chroot", debian, *as_user, program, "--config", "/root/job.yaml")
    assert "Paris" in said, said
    return said


def tree(debian):
    """Returns {path: what is there}, without what the tools of Debian keep of every installation."""
    found = {}
    for path in debian.rglob("*"):
        name = "/" + str(path.relative_to(debian))
        if NOT_OURS.match(name):
            continue
        if path.is_symlink():
            found[name] = str(path.readlink())
        elif path.is_file():
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
        else:
            found[name] = "folder"
    return found


def difference(before, after):
    return sorted(f"{name}: {before.get(name)} -> {after.get(name)}" for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def test_the_wheel_answers_within_a_minute_and_leaves_nothing(debian):
    inside(debian, "python3", "-m", "venv", "/opt/venv")
    shutil.copytree(DIST, debian / "tmp/dist")
    before = tree(debian)
    started = time.monotonic()
    inside(debian, "/opt/venv/bin/pip", "install", "--no-index", "--find-links", "/tmp/dist", "pdjob[quickstart]")
    installed = time.monotonic()
    answer_of(debian, "/opt/venv/bin/pdjob")
    seconds = time.monotonic() - started
    print(f"pip install: {installed - started:.1f} s; installed and answered: {seconds:.1f} s")
    assert seconds < 60
    # The files of the job itself are its owner's.
    assert sorted(path.name for path in (debian / "var/lib/pdjob").iterdir()) == ["quickstart"]
    shutil.rmtree(debian / "var/lib/pdjob")
    inside(debian, "/opt/venv/bin/pip", "uninstall", "--yes", "pdjob", "pdjob-quickstart")
    assert difference(before, tree(debian)) == []


def test_the_wheel_needs_nothing_that_its_tag_does_not_promise():
    """auditwheel is the reference for what manylinux promises."""
    with tempfile.TemporaryDirectory() as folder:
        run(sys.executable, "-m", "venv", folder)
        run(f"{folder}/bin/pip", "install", "--quiet", "auditwheel==6.8.2")
        (wheel,) = DIST.glob("pdjob-*.whl")
        said = run(f"{folder}/bin/auditwheel", "show", wheel)
    assert int(re.search(r'consistent with the\s+following platform tag:\s+"manylinux_2_(\d+)_x86_64"', said).group(1)) <= 36, said


def test_the_deb_answers_and_leaves_nothing(debian):
    before = tree(debian)
    shutil.copytree(DIST, debian / "tmp/dist")
    names = sorted(f"/tmp/dist/{path.name}" for path in DIST.glob("*.deb"))
    inside(debian, "apt-get", "update")
    inside(debian, "apt-get", "install", "--yes", "--no-install-recommends", *names)
    assert ".TH" in gzip.decompress((debian / "usr/share/man/man1/pdjob.1.gz").read_bytes()).decode()
    answer_of(debian, "/usr/bin/pdjob")
    # As the unit runs it.
    shutil.rmtree(debian / "var/lib/pdjob")
    inside(debian, "install", "--directory", "--owner=pdjob", "--mode=0700", "/var/lib/pdjob")
    (debian / "root").chmod(0o755)
    answer_of(debian, "/usr/bin/pdjob", user="pdjob")
    (debian / "root").chmod(0o700)
    inside(debian, "apt-get", "purge", "--yes", "--autoremove", "pdjob", "pdjob-quickstart")
    assert difference(before, tree(debian)) == []


def test_the_unit_is_one_that_systemd_takes():
    with tempfile.TemporaryDirectory() as folder:
        # It wants a program where the package puts it.
        text = (ROOT / "cmake/packages/pdjob@.service").read_text().replace("/usr/bin/pdjob", str(PROGRAM))
        unit = pathlib.Path(folder, "pdjob@quickstart.service")
        unit.write_text(text)
        assert run("systemd-analyze", "verify", "--man=no", unit) == ""


@pytest.fixture
def booted(debian):
    """Runs a command on a Debian that systemd has booted, with the .deb and a job file."""
    if shutil.which("systemd-nspawn") is None:
        run("apt-get", "install", "--yes", "--no-install-recommends", "systemd-container")
    shutil.copytree(DIST, debian / "root/dist")
    inside(debian, "apt-get", "update")
    names = [f"/root/dist/{path.name}" for path in DIST.glob("*.deb")]
    inside(debian, "apt-get", "install", "--yes", "--no-install-recommends", "systemd-sysv", "procps", *names)
    (debian / "etc/pdjob/quickstart.yaml").write_text(inside(debian, "pdjob", "example") + "launcher: {orphan_timeout: 5min}\n")
    with open(debian.parent / "console", "w") as console:
        command = ["systemd-nspawn", f"--directory={debian}", "--register=no", "--keep-unit", "--private-network", "--boot"]
        machine = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=console, stderr=subprocess.STDOUT)

    def there(*command):
        children = pathlib.Path(f"/proc/{machine.pid}/task/{machine.pid}/children").read_text().split()
        assert len(children) == 1, f"no init yet: {children}"
        spaces = ["nsenter", f"--target={children[0]}", "--mount", "--uts", "--ipc", "--net", "--pid", "--root", "--wd"]
        return run(*spaces, "env", "--ignore-environment", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", *command)

    try:
        eventually(lambda: "multi-user.target" in there("systemctl", "list-units", "--state=active"), seconds=120, what="a booted Debian")
        yield there
        there("systemctl", "poweroff")
        machine.wait(60)
    finally:
        machine.kill()
        machine.wait()


def test_the_unit_runs_a_job_and_its_next_launcher_adopts_it(booted):
    def journal():
        return booted("journalctl", "--unit=pdjob@quickstart", "--no-pager")

    def processes():
        return set(booted("ps", "-o", "pid=", "-u", "pdjob").split())

    booted("systemctl", "enable", "--now", "pdjob@quickstart")
    eventually(lambda: "ready url=" in journal(), seconds=120, what="a ready job")
    launcher = booted("systemctl", "show", "--property=MainPID", "--value", "pdjob@quickstart").strip()
    before = processes()
    assert launcher in before and len(before) == 5  # An agent, a router and two workers.
    booted("systemctl", "kill", "--kill-whom=main", "--signal=KILL", "pdjob@quickstart")
    eventually(lambda: "adopted 3 of 3 processes" in journal(), seconds=120, what="a launcher that adopts the job")
    assert before - processes() == {launcher}
    # The removal of the package ends the job.
    booted("apt-get", "purge", "--yes", "pdjob", "pdjob-quickstart")
    assert "pdjob" not in booted("ps", "-eo", "comm=")
    left = booted("find", "/", "-xdev", "-name", "*pdjob*", "-not", "-path", "/root/*", "-not", "-path", "/var/log/*", "-not", "-path", "/sys/*")
    assert left.split() == ["/etc/pdjob"]  # With the job file that is the administrator's.


@pytest.fixture
def packaged(monkeypatch):
    """Jobs of this test run the program of the packages."""
    monkeypatch.setattr(conftest, "BIN", str(PROGRAM))


@pytest.fixture(scope="module")
def runnable():
    """The variants that this machine's CPU can run. The others must say that it cannot."""
    found = []
    for name in VARIANTS:
        with tempfile.TemporaryDirectory() as folder:
            command = [PROGRAM, "worker", "--role", "both", "--model", MODEL, "--listen", "127.0.0.1:0", "--set", f"engine.cpu={name}"]
            with open(f"{folder}/log", "w+") as log:
                process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
                if process.stdout.readline().startswith("ready"):
                    found.append(name)
                    process.terminate()
                    assert process.wait(60) == 0
                else:
                    assert process.wait(60) == 1
                    log.seek(0)
                    assert f"engine.cpu is {name}, but this machine's CPU cannot run it" in log.read()
    print("this CPU runs", *found)
    assert len(found) >= 2
    return found


# Long and short prompts; greedy, seeded, and under a grammar.
BODIES = [body for body in requests() if len(body["prompt"]) <= 300][::9]


@pytest.fixture(scope="module")
def alone(runnable):
    """What one process answers, by variant."""
    answers = {}
    for name in runnable:
        with tempfile.TemporaryDirectory(prefix="pdjob-test-") as folder, pytest.MonkeyPatch.context() as patch:
            patch.setattr(conftest, "BIN", str(PROGRAM))
            settings = ["served_name=smollm2", "decode.prefix_cache=false", f"engine.cpu={name}"]
            chosen = [word for setting in settings for word in ("--set", setting)]
            process = Process(["pdjob", "worker", "--role", "both", "--model", MODEL, "--listen", "127.0.0.1:0", *chosen], folder)
            replies = asyncio.run(run_all(process.wait_ready().url, BODIES))
            assert process.stop() == 0, process.log_tail()
        answers[name] = [outcome(reply) for reply in replies]
    for name in runnable:
        same = sum(one == other for one, other in zip(answers[name], answers[runnable[-1]]))
        print(f"{name}: {same} of {len(BODIES)} answers as {runnable[-1]}")
    return answers


@pytest.mark.parametrize("name", VARIANTS)
def test_each_variant_gives_the_tokens_of_one_process(name, packaged, runnable, alone):
    if name not in runnable:
        pytest.skip("this CPU cannot run it")
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as folder:
        roles = {f"{role}_extra": f"engine: {{cpu: {name}}}" for role in ("prefill", "decode")}
        with running_job(folder, **roles) as job:
            replies = asyncio.run(run_all(job.url, BODIES))
    for body, reply, expected in zip(BODIES, replies, alone[name]):
        assert outcome(reply) == expected, f"{len(body['prompt'])} tokens"
        assert int(reply.headers["x-pdjob-kv-bytes"]) > 0


@pytest.mark.parametrize("turn", ["to-the-newer", "to-the-older"])
def test_kv_does_not_move_between_variants(turn, packaged, runnable):
    """The decode worker computes the prompt itself, so the tokens are those of its own variant."""
    older, newer = "haswell" if "haswell" in runnable[:-1] else runnable[0], runnable[-1]
    prefill_cpu, decode_cpu = (older, newer) if turn == "to-the-newer" else (newer, older)
    body = {**BODY, "prompt": "Once upon a time"}
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as folder:
        with by_hand(folder, [f"engine.cpu={prefill_cpu}"], [f"engine.cpu={decode_cpu}"]) as (_, decode, router):
            (direct,), (reply,) = asyncio.run(ask(decode.url, [body])), asyncio.run(ask(router.url, [body]))
            assert reply.status_code == 200, reply.text
            assert reply.json()["choices"][0]["token_ids"] == direct.json()["choices"][0]["token_ids"]
            assert reply.headers.get("x-pdjob-kv-bytes", "0") == "0"
            assert metric(decode.url, "pdjob_kv_received_bytes_total") == 0
            said = decode.log.read_text()
    sender, receiver = re.search(r"KV fingerprint differs in cpu: sender '(.*)', receiver '(.*)'", said).groups()
    assert ("AVX512" in sender) == (prefill_cpu not in ("x64", "sse42", "haswell", "alderlake"))
    assert ("AVX512" in receiver) == (decode_cpu not in ("x64", "sse42", "haswell", "alderlake"))


@pytest.mark.parametrize("cpu, name", [("qemu64", "x64"), ("Nehalem", "sse42"), ("Haswell", "haswell")])
def test_an_older_cpu_gets_the_best_variant_that_it_can_run(cpu, name, runnable):
    """The CPU is emulated: an instruction that it lacks would end the process."""
    if shutil.which("qemu-x86_64") is None:
        run("apt-get", "install", "--yes", "--no-install-recommends", "qemu-user")
    answers, kernels = [], []
    for command in ([PROGRAM, "--set", f"engine.cpu={name}"], ["qemu-x86_64", "-cpu", cpu, PROGRAM]):
        with tempfile.TemporaryDirectory() as folder:
            program, chosen = command[: command.index(PROGRAM) + 1], command[command.index(PROGRAM) + 1 :]
            arguments = ["worker", "--role", "both", "--model", MODEL, "--listen", "127.0.0.1:0", "--set", "served_name=smollm2", *chosen]
            with open(f"{folder}/log", "w+") as log:
                process = subprocess.Popen([*program, *arguments], stdout=subprocess.PIPE, stderr=log, text=True)
                ready = process.stdout.readline()
                log.seek(0)
                assert ready.startswith("ready url="), log.read()
                (reply,) = asyncio.run(run_all(ready.strip().removeprefix("ready url="), [{**BODY, "prompt": "Once upon a time"}]))
                process.terminate()
                process.wait(60)
                log.seek(0)
                kernels.append(re.search("kernels for the CPU use (.*)", log.read()).group(1))
        answers.append(outcome(reply))
    assert kernels[0] == kernels[1]
    assert answers[0] == answers[1]


def test_machines_that_disagree_are_told_so(packaged, runnable):
    """`auto` on two machines is not always the same. The job does not become ready, and says why."""
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as folder:
        job = conftest.Job(conftest.job_yaml(folder, prefill_extra=f"engine: {{cpu: {runnable[0]}}}", launcher="start_timeout: 20s"), folder)
        assert job.child.wait(180) == 1, job.log_tail()
        logs = "".join(log.read_text() for log in pathlib.Path(folder).glob("logs/*.log"))
        assert "KV fingerprint differs in cpu" in logs, job.log_tail()


def test_a_job_takes_the_best_variant_by_itself(packaged, runnable, alone):
    with tempfile.TemporaryDirectory(prefix="pdjob-test-") as folder:
        with running_job(folder) as job:
            replies = asyncio.run(run_all(job.url, BODIES[:4]))
    assert [outcome(reply) for reply in replies] == alone[runnable[-1]][:4]
