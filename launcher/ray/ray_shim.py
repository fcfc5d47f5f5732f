"""Speaks Ray for the launcher, over a socket: one JSON object a line, requests in, replies and events out. shim_line.h has them all.

The shim decides nothing and remembers only what it watches. Its launcher decides, has the deadlines, and starts a new shim when this one fails.
What must outlive the shim is in the home cluster: the placement groups, and the keeper, which removes them when no shim renews the lease.

It runs from descriptors, so that only pdjob must be installed: `python3 -c BOOTSTRAP BUNDLE_FD SHIM_FD GLIDE_IN_FD SOCKET_FD [NAME=FD...]`. The
names of bundle.py are there already. NAME=FD are the files of the launcher's own pdjob.
"""

import contextlib
import functools
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

PROTOCOL = 1
LINE_BYTES_MAX = 256 * 1024
REQUESTS_MAX = 64  # At work at the same time.
NAMESPACE = "pdjob"
HTTP_SECONDS = 10
WATCH_SECONDS = 0.5
RAY_SECONDS = 5  # A call that reads something.
KEEPER_SECONDS = 60  # The first actor of a cluster is slow.
DEAF_SECONDS = 60
LATE_SECONDS = 20  # A keeper at its job's end waits for what is still on its way. Longer than the shim lives then (close_timeout).
CLOSE_SECONDS = 12  # The launcher waits a little longer (close_timeout).
AGENT_SECONDS = 55  # A step of its start.
PIECES_KEPT = 4  # In Ray's object store, for nodes that are a little later.
GUEST_SECONDS = 1.0
LEAVE_SECONDS = 50  # The launcher waits a little longer (answer_timeout).
TEXT_MAX = 2000
REPLY_BYTES_MAX = 16 * 1024 * 1024
PYTHON = ".".join(map(str, sys.version_info[:3]))
ENDED = ("STOPPED", "SUCCEEDED", "FAILED")
OWN_LABELS = ("pdjob-", "ray.io/node-id")  # No group asks for these.

LINES = None  # Where replies and events go. Not stdout: Ray prints there.
GLIDE_IN = ""  # The text of glide_in.py.
FILES = []  # [(name in a bundle, descriptor)]
LINES_LOCK = threading.Lock()


class Refused(Exception):
    """An error whose kind the launcher knows."""

    def __init__(self, kind, message):
        super().__init__(message)
        self.kind = kind


def emit(what, /, **line):
    text = json.dumps({"type": what, **line}, separators=(",", ":"))
    with LINES_LOCK:
        LINES.write(text + "\n")
        LINES.flush()


# ---- What runs inside the home cluster


class Keeper:
    """A detached actor that frees the job's nodes when no launcher renews the lease. It remembers nothing, so Ray may restart it anywhere.

    A node that joins after that asks for the keeper, and leaves again (stays_while_kept in glide_in.py)."""

    def __init__(self, job, lease_s):
        self.job, self.lease_s = job, lease_s
        self.due = time.monotonic() + lease_s
        threading.Thread(target=self.watch, daemon=True).start()

    def renew(self):
        if not self.keeps():
            raise RuntimeError("the lease has ended")
        self.due = time.monotonic() + self.lease_s

    def expire(self):
        self.due = min(self.due, time.monotonic() + LATE_SECONDS)

    def keeps(self):
        """Returns whether the lease is held. Once it has ended, nobody can renew it."""
        return time.monotonic() < self.due

    def watch(self):
        while self.keeps():
            time.sleep(WATCH_SECONDS)
        asked = {}
        while True:
            try:
                if free_everything(self.job, asked):
                    end_actor(keeper_name(self.job))
                    return
            except Exception as error:  # The control store may be away: try until it is back.
                print(f"pdjob's keeper of {self.job}: {error!r}", file=sys.stderr, flush=True)
            time.sleep(WATCH_SECONDS)


