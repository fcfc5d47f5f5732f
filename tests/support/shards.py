"""Runs one GoogleTest program in several processes at once: for tests that mostly wait. Usage: shards.py N PROGRAM"""

import os
import subprocess
import sys
import tempfile

count, program = int(sys.argv[1]), sys.argv[2]
shards = []
for index in range(count):
    output = tempfile.TemporaryFile()
    sharding = {"GTEST_TOTAL_SHARDS": str(count), "GTEST_SHARD_INDEX": str(index)}
    shards.append((subprocess.Popen([program], stdout=output, stderr=output, env={**os.environ, **sharding}), output))
codes = [process.wait() for process, _ in shards]
for _, output in shards:
    output.seek(0)
    sys.stdout.buffer.write(output.read())
sys.exit(any(codes))
