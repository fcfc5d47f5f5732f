"""The commands of the docs do what the docs say.

Each block of commands is run as it stands, on real jobs, or a comment in front of it says why not (tests/support/docs_blocks.py). `./dev peers` runs
the pages that take long.
"""

import pathlib
import sys

import pytest

from conftest import BIN, MODEL, ROOT, free_port

sys.path.insert(0, str(ROOT / "tests/support"))
from docs_blocks import Reader, blocks_of, pages  # noqa: E402

# On one job of configs/quickstart.yaml, one page after the other.
TOGETHER = [
    "docs/how-to/background.md",
    "docs/how-to/scale.md",
    "docs/how-to/several-routers.md",
    "docs/how-to/structured-output.md",
    "docs/how-to/tokens-in-tokens-out.md",
    "docs/how-to/tools.md",
    "docs/how-to/troubleshooting.md",
    "docs/how-to/change-a-running-job.md",  # Last: a worker gets another name.
]
# Each with what it starts by itself.
ALONE = ["docs/how-to/run-a-batch.md", "docs/how-to/stages.md", "docs/how-to/tenants.md", "docs/how-to/workers-by-hand.md"]
LONG = [
    "docs/how-to/responses.md",
    "docs/how-to/asynchronous-requests.md",
    "docs/how-to/batch-api.md",
    "docs/how-to/embeddings.md",
    "docs/how-to/https.md",
    "docs/how-to/how-many-workers.md",
    "docs/how-to/prefix-routing.md",
    "docs/how-to/response-cache.md",
    "docs/how-to/rollouts.md",
    "docs/how-to/routing-policies.md",
    "docs/how-to/several-models.md",
    "docs/tutorial.md",
]
# Pages that go on from a job which is not started by any of their blocks that are run.
FIRST = {page: "pdjob --config configs/quickstart.yaml\n" for page in ("docs/how-to/embeddings.md", "docs/how-to/responses.md", "docs/tutorial.md")}


def reader(folder):
    return Reader(folder, BIN, MODEL, free_port)


def acting(page):
    return [block for block in blocks_of(page) if block.acts]


def test_each_block_of_commands_is_run_or_says_why_not():
    neither = [f"{block.page}:{block.line}" for page in pages() if page not in [*TOGETHER, *ALONE, *LONG] for block in blocks_of(page) if block.runs]
    assert neither == [], "name the page in this file, or write <!-- not run: WHY --> before the block"
    marks = {mark for page in pages() for block in blocks_of(page) for mark in block.marks}
    assert all(mark in ("not run", "file", "job", "refused") or mark.startswith("as ") for mark in marks), marks
    reasons = [block.marks["not run"] for page in pages() for block in blocks_of(page) if "not run" in block.marks]
    assert min(map(len, reasons)) > 10, "a reason"


def test_a_page_that_is_run_has_something_to_run():
    assert [page for page in [*TOGETHER, *ALONE, *LONG] if not any(block.runs for block in blocks_of(page))] == []


def test_the_pages_about_one_small_job_are_right(tmp_path):
    blocks = [block for page in TOGETHER for block in acting(page)]
    reader(tmp_path).read(blocks, first="pdjob --config configs/quickstart.yaml\n")


@pytest.mark.parametrize("page", ALONE, ids=lambda page: pathlib.Path(page).stem)
def test_a_page_is_right(tmp_path, page):
    reader(tmp_path).read(acting(page), FIRST.get(page, ""))


@pytest.mark.heavy
@pytest.mark.parametrize("page", LONG, ids=lambda page: pathlib.Path(page).stem)
def test_a_long_page_is_right(tmp_path, page):
    reader(tmp_path).read(acting(page), FIRST.get(page, ""))
