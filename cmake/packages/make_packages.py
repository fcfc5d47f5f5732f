"""Makes packages of a built pdjob.

    make_packages.py wheel|deb --program build/package/pdjob --version 0.1.0 --model M.gguf --out dist --licenses NAME=FILE ...

Each form is two packages: pdjob, and pdjob-quickstart with a small model.
"""

import argparse
import base64
import gzip
import hashlib
import pathlib
import re
import shutil
import subprocess
import tempfile
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
MAINTAINER = "pdjob <pdjob@localhost>"
SUMMARY = "Runs a large language model as one job, with prefill and decode in separate workers"
MODEL_SUMMARY = "The small model of pdjob's quickstart: SmolLM2-135M-Instruct"
# manylinux_2_36 promises these. All other libraries travel in the wheel.
PLATFORM = "manylinux_2_36_x86_64"
PROMISED = re.compile(r"(linux-vdso|ld-linux-x86-64|lib(c|m|dl|rt|pthread|resolv|gcc_s|stdc\+\+))\.so.*")
# The model has the same licence as pdjob.
MODEL_LICENSE = ROOT / "LICENSE"
# The program contains these packages' headers or static libraries.
COMPILED_IN = ["nlohmann-json3-dev", "libcli11-dev", "cppzmq-dev"]
FIXED_TIME = (1980, 1, 1, 0, 0, 0)
ENTRY = '''"""The program pdjob. This package only carries it."""

import os
import sys


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    os.environ.setdefault("PDJOB_MODELS", os.path.join(os.path.dirname(here), "pdjob_quickstart"))
    program = os.path.join(here, "bin", "pdjob")
    os.execv(program, ["pdjob", *sys.argv[1:]])
'''


def run(*command, **options):
    return subprocess.run(command, check=True, capture_output=True, text=True, **options).stdout


def strip(program, target):
    """Keeps the names of functions: stack dumps in logs show them."""
    run("strip", "--strip-debug", "-o", str(target), str(program))


def libraries(program):
    """Returns the files of all libraries that the program loads and manylinux does not promise, by name."""
    found = {}
    for line in run("ldd", str(program)).splitlines():
        if line.split()[0].startswith("/") or PROMISED.fullmatch(line.split()[0]):
            continue
        name, path = re.fullmatch(r"\s*(\S+) => (/\S+) \(0x[0-9a-f]+\)", line).groups()
        found[name] = pathlib.Path(path)
    return found


def copyright_of(package):
    return pathlib.Path("/usr/share/doc", package, "copyright")


def packages_of(paths):
    """Returns the Debian packages that the files come from."""
    owners = set()
    for path in paths:
        for candidate in (path, path.resolve(), pathlib.Path("/usr" + str(path.resolve()))):
            found = subprocess.run(["dpkg-query", "--search", str(candidate)], capture_output=True, text=True)
            if found.returncode == 0:
                owners.add(found.stdout.split(":")[0])
                break
        else:
            raise SystemExit(f"no package owns {path}, so its licence is unknown")
    return sorted(owners)


class Wheel:
    def __init__(self, name, version, tag, folder):
        self.version = version
        self.info = f"{name.replace('-', '_')}-{version}.dist-info"
        self.path = folder / f"{name.replace('-', '_')}-{version}-{tag}.whl"
        self.zip = zipfile.ZipFile(self.path, "w", zipfile.ZIP_DEFLATED)
        self.record = []
        self.add(f"{self.info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: pdjob\nRoot-Is-Purelib: false\nTag: {tag}\n")

    def add(self, name, content, executable=False):
        content = content.read_bytes() if isinstance(content, pathlib.Path) else content.encode()
        entry = zipfile.ZipInfo(name, FIXED_TIME)
        entry.compress_type = zipfile.ZIP_STORED if name.endswith(".gguf") else zipfile.ZIP_DEFLATED  # Weights do not get smaller.
        entry.external_attr = (0o100755 if executable else 0o100644) << 16
        self.zip.writestr(entry, content)
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        self.record.append(f"{name},sha256={digest},{len(content)}")

    def close(self):
        self.record.append(f"{self.info}/RECORD,,")
        self.zip.writestr(f"{self.info}/RECORD", "\n".join(self.record) + "\n")
        self.zip.close()
        return self.path


def metadata(name, summary, options, lines=()):
    fields = [
        "Metadata-Version: 2.1", f"Name: {name}", f"Version: {options.version}", f"Summary: {summary}", "License: Apache-2.0",
        "Requires-Python: >=3.8", *lines,
    ]
    return "\n".join(fields) + "\n"


