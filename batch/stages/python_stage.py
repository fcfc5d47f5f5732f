"""Runs a stage of a batch that is a Python function: `python3 -c TEXT FILE FUNCTION`. One JSON object a line in, one out, in order."""

import importlib.util
import json
import os
import sys
import traceback


def load(file, name):
    sys.path[0] = os.path.dirname(os.path.abspath(file))
    spec = importlib.util.spec_from_file_location(os.path.splitext(os.path.basename(file))[0], file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return getattr(module, name)


def answer(function, line):
    row = json.loads(line)
    name = {"custom_id": row["custom_id"]}
    try:
        result = function(row)
        if not isinstance(result, dict):
            return json.dumps({**name, "pdjob_error": f"the function returned {type(result).__name__}, not dict"})
        return json.dumps({**result, **name}, allow_nan=False)
    except Exception as error:
        traceback.print_exc()
        return json.dumps({**name, "pdjob_error": f"{type(error).__name__}: {error}"})


def main():
    # The function may read and print: that must not get between the lines.
    lines, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    function = load(*sys.argv[1:])
    for line in lines:
        answers.write(answer(function, line).encode() + b"\n")
        answers.flush()


main()
