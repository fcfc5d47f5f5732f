"""A machine with two GPUs and two NICs, made of files, for one process and its children. It needs the right to mount."""

import ctypes
import functools
import os
import pathlib
import subprocess

LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNS, MS_BIND, MS_REC, MS_PRIVATE = 0x20000, 0x1000, 0x4000, 0x40000
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
MEMORY_MIB = 81559  # Of each GPU.
TABLE = "\t\033[4mGPU0\tGPU1\tCPU Affinity\033[0m\nGPU0\t X \tNV18\tN/A\nGPU1\tNV18\t X \tN/A\n"


@functools.cache
def unavailable():
    """Says why there can be no such machine here. Empty: there can."""
    if len(os.sched_getaffinity(0)) < 2:
        return "there is only one core"
    missing = [path for path in ("/proc/driver", "/sys/bus/pci/devices", "/sys/devices/system/node") if not pathlib.Path(path).is_dir()]
    if missing:
        return f"there is no {missing[0]}"
    tried = subprocess.run(["unshare", "-m", "true"], capture_output=True, text=True)
    return "" if tried.returncode == 0 else f"mounts are forbidden here: {tried.stderr.strip()}"


def check(code, what):
    if code != 0:
        raise OSError(ctypes.get_errno(), what)


def bind(source, target, flags=MS_BIND | MS_REC):
    check(LIBC.mount(str(source).encode(), str(target).encode(), None, flags, None), f"mount {target}")


class Box:
    """GPU 0, mlx5_0 and the first core are near each other, and so are GPU 1, mlx5_1 and the second core. NVLink joins the GPUs."""

    def __init__(self, folder):
        self.root = pathlib.Path(folder) / "box"
        self.cores = sorted(os.sched_getaffinity(0))[:2]
        for number in (0, 1):
            self._add(number)
        for name in DEVICES:
            self._write(f"dev/{name}", "")
        (self.root / "dev/shm").mkdir()
        (self.root / "dev/fd").symlink_to("/proc/self/fd")
        memory = f"{MEMORY_MIB}\n" * 2
        smi = self._write("bin/nvidia-smi", f"#!/bin/sh\nif [ $1 = topo ]; then cat <<'END'\n{TABLE}END\nelse cat <<'END'\n{memory}END\nfi\n")
        smi.chmod(0o755)
        self.environment = {"PATH": f"{smi.parent}:{os.environ['PATH']}", "CUDA_VISIBLE_DEVICES": "0,1"}

    def _write(self, path, text):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def _add(self, number):
        bridge = f"pci/all/pci0000:{number}0/0000:{number}0:01.0"
        gpu, nic = f"0000:{number}1:00.0", f"0000:{number}2:00.0"
        self._write(f"{bridge}/{gpu}/numa_node", f"{number}\n")
        self._write(f"{bridge}/{nic}/numa_node", f"{number}\n")
        self._write(f"{bridge}/{nic}/infiniband_verbs/uverbs{number}/dev", "")
        for address in (gpu, nic):
            (self.root / "pci" / address).symlink_to(f"all/pci0000:{number}0/0000:{number}0:01.0/{address}")
        self._write(f"class/infiniband/mlx5_{number}/ports/1/state", "4: ACTIVE\n")
        (self.root / f"class/infiniband/mlx5_{number}/device").symlink_to(f"/sys/bus/pci/devices/{nic}")
        self._write(f"driver/nvidia/gpus/{gpu}/information", f"Model: \t\t X\nGPU UUID: \t GPU-{number}\nDevice Minor: \t {number}\n")
        self._write(f"node/node{number}/cpulist", f"{self.cores[number]}\n")
        self._write(f"dev/nvidia{number}", "")
        self._write(f"dev/infiniband/uverbs{number}", "")

    def enter(self):
        """Makes it the machine of the calling process. Meant for preexec_fn."""
        check(LIBC.unshare(CLONE_NEWNS), "unshare")
        bind("none", "/", MS_REC | MS_PRIVATE)
        for name in (*DEVICES, "shm"):
            bind(f"/dev/{name}", self.root / "dev" / name)
        bind(self.root / "dev", "/dev")
        bind(self.root / "driver", "/proc/driver")
        bind(self.root / "class", "/sys/class")
        bind(self.root / "pci", "/sys/bus/pci/devices")
        bind(self.root / "node", "/sys/devices/system/node")
