"""Mooncake's trace format (JSON lines with hash_ids) in, the compact form that prefix_trace.h reads out: python3 compact_trace.py FILE [REQUESTS]"""

import itertools
import json
import sys


def main():
    rows = (json.loads(line) for line in open(sys.argv[1]))
    last_with = {}  # Block -> the request that had it last, and where.
    print("# input_tokens output_tokens blocks shared_blocks of_request (512 tokens a block; -1: of none)")
    for number, row in enumerate(itertools.islice(rows, int(sys.argv[2]) if len(sys.argv) > 2 else None)):
        blocks = row["hash_ids"]
        shared = next((at for at, block in enumerate(blocks) if block not in last_with), len(blocks))
        print(row["input_length"], row["output_length"], len(blocks), shared, last_with[blocks[shared - 1]] if shared else -1)
        last_with.update((block, number) for block in blocks)


main()
