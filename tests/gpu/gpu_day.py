"""Runs everything that wants a GPU, on a machine that may have nothing but Python: facts of the machine, then each test and figure with a limit of its own.

    gpu_day.py [--bin FOLDER] [--model FILE] [--out FOLDER] [--seconds N] [STEP...]

FOLDER of programs (default: `bin` beside this file, as `./dev gpu kit` packs them): gpu_test, gpu_ipc_test, gpu_engine_test, gpu_nccl_test, gpu_probe and pdjob; a step whose program is missing is skipped. STEPs, in
their order: facts probe gpu ipc engine e2e nccl; default: all. No step ends the others. The newest libraries of CUDA and NCCL are found by the version
that they tell; PDJOB_GPU_CUDART, PDJOB_GPU_CUBLAS and PDJOB_GPU_NCCL name others. OUT gets `log`, with all output, the logs of jobs, and `report.md`; the
report is printed, too.
"""

import argparse
import dataclasses
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
STEPS = ("facts", "probe", "gpu", "ipc", "engine", "e2e", "nccl")
TESTS = {"gpu": ("gpu_test", 30), "ipc": ("gpu_ipc_test", 90), "engine": ("gpu_engine_test", 60), "nccl": ("gpu_nccl_test", 60)}
LIBRARIES = {  # Name of the file, the call that tells its version.
    "PDJOB_GPU_CUDART": ("libcudart.so.13", "cudaRuntimeGetVersion(version)"),
    "PDJOB_GPU_CUBLAS": ("libcublas.so.13", "cublasGetVersion_v2(None, version)"),
    "PDJOB_GPU_NCCL": ("libnccl.so.2", "ncclGetVersion(version)"),
}
# The programs are linked with these; NCCL is opened by its path.
LINKED = ("PDJOB_GPU_CUDART", "PDJOB_GPU_CUBLAS")
SEARCHED = ("/usr/local", "/usr/lib", "/opt", str(pathlib.Path.home()))
SEARCH_SECONDS = 20
# NCCL refuses host memory of some containers, and needs no other machine here.
NCCL_ENVIRONMENT = {"NCCL_DEBUG": "WARN", "NCCL_CUMEM_HOST_ENABLE": "0", "NCCL_MNNVL_ENABLE": "0"}
WORTH_READING = re.compile(r"^(gpu|probe|e2e): |Failure$|check failed|CUDA error|no kernel image|NCCL WARN|cannot |not found")
LINES_MAX = 25
DRIVER = "/dev/nvidiactl"
FACTS = (
    "uname -a", "grep PRETTY_NAME /etc/os-release", "ldd --version | head -1", "nproc", "free -g | head -2",
    "nvidia-smi --query-gpu=name,driver_version,memory.total,compute_mode,mig.mode.current --format=csv,noheader", "ls -l /dev/nvidia*",
)


@dataclasses.dataclass
class Outcome:
    name: str
    status: str  # "passed", "failed (3)", "60 s were over", "skipped: WHY"
    seconds: float = 0.0
    lines: tuple = ()


def version_of(library, call):
    """0: it cannot be loaded here. Another process asks, because loading a broken library may end it."""
    program = f"import ctypes; n = ctypes.c_int(); version = ctypes.byref(n); ctypes.CDLL({library!r}).{call}; print(n.value)"
    try:
        found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=20, check=False).stdout
    except subprocess.TimeoutExpired:
        return 0
    return int(found) if found.strip().isdigit() else 0


def newest(name, call):
    """Returns (version, path); (0, "") if there is none that can be loaded."""
    listed = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=False).stdout
    paths = {line.rpartition("=> ")[2] for line in listed.splitlines() if line.strip().startswith(f"{name} ")}
    try:
        search = ["find", *(folder for folder in SEARCHED if os.path.isdir(folder)), "-name", name, "-not", "-path", "*/stubs/*"]
        paths |= set(subprocess.run(search, capture_output=True, text=True, timeout=SEARCH_SECONDS, check=False).stdout.split("\n")) - {""}
    except subprocess.TimeoutExpired as late:
        paths |= {path for path in (late.stdout or b"").decode().split("\n")[:-1] if path}
    real = {os.path.realpath(path): path for path in sorted(paths)}
    return max(((version_of(path, call), path) for path in real.values()), default=(0, ""))


def find_libraries():
    """Sets the variables that are not set, and returns a line about each. Without a library its name is set: tests would take the doubles otherwise."""
    lines = []
    for variable, (name, call) in LIBRARIES.items():
        if variable in os.environ:
            version, path = version_of(os.environ[variable], call), os.environ[variable]
        else:
            version, path = newest(name, call)
        os.environ[variable] = path or name
        if variable in LINKED and os.path.dirname(path):
            os.environ["LD_LIBRARY_PATH"] = f"{os.path.dirname(path)}:{os.environ.get('LD_LIBRARY_PATH', '')}".rstrip(":")
        lines.append(f"{name}: {f'{version}, {path}' if version else 'none that can be loaded'}")
    return lines


