"""Well-known clients of OpenAI's API, unmodified, against a job: their structured outputs, calls of tools and streams.

The model makes no sense, so these tests look at the form of what comes back. Each fact is a function of a script in `clients/`.
"""

import functools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/integration"))
from conftest import CACHE, MODEL, assert_idle, eventually, running_job  # noqa: E402

pytestmark = pytest.mark.heavy

SCRIPTS = ROOT / "tests/peers/clients"
SMALL_MODEL = pathlib.Path(MODEL).with_name("smollm2-6-layers-q8_0.gguf")
NODE_MODULES = CACHE / "peers/node-clients/node_modules"
# Client -> the environment, the script, and the variant of its facts.
CLIENTS = {
    "openai-python": ("clients", "openai_python", "-"),
    "langchain-chat": ("clients", "langchain_client", "chat"),
    "langchain-responses": ("clients", "langchain_client", "responses"),
    "pydantic-ai-chat": ("clients", "pydantic_ai_client", "chat"),
    "pydantic-ai-responses": ("clients", "pydantic_ai_client", "responses"),
    "litellm": ("clients", "litellm_client", "-"),
    "instructor-tools": ("instructor", "instructor_client", "TOOLS"),
    "instructor-tools-strict": ("instructor", "instructor_client", "TOOLS_STRICT"),
    "instructor-json": ("instructor", "instructor_client", "JSON"),
    "instructor-json-schema": ("instructor", "instructor_client", "JSON_SCHEMA"),
    "instructor-responses": ("instructor", "instructor_client", "RESPONSES_TOOLS"),
    "tritonclient": ("triton", "triton_client", "-"),
    "openai-node": ("node", "openai_node", "-"),
    "vercel-responses": ("node", "vercel_ai", "responses"),
    "vercel-chat": ("node", "vercel_ai", "chat"),
    "vercel-compatible": ("node", "vercel_ai", "compatible"),
}
FAILS = {
    ("openai-node", "parseReturnsAMultiple"): "400: multipleOf with bounds that are far apart: docs/how-to/structured-output.md",
    ("vercel-responses", "aConversationGoesOn"): "it refers to a stored text by item_reference, and pdjob stores none: docs/how-to/responses.md",
}
FACT = re.compile(r"^(?:async def|def|export async function) (\w+)\(\)", re.MULTILINE)


def facts():
    for client, (environment, script, _) in CLIENTS.items():
        for fact in FACT.findall((SCRIPTS / f"{script}{'.mjs' if environment == 'node' else '.py'}").read_text()):
            reason = FAILS.get((client, fact))
            marks = [pytest.mark.xfail(strict=True, reason=reason)] if reason else []
            yield pytest.param(client, fact, id=f"{client}-{fact}", marks=marks)


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    with running_job(tmp_path_factory.mktemp("pdjob-clients"), model=SMALL_MODEL) as job:
        yield job


@pytest.fixture(scope="module")
def told(job, request, tmp_path_factory):
    """Returns what a client's script said of each selected fact. A script runs once."""
    wanted = {}
    for item in request.session.items:
        if item.module is request.module and hasattr(item, "callspec"):
            wanted.setdefault(item.callspec.params["client"], []).append(item.callspec.params["fact"])

    @functools.cache
    def run(client):
        environment, script, variant = CLIENTS[client]
        words = node_words(tmp_path_factory.mktemp("node")) if environment == "node" else python_words(environment)
        words += [script, job.url, variant, *wanted[client]]
        # LiteLLM would look for the prices of models in the network.
        env = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "PYTHONDONTWRITEBYTECODE": "1"}
        ran = subprocess.run(words, env=env, capture_output=True, text=True, timeout=900)
        if ran.returncode != 0:
            return dict.fromkeys(wanted[client], ran.stderr[-4000:])
        return json.loads(ran.stdout.splitlines()[-1])

    return run


def python_words(environment):
    python = CACHE / f"peers/{environment}/bin/python"
    if not python.exists():
        pytest.skip(f"no clients at {python}: run ./dev peers clients")
    return [str(python), str(SCRIPTS / "facts.py")]


def node_words(folder):
    if not shutil.which("node"):
        pytest.skip("no node on this machine")
    if not NODE_MODULES.exists():
        pytest.skip(f"no clients at {NODE_MODULES}: run ./dev peers clients on a machine with npm")
    # Node looks for packages in the folders above a script.
    for file in SCRIPTS.glob("*.mjs"):
        shutil.copy(file, folder)
    (folder / "node_modules").symlink_to(NODE_MODULES)
    return ["node", str(folder / "facts.mjs")]


@pytest.mark.parametrize("client, fact", list(facts()))
def test_a_client_works_unmodified(told, client, fact):
    failure = told(client)[fact]
    assert not failure, failure


def test_no_client_leaves_a_request_behind(job):
    eventually(lambda: assert_idle(job), 30, "the job is idle")
