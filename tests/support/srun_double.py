"""A double of SLURM's srun: runs a command once for each node, all of them on this machine, with the variables that srun sets.

    srun_double.py --nodes=2 --ntasks=2 [--other-option=...] COMMAND ...
"""

import os
import signal
import subprocess
import sys


def main():
    words = sys.argv[1:]
    options = {}
    while words and words[0].startswith("--"):
        name, equals, value = words.pop(0).partition("=")
        assert equals, f"the double knows {name}=VALUE only"
        options[name] = value
    nodes, tasks = int(options["--nodes"]), int(options["--ntasks"])
    assert tasks == nodes, "one task for each node"
    children = []
    signal.signal(signal.SIGTERM, lambda *_: [child.terminate() for child in children])
    for number in range(tasks):
        own = {"SLURM_PROCID": str(number), "SLURM_NODEID": str(number), "SLURM_LOCALID": "0", "SLURM_NTASKS": str(tasks),
               "SLURM_STEP_NUM_NODES": str(nodes), "SLURMD_NODENAME": f"double{number}"}
        children.append(subprocess.Popen(words, env={**os.environ, **own}))
    return max(child.wait() for child in children)


if __name__ == "__main__":
    sys.exit(main())
