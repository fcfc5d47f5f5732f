"""tests/gpu/gpu_day.py with programs that are scripts: what it says of those that fail, hang or are missing."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

SCRIPT = pathlib.Path(__file__).resolve().parents[1] / "gpu/gpu_day.py"
# Lists two tests. The first one crashes, and the second one prints a figure.
PROGRAM = """#!/bin/sh
case "$*" in
  *list_tests*) printf 'Suite.\\n  Crashes\\n  Measures\\n' ;;
  *Crashes*) kill -9 $$ ;;
  *) echo 'gpu: 17 GB/s' ;;
esac
"""
HANGS = """#!/bin/sh
case "$*" in *list_tests*) printf 'Suite.\\n  Hangs\\n' ;; *) sleep 600 & wait ;; esac
"""


def run(folder, programs, *words, doubles=True):
    (folder / "bin").mkdir()
    for name, text in programs.items():
        (folder / "bin" / name).write_text(text)
        (folder / "bin" / name).chmod(0o755)
    command = [sys.executable, SCRIPT, "--bin", folder / "bin", "--out", folder / "out", *(["--doubles"] if doubles else []), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env={**os.environ, "HOME": str(folder)})


def test_a_step_that_crashes_does_not_end_the_others_and_figures_are_in_the_report(tmp_path):
    done = run(tmp_path, {"gpu_test": PROGRAM, "gpu_nccl_test": PROGRAM}, "gpu", "ipc", "nccl")
    report = (tmp_path / "out/report.md").read_text()
    assert done.returncode == 1 and report in done.stdout
    assert report.count("| Suite.Crashes | failed (-9) |") == report.count("| Suite.Measures | passed |") == 2
    assert report.count("gpu: 17 GB/s\n") == 2
    assert f"| gpu_ipc_test | skipped: there is no {tmp_path}/bin/gpu_ipc_test |" in report


def test_a_step_that_hangs_is_ended_with_all_that_it_has_started_and_the_time_of_the_run_is_kept(tmp_path):
    done = run(tmp_path, {"gpu_test": HANGS, "gpu_nccl_test": PROGRAM}, "gpu", "nccl", "--seconds", "2")
    assert done.returncode == 1
    assert "| Suite.Hangs | failed: 2 s were over |" in done.stdout
    assert "| Suite.Measures | skipped: the 2.0 s of the run are over |" in done.stdout


def test_a_program_that_lists_no_tests_is_a_failure_that_says_why(tmp_path):
    done = run(tmp_path, {"gpu_test": "#!/bin/sh\necho no library >&2; exit 1\n"}, "gpu")
    assert done.returncode == 1 and "| gpu_test | failed: it lists no tests: no library |" in done.stdout


def test_without_doubles_the_tests_never_take_them_even_if_the_machine_lacks_a_library(tmp_path):
    program = PROGRAM.replace("17 GB/s'", "'\"$PDJOB_GPU_CUDART and $PDJOB_GPU_NCCL\"")
    report = run(tmp_path, {"gpu_test": program}, "gpu", doubles=False).stdout
    named = re.search(r"^gpu: (\S+) and (\S+)$", report, re.M)
    assert named and "libcudart" in named[1] and "libnccl" in named[2], report


def test_a_kit_runs_what_is_beside_its_script_with_its_own_model_and_says_that_a_driver_is_missing(tmp_path):
    (tmp_path / "kit").mkdir()
    script = shutil.copy(SCRIPT, tmp_path / "kit")
    (tmp_path / "kit/model.gguf").write_text("a model")
    (tmp_path / "kit/bin").mkdir()
    program = tmp_path / "kit/bin/gpu_test"
    program.write_text(PROGRAM.replace("17 GB/s'", "'\"$PDJOB_TEST_MODEL\""))
    program.chmod(0o755)
    done = subprocess.run([sys.executable, script, "gpu"], capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path,
                          env={**{name: value for name, value in os.environ.items() if name != "PDJOB_TEST_MODEL"}, "HOME": str(tmp_path)})
    assert f"gpu: {tmp_path}/kit/model.gguf\n" in done.stdout
    assert done.stdout.endswith((tmp_path / "gpu-day/report.md").read_text() + "\n")
    assert os.path.exists("/dev/nvidiactl") or "without NVIDIA's driver no other step can pass" in done.stdout


def test_an_unknown_step_is_refused_with_the_names_of_all(tmp_path):
    done = run(tmp_path, {}, "gpus")
    assert done.returncode == 2 and "no step gpus, only facts probe gpu ipc engine e2e nccl" in done.stderr