class Starter:
    """A detached actor on a reserved node. It starts an agent, and holds the other end of the agent's stdin: when this actor goes, because its
    reservation or its node does, the agent ends by itself. Only that stdin sees the secret."""

    program, lock = "", -1

    def find(self, manifest, program):
        self.program, self.lock = find(manifest, os.path.expanduser(program))
        return bool(self.program)

    def expect(self, manifest):
        self.delivery = Delivery(manifest)

    def take(self, piece):
        try:
            self.delivery.take(piece)
        except Exception:
            self.delivery.drop()
            raise

    def finish(self):
        self.program, self.lock = self.delivery.finish()

    def start(self, program, arguments, secret, log, gpus_of_node):
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("RAY_", "PDJOB_")) and k != "OMP_NUM_THREADS"}
        if not gpus_of_node:  # A nested node has the GPUs that its job in the guest got.
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, ray.get_runtime_context().get_accelerator_ids().get("GPU", [])))
        program, log, *arguments = [os.path.expanduser(word) if word.startswith("~/") else word for word in (self.program or program, log, *arguments)]
        labels = ray.get_runtime_context().get_node_labels()
        arguments += [f"--label={name}={value}" for name, value in sorted(labels.items()) if not name.startswith(OWN_LABELS)]
        if not os.access(program, os.X_OK):
            raise FileNotFoundError(f"there is no program {program} on node {ray.util.get_node_ip_address()}")
        os.makedirs(os.path.dirname(log), mode=0o700, exist_ok=True)
        with open(log, "ab") as output:
            # --fork: no child of this actor, with which Ray would kill it before its own children end in good order.
            # The agent inherits the lock, which keeps its bundle there.
            child = subprocess.Popen(["setsid", "--fork", program, *arguments], env=environment, stdin=subprocess.PIPE, stdout=output, stderr=output,
                                     pass_fds=[self.lock] if self.lock >= 0 else [])
        self.lifeline = child.stdin
        self.lifeline.write(secret.encode() + b"\n")
        self.lifeline.flush()
        if child.wait(20):
            raise RuntimeError(f"setsid ended with {child.returncode}")


def end_nested_node():
    # `ray start --block` of this node, which leaves the home cluster in good order.
    os.kill(int(os.environ["PDJOB_GLIDE_PID"]), 15)


def keeper_name(job):
    return f"pdjob-keeper/{job}"


def starter_name(job, slot):
    return f"pdjob-agent/{job}/{slot}"


def groups_of(job):
    """Returns {name of a reservation: its table} for the placement groups of the job that exist."""
    tables = ray.util.placement_group_table().values()
    return {table["name"].split("/", 2)[2]: table for table in tables if table["name"].startswith(f"pdjob/{job}/") and table["state"] != "REMOVED"}


def nodes_of(table):
    return ",".join(node or "" for _, node in sorted(table["bundles_to_node_id"].items()))


def end_actor(name):
    try:
        ray.kill(ray.get_actor(name, namespace=NAMESPACE))
    except ValueError:
        pass  # There is none.


def remove_group(job, name):
    ray.util.remove_placement_group(ray.util.get_placement_group(f"pdjob/{job}/{name}"))


def free_everything(job, asked):
    """Removes the job's reservations, and asks its nested nodes to end. Returns whether nothing is left of both.

    The tasks that end nodes die with their owner, so it calls this again until nothing is left. `asked`: {node: its task}, kept between calls."""
    groups = groups_of(job)
    for name in groups:
        remove_group(job, name)
    nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"] and node["Labels"].get("pdjob-job") == job]
    for node in nodes:
        if node in asked and not ray.wait([asked[node]], num_returns=1, timeout=0)[0]:
            continue  # The first worker of a node takes a while.
        where = NodeAffinitySchedulingStrategy(node, soft=False)
        asked[node] = ray.remote(end_nested_node).options(num_cpus=0, max_retries=0, scheduling_strategy=where).remote()
    return not groups and not nodes


# ---- The home cluster


