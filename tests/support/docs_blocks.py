"""The commands of the docs: finds them, and runs those of a page as a reader would.

A comment stands before a block of Markdown that is not simply run, or that is a file:

    <!-- not run: WHY -->            the block is only read
    <!-- refused: WHY -->            a server or a program refuses one of its commands
    <!-- as VALUE: WORDS -->         each VALUE of the block is replaced by WORDS, which the shell expands
    <!-- file: NAME -->              the block is the file NAME
    <!-- job: NAME -->               the block is laid over configs/NAME.yaml, and a job of that runs from here on
"""

import dataclasses
import os
import pathlib
import re
import signal
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
LANGUAGES = {"bash", "sh", "python"}
PORT = re.compile(r"(?<=:)(8000|8001|8101|8102|8443)\b")
BLOCK = re.compile(r"((?:^<!--[^\n]*-->\n)*)^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclasses.dataclass
class Block:
    page: str
    line: int
    language: str
    text: str
    marks: dict  # By their words before the colon.

    @property
    def runs(self):
        return self.language in LANGUAGES and "not run" not in self.marks

    @property
    def acts(self):
        return self.runs or "file" in self.marks or "job" in self.marks


def blocks_of(page):
    text = (ROOT / page).read_text()
    for found in BLOCK.finditer(text):
        marks = dict(mark.split(": ", 1) for mark in re.findall(r"<!-- (.*?) -->", found[1]))
        yield Block(page, text[: found.start(2)].count("\n") + 1, found[2], found[3], marks)


def pages():
    """The tutorials and how-tos: all pages whose commands people are meant to give."""
    found = [*sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs/how-to").glob("*.md"))]
    return [str(path.relative_to(ROOT)) for path in found]


# A command that stays in the foreground has a terminal of its own: it goes on in the background once it is ready.
PROGRAM = """\
#!/bin/bash
case "$1" in
  --config | run | worker | router | agent) ;;
  *.yaml) ;;
  *) exec {bin} "$@" ;;
esac
[[ $* == *--help* || $* == *--new-key* ]] && exec {bin} "$@"
if [[ $1 == --config || $1 == run || $1 == *.yaml ]]; then
  for job in $({bin} ps | awk 'NR > 1 {{ print $1 }}'); do {bin} stop "$job" --now >/dev/null 2>&1; done
fi
log=$(mktemp {work}/log.XXXXXX)
setsid {bin} "$@" </dev/null >"$log" 2>&1 &
pid=$!
echo $pid >> {work}/started
[[ $1 == agent ]] && exit 0
until grep -q '^ready url=' "$log"; do
  kill -0 $pid 2>/dev/null || {{ cat "$log" >&2; exit 1; }}
  sleep 0.05
done
grep '^ready url=' "$log"
"""


ON_ERROR = """trap 'echo "FAILED: $place" >&2' ERR"""
CURL = 'curl() { command curl --no-progress-meter --fail-with-body "$@"; }'


class Reader:
    """A person with a shell in a folder that looks like a clone, and a model."""

    def __init__(self, folder, program, model, free_port):
        self.folder = pathlib.Path(folder)
        self.ports = {}
        self.free_port = free_port
        (self.folder / "configs").mkdir(parents=True)
        for config in (ROOT / "configs").glob("*.*"):
            (self.folder / "configs" / config.name).write_text(self.own(config.read_text()))
            (self.folder / "configs" / config.name).chmod(0o755)
        for place in ("bin", "build/release"):
            (self.folder / place).mkdir(parents=True)
            (self.folder / place / "pdjob").write_text(PROGRAM.format(bin=program, work=self.folder))
            (self.folder / place / "pdjob").chmod(0o755)
        models = self.folder / ".cache/pdjob/models"
        models.mkdir(parents=True)
        for name in ("smollm2-135m-instruct", "smollm2-135m-instruct-q8_0"):
            (models / f"{name}.gguf").symlink_to(model)
        (self.folder / "model.gguf").symlink_to(model)
        self.environment = {**os.environ, "HOME": str(self.folder), "PATH": f"{self.folder}/bin:{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}", "CUDA_VISIBLE_DEVICES": ""}
        for name in ("PDJOB_MODELS", "XDG_STATE_HOME"):
            self.environment.pop(name, None)

    def own(self, text):
        """Each port of the docs is a free one here."""

        def taken(found):
            if found[0] not in self.ports:
                self.ports[found[0]] = self.free_port()
            return str(self.ports[found[0]])

        return PORT.sub(taken, text)

    def script_of(self, block):
        """Returns the lines of bash that do what a reader of the block does."""
        if "job" in block.marks:
            base = (self.folder / "configs" / f"{block.marks['job']}.yaml").read_text()
            (self.folder / f"job-{block.line}.yaml").write_text(laid_over(base, self.own(block.text)))
            return f"cp job-{block.line}.yaml job.yaml\npdjob --config job.yaml\n"
        if "file" in block.marks:
            return f"cat > '{block.marks['file']}' <<'END-OF-THE-FILE'\n{self.own(block.text)}END-OF-THE-FILE\n"
        text = self.own(block.text)
        for mark, words in block.marks.items():
            text = text.replace(mark.removeprefix("as "), self.own(words)) if mark.startswith("as ") else text
        if block.language == "python":
            return f"python3 - <<'END-OF-THE-FILE'\n{text}END-OF-THE-FILE\n"
        return f"refused=0\ntrap 'refused=1' ERR\nset +e\n{text}set -e\n{ON_ERROR}\n((refused))\n" if "refused" in block.marks else text

    def read(self, blocks, first=""):
        """Runs all blocks in one shell. The first one that fails is named by the error."""
        script = f"set -eE -o pipefail\n{ON_ERROR}\n{CURL}\nplace=first\n{first}"
        for block in blocks:
            script += f"place='{block.page}:{block.line}'\necho \"== $place\"\n{self.script_of(block)}"
        (self.folder / "script.sh").write_text(script)
        with open(self.folder / "output", "wb") as output:
            shell = subprocess.Popen(["bash", "script.sh"], cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True)
            try:
                code = shell.wait(600)
            finally:
                self.leave(shell)
        text = (self.folder / "output").read_text(errors="replace")
        assert code == 0, text[-6000:]
        return text

    def leave(self, shell):
        """Ends what was started here, and nothing else."""
        started = self.folder / "started"
        for pid in started.read_text().split() if started.exists() else []:
            kill_group(int(pid))
        kill_group(shell.pid)
        shell.wait()


def kill_group(leader):
    try:
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:
        pass


def sections(text):
    """Returns the lines of each key at the root of a YAML file, by the key."""
    found = {}
    for line in text.splitlines():
        if line and line[0] not in " #":
            found[line.split(":")[0]] = []
        if found and line.strip() and not line.lstrip().startswith("#"):
            found[[*found][-1]].append(line)
    return found


def laid_over(base, over):
    """Keys of `over` win. Two blocks of keys below the same one become one."""
    lines = sections(base)
    for key, own in sections(over).items():
        both = key in lines and [lines[key][0].split("#")[0].strip(), own[0].split("#")[0].strip()] == [f"{key}:"] * 2
        known = {line.split(":")[0] for line in own[1:]}
        lines[key] = [line for line in lines[key] if line.split(":")[0] not in known] + own[1:] if both else own
    return "\n".join(line for some in lines.values() for line in some) + "\n"