class Day:
    def __init__(self, options):
        self.options = options
        self.began = time.monotonic()
        self.outcomes = []
        self.log = open(options.out / "log", "w", encoding="utf-8", errors="replace")

    def left(self):
        return self.options.seconds - (time.monotonic() - self.began)

    def note(self, outcome):
        self.outcomes.append(outcome)
        print(f"{outcome.seconds:7.1f} s  {outcome.name}: {outcome.status}", flush=True)

    def run(self, name, seconds, command, environment=None):
        """Runs one program. All that it has started ends with it."""
        limit = min(seconds, self.left())
        if limit <= 0:
            return self.note(Outcome(name, f"skipped: the {self.options.seconds} s of the run are over"))
        begun = time.monotonic()
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True,
                                 env={**os.environ, **(environment or {})})
        try:
            output, _ = child.communicate(timeout=limit)
            status = "passed" if child.returncode == 0 else f"failed ({child.returncode})"
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            output, _ = child.communicate()
            status = f"failed: {limit:.0f} s were over"
        self.log.write(f"=== {name}: {' '.join(map(str, command))}\n{output}\n=== {name}: {status}\n")
        self.log.flush()
        lines = [line for line in output.splitlines() if WORTH_READING.search(line)]
        return self.note(Outcome(name, status, time.monotonic() - begun, tuple(lines[-LINES_MAX:])))

    def program(self, name):
        """None: it is missing, and that is noted."""
        path = self.options.bin / name
        if path.exists():
            return path
        self.note(Outcome(name, f"skipped: there is no {path}"))
        return None

    def facts(self):
        lines = [] if self.options.doubles else find_libraries()
        for command in FACTS:
            found = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=30, check=False)
            lines += (found.stdout + found.stderr).strip().splitlines()
        if not self.options.doubles and not os.path.exists(DRIVER):
            lines.append(f"cannot find {DRIVER}: without NVIDIA's driver no other step can pass")
        self.log.write("\n".join(["=== facts", *lines, ""]))
        self.note(Outcome("facts", "passed", time.monotonic() - self.began, tuple(lines)))

    def tests(self, step):
        """Each test has a process of its own: CUDA does not survive a fork."""
        name, seconds = TESTS[step]
        program = self.program(name)
        if program is None:
            return
        listed = subprocess.run([program, "--gtest_list_tests", "--gtest_filter=-GpuTest.Double*"], capture_output=True, text=True, check=False)
        suite, tests = "", []
        for line in listed.stdout.splitlines():
            word = line.partition("#")[0].rstrip()
            if word.startswith("  "):
                tests.append(suite + word.strip())
            elif word.endswith("."):
                suite = word
        if not tests:
            self.note(Outcome(name, f"failed: it lists no tests: {listed.stderr.strip()[-300:]}"))
        for test in tests:
            self.run(test, seconds, [program, "--gtest_brief=1", f"--gtest_filter={test}"], NCCL_ENVIRONMENT if step == "nccl" else None)

    def e2e(self):
        pdjob = self.program("pdjob")
        if pdjob is None:
            return
        if not self.options.model:
            return self.note(Outcome("e2e", "skipped: no --model"))
        words = [sys.executable, HERE / "gpu_end_to_end.py", pdjob, self.options.model]
        words += ["--tokens-max", "64"] if self.options.doubles else ["--cudart", os.environ.get("PDJOB_GPU_CUDART", "")]
        for name, seconds, more in (("q8_0", 150, ("--kills", "3")), ("f16", 90, ()), ("q8_0, decode on the CPU", 90, ("--decode-on-cpu",))):
            kv_type, folder = name.partition(",")[0], name.replace(", ", "-").replace(" ", "-")
            self.run(f"e2e, KV of {name}", seconds, [*words, "--kv-type", kv_type, "--out", self.options.out / f"e2e-{folder}", *more])

    def probe(self):
        program = self.program("gpu_probe")
        if program is not None:
            self.run("probe", 75, [program])

    def report(self):
        rows = [f"| {each.name} | {each.status} | {each.seconds:.1f} s |" for each in self.outcomes]
        figures = [line for each in self.outcomes for line in each.lines]
        text = "\n".join(["| step | outcome | time |", "|---|---|---|", *rows, "", "```text", *figures, "```", ""])
        (self.options.out / "report.md").write_text(text)
        print("\n" + text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=HERE / "bin")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("gpu-day"))
    parser.add_argument("--model", default=os.environ.get("PDJOB_TEST_MODEL", str(HERE / "model.gguf") if (HERE / "model.gguf").exists() else ""))
    parser.add_argument("--seconds", type=float, default=560, help="for the whole run")
    parser.add_argument("--doubles", action="store_true", help="take the stand-ins for CUDA and NCCL, and compute on the CPU: to test this script")
    parser.add_argument("steps", nargs="*", metavar="STEP", help=" ".join(STEPS))
    options = parser.parse_args()
    unknown = set(options.steps) - set(STEPS)
    if unknown:
        parser.error(f"no step {', '.join(sorted(unknown))}, only {' '.join(STEPS)}")
    options.out.mkdir(parents=True, exist_ok=True)
    if options.model:
        os.environ["PDJOB_TEST_MODEL"] = options.model
    day = Day(options)
    day.facts()  # Finds the libraries, too.
    for step in STEPS[1:]:
        if options.steps and step not in options.steps:
            continue
        if step in TESTS:
            day.tests(step)
        else:
            getattr(day, step)()
    day.report()
    return any(each.status.startswith("failed") for each in day.outcomes)


if __name__ == "__main__":
    sys.exit(main())