class Home:
    def __init__(self, address, job, lease_s, name, **_):
        self.job, self.name, self.address = job, name, address
        self.resource = f"pdjob-{job}"
        self.seen, self.groups, self.watched, self.closed = {}, {}, set(), False
        self.bundle_lock = threading.Lock()
        try:
            ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, logging_level="warning")
        except Exception as error:
            raise Refused("version_mismatch" if "ersion mismatch" in str(error) else "unreachable", str(error)) from error
        self.lease_s = lease_s
        self.keeper = self.find_keeper()
        ray.get(self.keeper.renew.remote(), timeout=KEEPER_SECONDS)
        self.watched = set(groups_of(job))

    def find_keeper(self):
        """Returns the job's keeper, or a new one: a keeper ends with its lease."""
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
        options = dict(name=keeper_name(self.job), namespace=NAMESPACE, lifetime="detached", get_if_exists=True, num_cpus=0, max_restarts=-1,
                       scheduling_strategy=here)
        return ray.remote(Keeper).options(**options).remote(self.job, self.lease_s)

    def renew(self):
        """Renews the lease. This needs the keeper alone, so it works while the control store is away."""
        try:
            ray.get(self.keeper.renew.remote(), timeout=RAY_SECONDS)
        except Exception:
            if not self.closed:
                self.keeper = self.find_keeper()
            raise

    def watch(self):
        self.watch_nodes()
        self.watch_groups()

    def listens(self):
        """Returns whether the control store accepts connections."""
        host, port = self.address.rsplit(":", 1)
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=RAY_SECONDS).close()
            return True
        except (OSError, ValueError):
            return False

    def watch_nodes(self):
        for node in ray.nodes():
            labels = node["Labels"]
            alive, found = node["Alive"], node["NodeID"]
            if self.seen.get(found, False) == alive or labels.get("pdjob-job", self.job) != self.job:
                continue
            self.seen[found] = alive
            emit("node", node=found, alive=int(alive), address=node["NodeManagerAddress"], cluster=labels.get("pdjob-cluster", self.name),
                 slot=labels.get("pdjob-slot", ""), reason=(node.get("DeathReasonMessage") or "")[:TEXT_MAX])

    def watch_groups(self):
        found = groups_of(self.job)
        for name in list(self.watched):  # Other threads change it.
            table = found.get(name)
            # Nodes are told in the order of the bundles. A bundle that is being moved has none.
            now = ("removed", "") if table is None else (table["state"].lower(), nodes_of(table))
            if self.groups.get(name) != now:
                self.groups[name] = now
                emit("reservation", name=name, state=now[0], nodes=now[1])

    def bundle(self, order):
        """Returns resources and labels of a bundle. A node of a guest serves this job alone: it has one unit of a resource with the job's name."""
        if order["guest"]:
            return {self.resource: 1}, {"pdjob-job": self.job, "pdjob-slot": order["slot"]}
        wanted = {"CPU": order["cpus"], "GPU": order["gpus"], "memory": order["memory"]}
        return {name: amount for name, amount in wanted.items() if amount}, {}

    def reserve(self, name, bundles, timeout_s):
        if name in groups_of(self.job):
            raise Refused("exists", f"there is a reservation {name}")
        resources, labels = zip(*map(self.bundle, bundles))
        group = ray.util.placement_group(list(resources), strategy="STRICT_SPREAD", name=f"pdjob/{self.job}/{name}", lifetime="detached",
                                         bundle_label_selector=list(labels))
        if not group.wait(timeout_s):
            ray.util.remove_placement_group(group)
            raise Refused("no_room", f"no room for {json.dumps(bundles)} within {timeout_s} s")
        self.watched.add(name)
        return nodes_of(ray.util.placement_group_table(group))

    def release(self, name):
        self.watched.discard(name)
        if name in groups_of(self.job):
            remove_group(self.job, name)
        return ""

    @functools.cached_property
    def pdjob(self):
        return Bundle(FILES)

    @functools.lru_cache(maxsize=PIECES_KEPT)
    def piece(self, number):
        # Nodes take pieces from each other, too: Ray's object store sees to it.
        return ray.put(self.pdjob.piece(number))

    def bring(self, actor, program):
        """Makes the actor have the launcher's own pdjob. Returns what was sent for that."""
        def call(method, *words):
            return ray.get(method.remote(*words), timeout=AGENT_SECONDS)

        with self.bundle_lock:
            bundle = self.pdjob
        if call(actor.find, bundle.manifest, program):
            return ""
        begin = time.monotonic()
        call(actor.expect, bundle.manifest)
        for number in range(bundle.pieces()):
            with self.bundle_lock:
                piece = self.piece(number)
            call(actor.take, piece)
        call(actor.finish)
        return f"pdjob was not there; {bundle.size / 1e6:.0f} MB were sent in {time.monotonic() - begin:.1f} s"

    def start_agent(self, slot, reservation, bundle, program, arguments, secret, log, ship=False):
        name = starter_name(self.job, slot)
        end_actor(name)
        group = ray.util.get_placement_group(f"pdjob/{self.job}/{reservation}")
        wanted = dict(group.bundle_specs[bundle])
        nested = self.resource in wanted
        options = dict(num_cpus=wanted.pop("CPU", 0), num_gpus=wanted.pop("GPU", 0), memory=wanted.pop("memory", None), resources=wanted,
                       name=name, namespace=NAMESPACE, lifetime="detached", max_restarts=0, runtime_env={"env_vars": {"RAY_worker_niceness": "0"}},
                       scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=bundle))
        actor = ray.remote(Starter).options(**options).remote()
        try:
            sent = self.bring(actor, program) if ship else ""
            # The secret is an argument of a method: Ray's control store keeps only those of constructors.
            ray.get(actor.start.remote(program, arguments, secret, log, nested), timeout=AGENT_SECONDS)
            return sent
        except Exception:
            ray.kill(actor)  # Not by its name, which the next one may have already.
            raise

    def close(self):
        self.closed = True
        asked, deadline = {}, time.monotonic() + CLOSE_SECONDS
        while not free_everything(self.job, asked):
            if time.monotonic() > deadline:
                raise Refused("failed", "nodes are left, which the keeper ends")
            time.sleep(0.1)
        # A reservation that is still on its way is cleaned up by the keeper. Without one, it has ended already.
        with contextlib.suppress(Exception):
            ray.get(self.keeper.expire.remote(), timeout=RAY_SECONDS)
        return ""


