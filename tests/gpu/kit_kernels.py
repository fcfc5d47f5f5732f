"""Makes a smaller library of libllama's kernels: without most instances of its templates, and with a function in their place that says what is missing.

    kit_kernels.py LIBRARY.a[.xz] INSTANCES OUT.a

INSTANCES: a regular expression of the instances to keep; a file of another kind is kept. LIBRARY may have been built without the others.
"""

import lzma
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

# Each is in a file of its own, named ...-instance-...
TEMPLATES = re.compile(r"_Z\d+(ggml_cuda_flash_attn_ext_\w+_case|mul_mat_f_cuda|mul_mat_q_case)I")
INSTEAD = """#include <stdio.h>
#include <stdlib.h>
void pdjob_kit_lacks_this_kernel(void) {
  fputs("this program was built for the GPU kit, which lacks the kernel for this model or type of KV: build pdjob with ./dev build cuda\\n", stderr);
  abort();
}
"""


def symbols(objects):
    """Returns those that they define, and those that they want."""
    listed = subprocess.run(["nm", "--extern-only", *objects], capture_output=True, text=True, check=True).stdout
    words = [line.split() for line in listed.splitlines()]
    return {line[2] for line in words if len(line) == 3}, {line[1] for line in words if len(line) == 2 and line[0] == "U"}


def main(library, instances, out):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        archive = folder / "all.a"
        with (lzma.open if library.endswith(".xz") else open)(library, "rb") as source, open(archive, "wb") as target:
            shutil.copyfileobj(source, target)
        subprocess.run(["ar", "x", archive], cwd=folder, check=True)
        kept = [path for path in sorted(folder.glob("*.o")) if "-instance-" not in path.name or re.search(instances, path.name)]
        if not any("-instance-" in path.name for path in kept):
            sys.exit(f"kit_kernels: {library} has no instance of {instances}")
        defined, wanted = symbols(kept)
        missing = sorted(symbol for symbol in wanted - defined if TEMPLATES.match(symbol))
        aliases = "".join(f'__asm__(".globl {symbol}\\n.set {symbol}, pdjob_kit_lacks_this_kernel");\n' for symbol in missing)
        (folder / "instead.c").write_text(INSTEAD + aliases)
        subprocess.run(["cc", "-O1", "-fPIC", "-c", folder / "instead.c", "-o", folder / "instead.o"], check=True)
        made = folder / "made.a"
        subprocess.run(["ar", "rcs", made, *kept, folder / "instead.o"], check=True)
        shutil.move(made, out)
        print(f"kit_kernels: {len(kept)} objects, {len(missing)} kernels left out")


if __name__ == "__main__":
    main(*sys.argv[1:])