def make_wheels(options):
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder, "pdjob")
        strip(options.program, program)
        wheel = Wheel("pdjob", options.version, f"py3-none-{PLATFORM}", options.out)
        wheel.add("pdjob/__init__.py", ENTRY)
        wheel.add("pdjob/__main__.py", "from pdjob import main\n\nmain()\n")
        wheel.add("pdjob/bin/pdjob", program, executable=True)
        found = libraries(options.program)
        for name, path in sorted(found.items()):
            wheel.add(f"pdjob/bin/lib/{name}", path)
        wheel.add(f"{wheel.info}/METADATA", metadata("pdjob", SUMMARY, options, [
            "Provides-Extra: quickstart", f"Requires-Dist: pdjob-quickstart=={options.version}; extra == 'quickstart'"]))
        wheel.add(f"{wheel.info}/entry_points.txt", "[console_scripts]\npdjob = pdjob:main\n")
        wheel.add(f"{wheel.info}/licenses/LICENSE", ROOT / "LICENSE")
        for name, path in options.licenses:
            wheel.add(f"{wheel.info}/licenses/{name}", path)
        for package in packages_of(found.values()) + COMPILED_IN:
            wheel.add(f"{wheel.info}/licenses/{package}", copyright_of(package))
        print(wheel.close())

    wheel = Wheel("pdjob-quickstart", options.version, "py3-none-any", options.out)
    # In a folder of its own: pip would leave empty folders of one that two packages share.
    wheel.add("pdjob_quickstart/__init__.py", f'"""{MODEL_SUMMARY}"""\n')
    wheel.add(f"pdjob_quickstart/{options.model.name}", options.model)
    wheel.add(f"{wheel.info}/METADATA", metadata("pdjob-quickstart", MODEL_SUMMARY, options))
    wheel.add(f"{wheel.info}/licenses/LICENSE", MODEL_LICENSE)
    print(wheel.close())


def control(options, name, architecture, summary, lines):
    fields = [
        f"Package: {name}", f"Version: {options.version}", f"Architecture: {architecture}", f"Maintainer: {MAINTAINER}", "Section: net",
        "Priority: optional", *lines, f"Description: {summary}",
    ]
    return "\n".join(fields) + "\n"


def needed_packages(program):
    """Returns what dpkg-shlibdeps says of the program."""
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "debian").mkdir()
        pathlib.Path(folder, "debian/control").write_text("Source: pdjob\n\nPackage: pdjob\nArchitecture: any\n")
        return run("dpkg-shlibdeps", "-O", str(program), cwd=folder).strip().removeprefix("shlibs:Depends=")


def build_deb(folder, options, name, architecture):
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) // 1024
    control_file = folder / "DEBIAN/control"
    control_file.write_text(control_file.read_text().replace("Description:", f"Installed-Size: {size}\nDescription:"))
    path = options.out / f"{name}_{options.version}_{architecture}.deb"
    run("dpkg-deb", "--root-owner-group", "-Zgzip" if architecture == "all" else "-Zxz", "--build", str(folder), str(path))
    return path


def put(folder, name, content, mode=0o644):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, pathlib.Path):
        shutil.copyfile(content, path)
    else:
        path.write_text(content)
    path.chmod(mode)
    return path


def licenses_text(options):
    parts = [f"{name}\n{'=' * len(name)}\n\n{path.read_text()}" for name, path in [("pdjob", ROOT / "LICENSE"), *options.licenses]]
    parts += [f"{package}\n{'=' * len(package)}\n\n{copyright_of(package).read_text()}" for package in COMPILED_IN]
    return "\n\n".join(parts)


def make_debs(options):
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary, "pdjob")
        program = put(folder, "usr/bin/pdjob", options.program, 0o755)
        strip(options.program, program)
        program.chmod(0o755)
        put(folder, "DEBIAN/control", control(options, "pdjob", "amd64", SUMMARY, [
            f"Depends: {needed_packages(program)}, passwd", f"Suggests: pdjob-quickstart (= {options.version})"]))
        for script in ("postinst", "prerm", "postrm"):
            put(folder, f"DEBIAN/{script}", HERE / f"deb.{script}", 0o755)
        put(folder, "lib/systemd/system/pdjob@.service", HERE / "pdjob@.service")
        put(folder, "usr/share/doc/pdjob/copyright", licenses_text(options))
        (folder / "etc/pdjob").mkdir(parents=True)
        completions = {"bash": "usr/share/bash-completion/completions/pdjob", "zsh": "usr/share/zsh/vendor-completions/_pdjob",
                       "fish": "usr/share/fish/vendor_completions.d/pdjob.fish"}
        for shell, name in completions.items():
            put(folder, name, run(str(program), "completion", shell))
        page = put(folder, "usr/share/man/man1/pdjob.1.gz", "")
        page.write_bytes(gzip.compress(run(str(program), "reference", "man").encode(), mtime=0))
        print(build_deb(folder, options, "pdjob", "amd64"))

        folder = pathlib.Path(temporary, "model")
        put(folder, f"usr/share/pdjob/models/{options.model.name}", options.model)
        put(folder, "usr/share/doc/pdjob-quickstart/copyright", MODEL_LICENSE)
        put(folder, "DEBIAN/control", control(options, "pdjob-quickstart", "all", MODEL_SUMMARY, ["Enhances: pdjob"]))
        print(build_deb(folder, options, "pdjob-quickstart", "all"))


def named_file(text):
    name, _, path = text.partition("=")
    return name, pathlib.Path(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("form", choices=["wheel", "deb"])
    parser.add_argument("--program", type=pathlib.Path, required=True)
    parser.add_argument("--version", required=True)
    parser.add_argument("--model", type=pathlib.Path, required=True)
    parser.add_argument("--licenses", type=named_file, nargs="*", default=[], metavar="NAME=FILE", help="of what is compiled in")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    {"wheel": make_wheels, "deb": make_debs}[options.form](options)


if __name__ == "__main__":
    main()
