"""Draws the picture of the README: what `pdjob top` shows of a real job under load, one of whose workers was killed a while ago. Not a measurement.

    ./dev bench picture docs/top.svg
"""

import argparse
import html
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

import httpx

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
from conftest import BIN, MODEL, Job, eventually  # noqa: E402

JOB = """\
name: chat
model: {model}
served_name: smollm2
prefill: {{workers: 2}}
decode: {{workers: 2}}
router: {{listen: "127.0.0.1:8000"}}
launcher: {{state_dir: {folder}/state, log_dir: {folder}/logs}}
"""
CLIENTS = 4
# Of a terminal; the same on a light and on a dark page.
CHAR, LINE, LEFT, TOP = 7.8, 19, 20, 52
COLORS = [(r"^(?:NAME|KV LINK) .*", "#9aa4b2"), (r"\b(?:ready|open)\b", "#67d58d"), (r"^\$ .*", "#74b8ff"), (r"(?<=  )[1-9]\d*$", "#f2b35c")]


def load(url, stop):
    with httpx.Client(timeout=120) as client:
        while not stop.is_set():
            body = {"model": "smollm2", "prompt": f"It is {time.monotonic_ns()}. Tell me about the sea. " * 3, "max_tokens": 64, "ignore_eos": True}
            client.post(url + "/v1/completions", json=body)


def look(job):
    """Returns a page of `pdjob top` in which each part of the job has something to show."""
    with subprocess.Popen([BIN, "top", "--config", str(job.config)], stdout=subprocess.PIPE, text=True) as top:
        try:
            parts, page = [], []
            for line in top.stdout:
                if line.strip():
                    page.append(line.rstrip())
                    continue
                parts, page = [*parts, page], []
                if len(parts) == 4:  # Sums, processes, waits, links.
                    whole, parts = [*parts[0], "", *parts[1], "", *parts[2], "", *parts[3]], []
                    decodes = [row for row in whole if row.startswith("decode-") and " ms " in row]
                    prefills = [row for row in whole if row.startswith("prefill-") and re.search(r" [1-9]\d* +0$", row) and ">" not in row]
                    if len(decodes) == 2 and prefills and "TTFT -" not in whole[1] and sum(" > " in row for row in whole) == 4:
                        return whole
        finally:
            top.terminate()
    raise AssertionError("top has ended")


def spans(line):
    marks = [(match.start(), match.end(), color) for pattern, color in COLORS for match in re.finditer(pattern, line)]
    at = 0
    for begin, end, color in sorted(marks):
        if begin < at:
            continue
        yield line[at:begin], "#d7dde6"
        yield line[begin:end], color
        at = end
    yield line[at:], "#d7dde6"


def svg(lines):
    width, height = int(2 * LEFT + CHAR * max(map(len, lines))), TOP + LINE * len(lines) + 6
    text = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">',
            "<title>pdjob top, of a job with two prefill and two decode workers</title>",
            f'<rect width="{width}" height="{height}" rx="10" fill="#15181e" stroke="#3a414d"/>']
    text += [f'<circle cx="{LEFT + 18 * i}" cy="20" r="6" fill="{color}"/>' for i, color in enumerate(("#ff8f87", "#f0c35a", "#67d58d"))]
    text.append("<g font-family=\"ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace\" font-size=\"13\">")
    for row, line in enumerate(lines):
        column = 0
        for part, color in spans(line):
            for cell in re.finditer(r"\S+(?: \S+)*", part):  # Browsers fold blanks.
                x, length = LEFT + CHAR * (column + cell.start()), CHAR * len(cell[0])
                text.append(f'<text x="{x:.1f}" y="{TOP + LINE * row}" fill="{color}" textLength="{length:.1f}">{html.escape(cell[0])}</text>')
            column += len(part)
    return "\n".join([*text, "</g>", "</svg>", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=pathlib.Path)
    file = parser.parse_args().file
    with tempfile.TemporaryDirectory(prefix="pdjob-bench-") as folder:
        job, stop = Job(JOB.format(model=MODEL, folder=folder), folder), threading.Event()
        url = job.wait_ready().url
        clients = [threading.Thread(target=load, args=(url, stop)) for _ in range(CLIENTS)]
        for client in clients:
            client.start()
        try:
            os.kill(job.processes()["decode-1"]["pid"], signal.SIGKILL)
            eventually(lambda: (one := job.processes()["decode-1"])["state"] == "ready" and one["restarts"] == 1, 60, "decode-1 serves again")
            eventually(lambda: job.processes()["decode-1"]["seconds_in_state"] > 20, 60, "some time has passed")
            lines = look(job)
        finally:
            stop.set()
            for client in clients:
                client.join()
            job.stop()
    file.write_text(svg(["$ pdjob top", *lines]))


if __name__ == "__main__":
    main()
