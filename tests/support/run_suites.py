"""Runs the two suites, ctest's and pytest's, and says what came of them. A test that fails runs once more, with no other test beside it.

A test that fails and then passes is flaky: the closing lines name it, FLAKY.txt lists it, and FLAKY/NAME.log keeps what its failure said. It is no
failure, except with --strict. These fail without a second run: a test whose failure shows a sanitizer's report, a test that took its process
with it, a runner that ends by itself, and more failures than RERUNS_MAX.

The last lines are always `N passed, N failed, N skipped`, and `flaky: NAMES` if there are some.

For pytest this file is a plugin, too: it writes into the report which test it was, and how long each of its phases took.
"""

import argparse
import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[2]
PHASES = ("setup", "call", "teardown")
RERUNS_MAX = 10  # More tests than these do not fail by chance.
RERUN_SECONDS = 900
SUITE_SECONDS = 3600
SLOWEST = 20
# Such a report is never chance: the next run may only take another way.
SANITIZER = re.compile(r"(Address|Leak|Thread|UndefinedBehavior)Sanitizer|: runtime error: |==\d+==ABORTING")
# A file stays in one process, and so do its fixtures. The longest files start first.
PYTEST_PATHS = ["tests/integration/test_identity.py", "tests/integration/test_prefix_cache.py", "tests/integration", "tests/peers", "tests/support"]


def pytest_runtest_makereport(item, call):
    """Each report has the properties of the phases before it, and pytest's JUnit report takes those of the last one."""
    if call.when == "setup":
        path, test = os.path.relpath(item.path), item.nodeid.partition("::")[2]
        item.user_properties.append(("id", f"{path}::{test}"))
    item.user_properties.append((call.when, f"{call.duration:.2f}"))


@dataclasses.dataclass
class Case:
    """One test of a report."""

    name: str
    outcome: str = "passed"  # Or failed, skipped.
    output: str = ""  # What its failure said.
    rerun: str = ""  # What runs once more in its place; empty: nothing.
    seconds: dict = dataclasses.field(default_factory=dict)  # By phase.


class Ctest:
    name, some_failed = "ctest", 8

    def __init__(self, options):
        self.fine = (0,)
        self.report = options.build / "ctest.xml"
        self.base = ["ctest", "--test-dir", str(options.build), "--output-on-failure", "--output-junit"]
        # Most tests wait for something now and then, so more of them run than there are cores.
        self.first = [*self.base, str(self.report), "--parallel", str(cores() + 2)]
        if options.filter:
            self.first += ["--tests-regex", options.filter]

    def again(self, name, report):
        return [*self.base, str(report), "--tests-regex", f"^{re.escape(name)}$"]

    def read(self, element):
        case = Case(element.get("name"), seconds={"": float(element.get("time"))}, output=element.findtext("system-out") or "")
        case.rerun = case.name
        skipped = element.find("skipped")
        if skipped is not None:
            # ctest calls it skipped, too, when a test's program is missing.
            chosen = re.match(r"SKIP_RETURN_CODE|SKIP_REGULAR_EXPRESSION|Disabled", skipped.get("message", ""))
            case.outcome = "skipped" if chosen else "failed"
        elif element.find("failure") is not None:
            case.outcome = "failed"
        return case


class Pytest:
    name, some_failed = "pytest", 1

    def __init__(self, options):
        self.fine = (0, 5) if options.filter else (0,)  # 5: no test ran.
        self.report = options.build / "pytest.xml"
        self.base = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", pathlib.Path(__file__).stem]
        self.base += ["-o", "junit_logging=all", "-o", "junit_log_passing_tests=false"]
        self.first = [*self.base, "--numprocesses", str(cores() + 1), "--dist", "loadfile", "--no-loadscope-reorder"]
        self.first += [f"--junit-xml={self.report}", *options.pytest_paths]
        if options.filter:
            self.first += ["-k", options.filter.replace("|", " or ")]

    def again(self, name, report):
        return [*self.base, f"--junit-xml={report}", name]

    def read(self, element):
        properties = {found.get("name"): found.get("value") for found in element.iterfind("properties/property")}
        case = Case(properties.get("id", f"{element.get('classname')}::{element.get('name')}"))
        case.seconds = {phase: float(properties[phase]) for phase in PHASES if phase in properties}
        broken = [*element.iterfind("failure"), *element.iterfind("error")]
        if broken:
            case.outcome = "failed"
            parts = [*broken, *element.iterfind("system-out"), *element.iterfind("system-err")]
            case.output = "\n".join(f"{part.get('message', '')}\n{part.text or ''}" for part in parts)
            # The end of a fixture judges all tests of its file.
            late = any(found.get("message", "").startswith("failed on teardown") for found in broken)
            case.rerun = case.name.partition("::")[0] if late else case.name
            if "id" not in properties:  # Its process ended, or its file is wrong.
                case.rerun = ""
        elif element.find("skipped") is not None:
            case.outcome = "skipped"
        return case


def cores():
    return len(os.sched_getaffinity(0))


def say(text):
    print(f"==> {text}", flush=True)


