"""Copies a source file with one change: a bug that a simulation must find. Usage: mutate.py SOURCE TARGET OLD NEW"""

import pathlib
import sys

source, target, old, new = sys.argv[1:]
text = pathlib.Path(source).read_text()
found = text.count(old)
if found != 1:
    sys.exit(f"{source} has {old!r} {found} times instead of once: change the mutant in tests/simulation/CMakeLists.txt, too")
pathlib.Path(target).parent.mkdir(parents=True, exist_ok=True)
pathlib.Path(target).write_text(text.replace(old, new))
