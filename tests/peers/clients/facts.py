"""Runs facts of one client's script, in that client's own environment.

    python facts.py SCRIPT URL VARIANT FACT...

A fact is a function of the script. The last line of the output is a JSON object: each fact's name, and "" or its traceback.
"""

import asyncio
import importlib
import inspect
import json
import sys
import traceback

if __name__ == "__main__":
    script = importlib.import_module(sys.argv[1])
    told = {}
    for name in sys.argv[4:]:
        try:
            result = getattr(script, name)()
            if inspect.isawaitable(result):
                asyncio.run(result)
            told[name] = ""
        except Exception:
            told[name] = traceback.format_exc()
    print("\n" + json.dumps(told))