# ---- Guest clusters, by Ray's Jobs API


class Guest:
    """The Jobs API of a guest cluster. Each job there is a slot: its process is a node of the home cluster."""

    def __init__(self, dashboard, token_file):
        self.dashboard, self.token_file = dashboard.rstrip("/"), token_file

    def call(self, method, path, body=None):
        headers = {"Content-Type": "application/json"}
        if self.token_file:
            with open(self.token_file) as file:
                headers["Authorization"] = "Bearer " + file.read().strip()
        request = urllib.request.Request(self.dashboard + path, json.dumps(body).encode() if body is not None else None, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=HTTP_SECONDS) as reply:
                return json.loads(reply.read(REPLY_BYTES_MAX))
        except urllib.error.HTTPError as error:
            text = error.read(500).decode(errors="replace")
            if error.code in (401, 403):
                raise Refused("unauthenticated", f"{self.dashboard} refuses the token: name the right one in `token_file`") from error
            raise Refused("unknown" if error.code == 404 else "unreachable", f"{self.dashboard}{path}: {error.code} {text}") from error
        except (OSError, ValueError) as error:
            raise Refused("unreachable", f"{self.dashboard}{path}: {error}") from error

    def join(self, submission, order, python, cpus, gpus, memory):
        version = self.call("GET", "/api/version").get("ray_version")
        if version != order["ray"]:
            raise Refused("version_mismatch", f"cluster {order['cluster']} runs Ray {version}, and the home cluster Ray {order['ray']}: "
                                              f"install Ray {order['ray']} there")
        self.call("POST", "/api/jobs/", {
            "submission_id": submission, "entrypoint": f"exec {shlex.quote(python)} -c 'import os; exec(os.environ[\"PDJOB_GLIDE_IN_TEXT\"])'",
            "entrypoint_num_cpus": cpus, "entrypoint_num_gpus": gpus, "entrypoint_memory": memory or None,
            "runtime_env": {"env_vars": {"PDJOB_GLIDE_IN": json.dumps(order), "PDJOB_GLIDE_IN_TEXT": GLIDE_IN, "RAY_worker_niceness": "0"}}})

    def state(self, submission):
        found = self.call("GET", f"/api/jobs/{submission}")
        return found["status"], found.get("message") or ""

    def reason(self, submission, message):
        """Returns whether glide_in.py refused to join, and why the job ended."""
        lines = self.call("GET", f"/api/jobs/{submission}/logs").get("logs", "").splitlines()
        refusals = [line.removeprefix("pdjob refuses: ") for line in lines if line.startswith("pdjob refuses: ")]
        return (1, refusals[-1]) if refusals else (0, re.sub("\x1b\\[[0-9;]*m", "", " ".join([*message.splitlines()[:1], *lines[-2:]])))

    def follow(self, slot, submission):
        while True:
            time.sleep(GUEST_SECONDS)
            try:
                status, message = self.state(submission)
                if status in ENDED:
                    refused, reason = self.reason(submission, message)
                    emit("guest_ended", slot=slot, submission=submission, refused=refused, reason=reason[-TEXT_MAX:])
                    return
            except Refused:
                continue  # The guest's head may be away for a while; its node says itself whether it lives.

    def leave(self, submission):
        try:
            self.call("POST", f"/api/jobs/{submission}/stop")
        except Refused as error:
            if error.kind == "unknown":
                return ""  # It was never submitted.
            raise
        deadline = time.monotonic() + LEAVE_SECONDS
        while self.state(submission)[0] not in ENDED:
            if time.monotonic() > deadline:
                raise Refused("failed", f"job {submission} has not ended yet; one that waits for room ends when it gets some")
            time.sleep(0.1)
        return ""


# ---- Requests


