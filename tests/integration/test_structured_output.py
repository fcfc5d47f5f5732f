"""A structure for the output cannot kill, hang or fill a worker. It is followed exactly, or refused with 400."""

import json
import pathlib
import signal
import subprocess
import time

import openai
import pytest

from conftest import eventually, get

MODEL = "smollm2"
ASK = {"model": MODEL, "prompt": "Describe a person as JSON:", "max_tokens": 48, "temperature": 0}
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 10}, "age": {"type": "integer", "minimum": 0, "maximum": 130}},
    "required": ["name", "age"],
}
CYCLE = {"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"$ref": "#/$defs/a"}}}
LONG = "a" * 60_000
AMBIGUOUS = "root ::=" + " x" * 40 + '\nx ::= "#" | "##"'

# A kind of hostile structure -> the request's fields.
REFUSED = {
    "a $ref that leads back to itself": {"guided_json": CYCLE},
    "a property name of 60,000 characters": {"guided_json": {"type": "object", "properties": {LONG: {}}, "additionalProperties": True}},
    "a const of 60,000 characters": {"guided_json": {"const": LONG}},
    "an enum of 60,000 characters": {"guided_json": {"enum": [LONG]}},
    "an unknown reference": {"guided_json": {"$ref": "#/nowhere"}},
    "5,000 properties": {"guided_json": {"type": "object", "properties": {f"p{i}": {} for i in range(5000)}}},
    "a minLength of a million": {"guided_json": {"type": "string", "minLength": 1_000_000}},
    "all lengths together": {"guided_json": {"type": "array", "prefixItems": [{"type": "string", "maxLength": 99_999}] * 50}},
    "a pattern that repeats too much": {"guided_json": {"type": "string", "pattern": "^((a{99}){99}){99}$"}},
    "a literal of 5,000 characters, 2,000 times": {"guided_grammar": 'root ::= "' + "a" * 5000 + '"{2000}', "n": 16},
    "repetitions of repetitions": {"guided_grammar": 'root ::= (("a"{2000}){2000}){2000}'},
    "60,000 brackets": {"guided_grammar": "root ::= " + "(" * 60_000},
    "a grammar of another tongue": {"guided_grammar": 'root ::= Regex("(a*)*$")'},
    "a pattern that looks ahead": {"guided_json": {"type": "string", "pattern": "^(?=a)b$"}},
    "what only looks like a constraint": {"guided_json": {"type": "array", "uniqueItems": True}},
}


@pytest.fixture
def client(job):
    return openai.OpenAI(base_url=job.url + "/v1", api_key="none", max_retries=0, timeout=60)


def ask(client, **structure):
    request = {**ASK, **{name: structure.pop(name) for name in ("n", "max_tokens") if name in structure}}
    return client.completions.create(**request, extra_body=structure)


def pids(job):
    return {name: (process["pid"], process["state"]) for name, process in job.processes().items()}


def helpers(job):
    """Returns the grammar helpers of the job's workers."""
    return [
        int(child)
        for process in job.processes().values()
        for task in pathlib.Path(f"/proc/{process['pid']}/task").iterdir()
        for child in (task / "children").read_text().split()
        if b"compile-grammar" in pathlib.Path(f"/proc/{child}/cmdline").read_bytes()
    ]


@pytest.mark.parametrize("attack", REFUSED)
def test_an_attack_is_refused_once_and_clearly(job, client, attack):
    before = pids(job)
    for _ in range(2):
        begun = time.monotonic()
        with pytest.raises(openai.BadRequestError) as refusal:
            ask(client, **REFUSED[attack])
        assert refusal.value.body["type"] == "invalid_request_error", refusal.value.body
        assert len(refusal.value.body["message"]) < 400
        assert time.monotonic() - begun < 30
    assert pids(job) == before, "nobody died"
    assert ask(client, max_tokens=2).choices[0].text


def test_a_refusal_names_the_place(client):
    with pytest.raises(openai.BadRequestError) as refusal:
        ask(client, guided_json={"type": "object", "properties": {"code": {"type": "string", "pattern": "^(?=a)b$"}}})
    assert refusal.value.body["message"].startswith("the JSON schema at $.properties.code.pattern: must not look ahead")
    with pytest.raises(openai.BadRequestError) as refusal:
        ask(client, guided_grammar='root ::= "a"\nroot2 ::= other')
    assert refusal.value.body["message"] == 'EBNF parser error at line 2, column 11: Rule "other" is not defined'


def test_an_ambiguous_grammar_hangs_nobody(job, client):
    before = pids(job)
    text = ask(client, guided_grammar=AMBIGUOUS, max_tokens=100).choices[0].text
    assert set(text) == {"#"} and len(text) <= 80
    assert pids(job) == before
    assert ask(client, max_tokens=2).choices[0].text


def test_a_grammar_too_ambiguous_to_follow_fails_alone(job, client):
    before = pids(job)
    grammar = 'root ::= s\ns ::= s s s | s s | "a" | ""'
    try:
        ask(client, guided_grammar=grammar, max_tokens=1500)
    except (openai.APIStatusError, openai.APIConnectionError) as error:
        assert "ambiguous" in str(error)
    assert pids(job) == before
    assert ask(client, max_tokens=2).choices[0].text


def test_choices_share_a_grammar_and_follow_it(client):
    reply = ask(client, guided_json=PERSON, n=4)
    assert len(reply.choices) == 4
    for choice in reply.choices:
        person = json.loads(choice.text)
        assert set(person) == {"name", "age"} and len(person["name"]) <= 10 and 0 <= person["age"] <= 130


def test_an_anchored_pattern_is_followed(client):
    text = ask(client, guided_json={"type": "string", "pattern": "^[0-9]{3}-[a-z]{2}$"}).choices[0].text
    assert len(json.loads(text)) == 6 and json.loads(text)[:3].isdigit()


@pytest.mark.parametrize("fields", [
    {"guided_choice": ["yes", "no"]}, {"guided_regex": "(yes|no)"}, {"regex": "^(yes|no)$"}, {"grammar": 'root ::= "yes" | "no"'},
    {"ebnf": 'root ::= "yes" | "no"'}, {"structured_outputs": {"choice": ["yes", "no"]}}, {"structured_outputs": {"regex": "yes|no"}}])
def test_every_name_of_a_structure_is_obeyed(client, fields):
    assert ask(client, **fields).choices[0].text in ("yes", "no")


@pytest.mark.parametrize("fields", [
    {"json_schema": PERSON}, {"response_format": {"type": "json_object", "schema": PERSON}},
    {"response_format": {"type": "json_schema", "schema": PERSON}}])
def test_every_name_of_a_schema_is_obeyed(client, fields):
    assert set(json.loads(ask(client, **fields).choices[0].text)) == {"name", "age"}


def test_without_strict_what_is_not_held_is_named(client):
    schema = {"type": "object", "properties": {"tags": {"type": "array", "items": {"const": "a"}, "maxItems": 3, "uniqueItems": True}},
              "required": ["tags"]}
    asked = {"messages": [{"role": "user", "content": "Tags?"}], "model": MODEL, "max_tokens": 200, "seed": 1}
    form = {"type": "json_schema", "json_schema": {"name": "tags", "schema": schema}}
    reply = client.chat.completions.with_raw_response.create(**asked, response_format=form)
    assert reply.headers["x-pdjob-not-held"] == "schema.properties.tags: uniqueItems"
    assert set(json.loads(reply.parse().choices[0].message.content)["tags"]) <= {"a"}
    form["json_schema"]["strict"] = True
    with pytest.raises(openai.BadRequestError) as refusal:
        client.chat.completions.create(**asked, response_format=form)
    assert "uniqueItems" in refusal.value.body["message"]


def test_the_helper_has_nothing_and_its_death_costs_one_grammar(job, client):
    ask(client, guided_json=PERSON)
    (helper,) = helpers(job)
    files = {link.readlink().name.split(":")[0] for link in pathlib.Path(f"/proc/{helper}/fd").iterdir()}
    assert files == {"null", "socket", "memfd"} or files == {"null", "socket", "pdjob-vocabulary (deleted)"}, files
    assert len(list(pathlib.Path(f"/proc/{helper}/fd").iterdir())) == 5
    assert pathlib.Path(f"/proc/{helper}/environ").read_bytes().strip(b"\0") == b""
    for _ in range(2):
        subprocess.run(["kill", f"-{int(signal.SIGSEGV)}", str(helper)], check=True)
        eventually(lambda: helper not in helpers(job), what="the helper's end")
        fresh = {"enum": [f"after helper {helper}"]}  # No worker has compiled it before.
        assert json.loads(ask(client, guided_json=fresh).choices[0].text) == f"after helper {helper}"
        (helper,) = helpers(job)


def test_nothing_a_client_sent_is_in_the_logs(job, client):
    forged = "^a\n2026-01-01T00:00:00Z error forged (?=$"
    with pytest.raises(openai.BadRequestError):
        ask(client, guided_json={"type": "string", "pattern": forged})
    with pytest.raises(openai.BadRequestError):
        ask(client, guided_grammar='root ::= "forged" "' + "forged" * 9)
    ask(client, guided_json={"type": "object", "properties": {"forged": {"type": "null"}}, "description": forged})
    logs = "".join(path.read_text(errors="replace") for path in pathlib.Path(job.folder).glob("logs/**/*.log"))
    assert logs and "forged" not in logs
    assert get(job.url + "/health")
