"""Runs one GoogleTest program in several processes at once: for tests that mostly wait. Usage: shards.py N|each PROGRAM

each: every test has a process of its own, as tests must that fork before they use CUDA.
"""

import concurrent.futures
import os
import subprocess
import sys

AT_ONCE = 4


def count_tests(program):
    listed = subprocess.run([program, "--gtest_list_tests"], capture_output=True, text=True, check=True).stdout
    return sum(line.startswith("  ") for line in listed.splitlines())


def main():
    program = sys.argv[2]
    count = count_tests(program) if sys.argv[1] == "each" else int(sys.argv[1])

    def run(index):
        sharding = {"GTEST_TOTAL_SHARDS": str(count), "GTEST_SHARD_INDEX": str(index)}
        return subprocess.run([program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ, **sharding})

    with concurrent.futures.ThreadPoolExecutor(AT_ONCE if sys.argv[1] == "each" else count) as pool:
        shards = list(pool.map(run, range(count)))
    for shard in shards:
        sys.stdout.buffer.write(shard.stdout)
    return any(shard.returncode for shard in shards)


if __name__ == "__main__":
    sys.exit(main())