class Shim:
    def __init__(self):
        self.home, self.order = None, {}

    def op_open(self, name, address, job, lease_s, reconnect_s):
        if self.home is not None:
            raise Refused("failed", "`open` comes once")
        self.home = Home(address, job, lease_s, name)
        self.order = {"home": address, "namespace": NAMESPACE, "keeper": keeper_name(job), "job": job, "reconnect_s": reconnect_s,
                      "resource": self.home.resource, "ray": ray.__version__, "python": PYTHON}
        threading.Thread(target=self.watch, daemon=True).start()
        return ",".join(sorted(self.home.watched))

    def watch(self):
        """Says when the home cluster stops answering, and when it answers again."""
        reachable, beat, deaf = None, [0.0], None
        self.repeat(self.home.renew, "renewing the lease", self.home.lease_s / 4)
        self.repeat(self.home.watch, "watching the home cluster", WATCH_SECONDS, beat)
        while not self.home.closed:
            now = time.monotonic() - beat[0] < RAY_SECONDS
            if now != reachable and beat[0]:
                reachable = now
                emit("home", reachable=int(now))
            # A control store that has started anew does not know this client of Ray. It needs a new one.
            deaf = None if now or not self.home.listens() else deaf or time.monotonic()
            if deaf and time.monotonic() > deaf + DEAF_SECONDS:
                print("the control store listens, but does not answer", file=sys.stderr, flush=True)
                os._exit(1)
            time.sleep(WATCH_SECONDS)

    def repeat(self, task, name, pause_s, beat=None):
        """Does it in a thread of its own until the home is closed. `beat` gets the time of its last success."""
        def run():
            while not self.home.closed:
                try:
                    task()
                    if beat is not None:
                        beat[0] = time.monotonic()
                    time.sleep(pause_s)
                except Exception as error:
                    print(f"{name}: {error!r}", file=sys.stderr, flush=True)
                    time.sleep(WATCH_SECONDS)

        threading.Thread(target=run, daemon=True).start()

    def op_join(self, slot, submission, cluster, dashboard, python, cpus, gpus, memory, token_file, home_token_file):
        guest = Guest(dashboard, token_file)
        guest.join(submission, {**self.order, "cluster": cluster, "slot": slot, "gpus": gpus, "token_file": home_token_file}, python, cpus, gpus, memory)
        threading.Thread(target=guest.follow, args=(slot, submission), daemon=True).start()
        return ""

    def op_leave(self, submission, dashboard, token_file):
        return Guest(dashboard, token_file).leave(submission)

    def op_reserve(self, **order):
        return self.home.reserve(**order)

    def op_release(self, name):
        return self.home.release(name)

    def op_start_agent(self, **order):
        return self.home.start_agent(**order)

    def op_close(self):
        return self.home.close()


def answer(shim, request, slots):
    number = request.pop("id")
    try:
        operation = getattr(shim, "op_" + str(request.pop("op")), None)
        if operation is None:
            raise Refused("unknown", "no such operation")
        if shim.home is None and operation not in (shim.op_open, shim.op_leave):  # Guests know nothing of the home.
            raise Refused("unknown", "`open` comes first")
        emit("done", id=number, text=operation(**request))
    except Refused as error:
        emit("refused", id=number, kind=error.kind, text=str(error)[:TEXT_MAX])
    except Exception as error:
        emit("refused", id=number, kind="failed", text=f"{type(error).__name__}: {error}"[:TEXT_MAX])
    finally:
        slots.release()


def serve(shim, requests):
    slots = threading.BoundedSemaphore(REQUESTS_MAX)
    while line := requests.readline(LINE_BYTES_MAX + 1):
        if len(line) > LINE_BYTES_MAX:
            raise SystemExit("a request is too long")
        request = json.loads(line)
        slots.acquire()  # The launcher has fewer requests at work, so it never waits here.
        threading.Thread(target=answer, args=(shim, request, slots), daemon=True).start()


def main():
    global LINES, GLIDE_IN, FILES
    glide_in, lines, *files = sys.argv[3:]
    with os.fdopen(int(glide_in)) as text:
        GLIDE_IN = text.read()
    FILES = [(name, int(descriptor)) for name, descriptor in (file.rsplit("=", 1) for file in files)]
    line = socket.socket(fileno=int(lines))
    LINES = line.makefile("w")
    if ray is None:
        emit("no_ray", text=f"{sys.executable} has no Ray: {NO_RAY}"[:TEXT_MAX])
        sys.exit(1)
    # Ray's job API sends SIGTERM to all processes of a job that it stops. The launcher needs the shim until everything is given back.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    emit("hello", protocol=PROTOCOL, ray=ray.__version__, python=PYTHON)
    serve(Shim(), line.makefile("rb"))
    os._exit(0)  # Its launcher is gone. No farewell to Ray, which may hang: the keeper cleans up.


try:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy
except ImportError as error:
    ray, NO_RAY = None, error

if __name__ == "__main__":
    main()
