"""The net under the suites, on made-up suites: what fails once is flaky, and what fails twice, crashes or hides a fault is not."""

import os
import pathlib
import subprocess
import sys

import pytest

PROGRAM = pathlib.Path(__file__).with_name("run_suites.py")
# Fails the first time, and passes after that.
ONCE = "import pathlib\ndef once(name):\n    mark = pathlib.Path(__file__).with_name(name)\n    seen = mark.exists()\n    mark.touch()\n    assert seen, 'first time'\n"


def run(folder, ctest=(), pytest="", options=()):
    """Runs made-up suites: commands of /bin/sh by their name, and the text of a file of tests. Returns the exit status and the lines."""
    build = folder / "build"
    build.mkdir()
    lines = [f'add_test([=[{name}]=] "/bin/sh" "-c" [=[{command}]=])' for name, command in dict(ctest).items()]
    (build / "CTestTestfile.cmake").write_text("\n".join(lines) + "\n")
    (folder / "test_made_up.py").write_text(ONCE + pytest)
    argv = [sys.executable, str(PROGRAM), "--build", "build", "--flaky", "flaky", *options, "--pytest-paths", "test_made_up.py"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    ended = subprocess.run(argv, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=240)
    return ended.returncode, ended.stdout.splitlines()


FLAKY_SHELL = "test -e seen || { touch seen; echo a first failure; exit 1; }"
FLAKY_PYTHON = """
import pytest
@pytest.fixture
def unsteady_start(): once('start')
@pytest.fixture(scope='module')
def unsteady_end():
    yield
    once('end')
def test_good(): pass
@pytest.mark.skip
def test_skipped(): pass
@pytest.mark.parametrize('word', ['a b', "it's [odd]::<&>", 'steady'])
def test_word(word): word == 'steady' or once('word' + str(len(word)))
def test_setup(unsteady_start): pass
def test_teardown(unsteady_end): pass
"""


def test_a_test_that_fails_once_is_flaky_and_no_failure(tmp_path):
    code, lines = run(tmp_path, {"steady": "true", "unsteady": FLAKY_SHELL}, FLAKY_PYTHON)
    text = "\n".join(lines)
    odd = "test_made_up.py::test_word[it's [odd]::<&>]"
    flaky = ["unsteady", "test_made_up.py::test_word[a b]", odd, "test_made_up.py::test_setup", "test_made_up.py::test_teardown"]
    assert code == 0, text
    assert lines[-2] == "8 passed, 0 failed, 1 skipped", text
    assert lines[-1] == f"flaky: {', '.join(flaky)}", text
    assert (tmp_path / "flaky.txt").read_text().splitlines() == flaky
    assert "a first failure" in (tmp_path / "flaky/unsteady.log").read_text()
    logs = sorted((tmp_path / "flaky").glob("test_made*.log"))
    assert len(logs) == 4 and all("first time" in log.read_text() for log in logs)
    # The end of a fixture is the end of all tests of its file.
    assert "==> once more, alone: test_made_up.py" in lines
    assert "  ctest             unsteady" in text
    assert "  pytest  setup     test_made_up.py::test_teardown" in text


def test_strict_makes_a_flaky_test_a_failure(tmp_path):
    code, lines = run(tmp_path, {"unsteady": FLAKY_SHELL}, "def test_good(): pass\n", ["--strict"])
    assert code == 1
    assert lines[-2:] == ["2 passed, 0 failed, 0 skipped", "flaky: unsteady"]


def test_what_fails_twice_crashes_or_shows_a_fault_fails(tmp_path):
    ctest = {
        "bad": "false",
        "crash": "kill -SEGV $$",
        "faulty": "test -e seen || { touch seen; echo ==7==ERROR: AddressSanitizer: heap-use-after-free; exit 1; }",
    }
    pytest = """
import os
def test_bad(): assert False
def test_takes_its_process_with_it():
    if not pathlib.Path('gone').exists():
        pathlib.Path('gone').touch()
        os._exit(1)
def test_good(): pass
"""
    code, lines = run(tmp_path, ctest, pytest)
    assert code == 1
    # xdist itself runs the last one once more.
    assert lines[-1] == "2 passed, 5 failed, 0 skipped", "\n".join(lines)
    assert "==> faulty shows a sanitizer's report: it does not run once more" in lines
    assert any(line.endswith("test_takes_its_process_with_it did not come to its end: it does not run once more") for line in lines)
    assert [line for line in lines if line.startswith("==> once more")] == [
        "==> once more, alone: bad",
        "==> once more, alone: crash",
        "==> once more, alone: test_made_up.py::test_bad",
    ]
    assert not (tmp_path / "flaky.txt").exists()


def test_many_failures_are_no_chance(tmp_path):
    code, lines = run(tmp_path, {f"unsteady{number}": FLAKY_SHELL.replace("seen", f"seen{number}") for number in range(11)}, "def test_good(): pass\n")
    assert code == 1
    assert lines[-1] == "1 passed, 11 failed, 0 skipped"
    assert "==> 11 tests failed, more than 10: that is no chance, and none runs once more" in lines


@pytest.mark.parametrize("text", ["raise RuntimeError\n", "# No test.\n"])
def test_a_runner_that_ends_by_itself_fails(tmp_path, text):
    code, lines = run(tmp_path, {"steady": "true"}, text)
    assert code == 1
    assert lines[-1].startswith("1 passed, 1 failed"), "\n".join(lines)


def test_a_program_that_is_missing_fails(tmp_path):
    (tmp_path / "gone").mkdir()
    code, lines = run(tmp_path / "gone", {}, "def test_good(): pass\n")
    assert (code, lines[-1]) == (0, "1 passed, 0 failed, 0 skipped")
    (tmp_path / "gone/build/CTestTestfile.cmake").write_text('add_test([=[nowhere]=] "/nowhere/program")\n')
    argv = [sys.executable, str(PROGRAM), "--build", "gone/build", "--flaky", "gone/flaky", "--pytest-paths", "gone/test_made_up.py"]
    ended = subprocess.run(argv, cwd=tmp_path, stdout=subprocess.PIPE, text=True, timeout=240)
    assert ended.returncode == 1
    assert ended.stdout.splitlines()[-1] == "1 passed, 1 failed, 0 skipped"


def test_a_name_that_no_test_has_is_an_error(tmp_path):
    code, lines = run(tmp_path, {"steady": "true"}, "def test_good(): pass\n", ["nobody"])
    assert code == 2
    assert lines[-2:] == ["no test has nobody in its name", "0 passed, 0 failed, 0 skipped"]
