"""A node of a guest cluster joins the home cluster. Runs as the entry point of a Ray job in the guest.

The job holds the node's resources in the guest. This program checks that the versions match, and becomes `ray start --block` of a nested node,
which joins the home. The job's end is the node's end, and the other way round: there is nothing else to clean up.

A job that had to wait may start when its launcher is long gone. So a watcher asks whether the job's keeper is there, and ends the node if not.

The order comes as JSON in $PDJOB_GLIDE_IN. It holds no secret: a token is named by its file on this machine.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time

WATCH_SECONDS = 2
KEEPER_SECONDS = 30
OBJECT_STORE_BYTES = 80_000_000  # Nobody uses it; Ray wants at least 75 MB.


def refuse(why):
    # The launcher reads this line from the job's log.
    print("pdjob refuses: " + why, flush=True)
    sys.exit(3)


def check_versions(order):
    import ray

    here = {"Ray": ray.__version__, "Python": ".".join(map(str, sys.version_info[:3]))}
    for name, wanted in (("Ray", order["ray"]), ("Python", order["python"])):
        # Ray itself wants the same Ray, and the same minor version of Python.
        same = here[name] == wanted if name == "Ray" else here[name].split(".")[:2] == wanted.split(".")[:2]
        if not same:
            refuse(f"cluster {order['cluster']} has {name} {here[name]} ({sys.executable}), and the home cluster has {wanted}: name an interpreter "
                   f"with Ray {order['ray']} and Python {order['python']} in `python` of this cluster")


def own_labels():
    """Returns the labels of this job's node in the guest cluster."""
    import ray

    ray.init(logging_level="error", log_to_driver=False)
    labels = ray.get_runtime_context().get_node_labels()
    ray.shutdown()
    return {name: value for name, value in labels.items() if name != "ray.io/node-id"}


def own_address(home):
    """Returns the address by which the home cluster reaches this machine."""
    host, port = home.rsplit(":", 1)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((host.strip("[]"), int(port)))
        except OSError as error:
            refuse(f"this machine cannot reach the home cluster at {home}: {error}")
        return probe.getsockname()[0]


def free_port():
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]


def environment(order):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "PDJOB_")) and name != "OMP_NUM_THREADS"}
    if order["token_file"]:
        kept["RAY_AUTH_MODE"] = "token"
        kept["RAY_AUTH_TOKEN_PATH"] = order["token_file"]
    else:  # The same token opens both clusters, or there is none.
        kept.update({name: value for name, value in os.environ.items() if name.startswith("RAY_AUTH_")})
    if not order["gpus"]:
        kept["CUDA_VISIBLE_DEVICES"] = ""
    kept["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"  # Its workers see the GPUs of this job, although the node offers none to Ray.
    kept["RAY_worker_niceness"] = "0"  # Ray starts its workers at 15, and what they start stays there.
    kept["RAY_gcs_rpc_server_reconnect_timeout_s"] = str(order["reconnect_s"])
    kept["PDJOB_GLIDE_PID"] = str(os.getpid())  # For the keeper, which ends this node when its launcher is gone.
    return kept


def is_kept(order):
    """Returns whether the job's keeper is there, and has not begun to free everything. Raises an error if it is not known."""
    import ray

    ray.init(order["home"], namespace=order["namespace"], logging_level="error", log_to_driver=False)
    try:
        keeper = ray.get_actor(order["keeper"], namespace=order["namespace"])
        return ray.get(keeper.keeps.remote(), timeout=KEEPER_SECONDS)
    except ValueError:
        return False
    finally:
        ray.shutdown()


def watch(order, node):
    """Ends the process `node`, which is the parent of this one, if the job has no keeper. The keeper ends nodes that joined before its own end."""
    while os.getppid() == node:
        time.sleep(WATCH_SECONDS)
        try:
            kept = is_kept(order)
        except Exception:  # The node has not joined yet, or the home does not answer.
            continue
        if not kept and os.getppid() == node:
            os.kill(node, signal.SIGTERM)
        return


def start_watcher(order):
    words = [sys.executable, "-c", "import os; exec(os.environ['PDJOB_GLIDE_IN_TEXT'])"]
    kept = {name: os.environ[name] for name in ("PDJOB_GLIDE_IN", "PDJOB_GLIDE_IN_TEXT")}
    subprocess.Popen(words, env={**environment(order), **kept, "PDJOB_GLIDE_WATCHES": str(os.getpid())}, stdin=subprocess.DEVNULL)


def main():
    order = json.loads(os.environ["PDJOB_GLIDE_IN"])
    if node := os.environ.get("PDJOB_GLIDE_WATCHES"):
        return watch(order, int(node))
    check_versions(order)
    labels = {**own_labels(), "pdjob-job": order["job"], "pdjob-cluster": order["cluster"], "pdjob-slot": order["slot"]}
    argv = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats"]
    argv += [f"--address={order['home']}", f"--node-ip-address={own_address(order['home'])}"]
    # Work that needs a CPU or a GPU is never placed here: in the home cluster, this node is for this job.
    argv += ["--num-cpus=0", "--num-gpus=0", "--resources=" + json.dumps({order["resource"]: 1})]
    argv += ["--labels=" + ",".join(f"{name}={value}" for name, value in labels.items())]
    argv += [f"--object-store-memory={OBJECT_STORE_BYTES}"]
    # Two nodes on one machine must not want the same ports.
    argv += ["--min-worker-port=0", "--max-worker-port=0", f"--dashboard-agent-listen-port={free_port()}"]
    start_watcher(order)
    os.execve(argv[0], argv, environment(order))


if __name__ == "__main__":
    main()