def run(command, seconds):
    """Returns the exit status, or None after `seconds`."""
    path = f"{pathlib.Path(__file__).parent}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path}) as child:
        try:
            return child.wait(seconds)
        except subprocess.TimeoutExpired:
            child.kill()
            return None


def read_report(suite, report):
    """Returns the tests by name. A test whose call and teardown both failed is there twice, and becomes one."""
    cases = {}
    for element in xml.etree.ElementTree.parse(report).iter("testcase"):
        case = suite.read(element)
        before = cases.get(case.name)
        if before and before.outcome == "failed":
            before.output += case.output
            if len(case.rerun) < len(before.rerun):
                before.rerun = case.rerun
        else:
            cases[case.name] = case
    return cases


def run_suite(suite):
    """Returns the tests by name, and what is wrong with the runner itself, if anything is."""
    suite.report.unlink(missing_ok=True)
    status = run(suite.first, SUITE_SECONDS)
    if status is None:
        return {}, f"{suite.name} did not end in {SUITE_SECONDS} s"
    try:
        cases = read_report(suite, suite.report)
    except (OSError, xml.etree.ElementTree.ParseError) as error:
        return {}, f"{suite.name} ended with status {status} and left no report: {error}"
    explained = status in suite.fine or (status == suite.some_failed and any(case.outcome == "failed" for case in cases.values()))
    return cases, "" if explained else f"{suite.name} itself ended with status {status}"


def passes_alone(suite, case, report):
    report.unlink(missing_ok=True)
    if run(suite.again(case.rerun, report), RERUN_SECONDS) != 0 or not report.exists():
        return False
    cases = read_report(suite, report)
    return case.name in cases and cases[case.name].outcome == "passed" and all(found.outcome != "failed" for found in cases.values())


def find_flaky(failed, options):
    """Runs once more what failed: a list of suites with one of their tests. Returns the names of those that passed."""
    if len(failed) > RERUNS_MAX:
        say(f"{len(failed)} tests failed, more than {RERUNS_MAX}: that is no chance, and none runs once more")
        return []
    flaky = []
    for suite, case in failed:
        if not case.rerun:
            say(f"{case.name} did not come to its end: it does not run once more")
        elif SANITIZER.search(case.output):
            say(f"{case.name} shows a sanitizer's report: it does not run once more")
        else:
            say(f"once more, alone: {case.rerun}")
            if passes_alone(suite, case, options.flaky.parent / "again.xml"):
                flaky.append(case.name)
                options.flaky.mkdir(parents=True, exist_ok=True)
                (options.flaky / f"{re.sub(r'[^A-Za-z0-9_.-]+', '-', case.name)}.log").write_text(case.output)
    return flaky


def print_slowest(suites):
    rows = [(seconds, suite.name, phase, case.name) for suite, cases in suites for case in cases.values() for phase, seconds in case.seconds.items()]
    print(f"\nThe slowest {SLOWEST}, in seconds. A setup is the start of what the test shares with others, as its file's job.")
    for seconds, suite, phase, name in sorted(rows, reverse=True)[:SLOWEST]:
        print(f"{seconds:8.1f}  {suite:6}  {phase:8}  {name}")


def main():
    parser = argparse.ArgumentParser()
    folder = lambda path: pathlib.Path(path).resolve()  # ctest would take it from its own folder.
    parser.add_argument("--build", type=folder, required=True, help="the folder of ctest, for the reports of both suites, too")
    parser.add_argument("--flaky", type=folder, required=True, help="the folder of what flaky tests said; FLAKY.txt is beside it")
    parser.add_argument("--pytest-paths", nargs="+", default=PYTEST_PATHS)
    parser.add_argument("--strict", action="store_true", help="a flaky test is a failure")
    parser.add_argument("filter", nargs="?", default="", help="a part of a test's name (a|b: either)")
    options = parser.parse_args()
    shutil.rmtree(options.flaky, ignore_errors=True)
    options.flaky.with_suffix(".txt").unlink(missing_ok=True)

    suites = [(suite, *run_suite(suite)) for suite in (Ctest(options), Pytest(options))]
    outcomes = [case.outcome for _, cases, _ in suites for case in cases.values()]
    broken = [wrong for _, _, wrong in suites if wrong]
    failed = [(suite, case) for suite, cases, _ in suites for case in cases.values() if case.outcome == "failed"]
    flaky = find_flaky(failed, options)
    lost = [case.name for _, case in failed if case.name not in flaky] + broken

    print_slowest([(suite, cases) for suite, cases, _ in suites])
    for name in lost:
        print(f"failed: {name}")
    if flaky:
        options.flaky.with_suffix(".txt").write_text("".join(f"{name}\n" for name in flaky))
        print(f"What the flaky tests said when they failed: {options.flaky}/")
    if not outcomes and not broken:
        print(f"no test has {options.filter} in its name")
    print(f"{outcomes.count('passed') + len(flaky)} passed, {len(lost)} failed, {outcomes.count('skipped')} skipped")
    if flaky:
        print(f"flaky: {', '.join(flaky)}")
    if not outcomes and not broken:
        return 2
    return 1 if lost or (flaky and options.strict) else 0


if __name__ == "__main__":
    sys.exit(main())
