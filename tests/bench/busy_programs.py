"""Programs that take the cores' time, for benches that measure a job beside them."""

import contextlib
import subprocess
import sys


@contextlib.contextmanager
def busy_programs(count, nice=0):
    """So many endless loops run meanwhile."""
    loop = [sys.executable, "-c", "while True: pass"]
    running = [subprocess.Popen(["nice", "-n", str(nice), *loop]) for _ in range(count)]
    try:
        yield
    finally:
        for program in running:
            program.kill()
            program.wait()
