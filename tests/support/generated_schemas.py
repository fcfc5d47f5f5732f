"""Makes schemas as Pydantic, Zod 4 and schemars write them, and checks what pdjob does with them:

- Without `strict`, each is accepted. With `strict`, each is accepted, or refused for a keyword that pdjob cannot follow.
- Every text that the grammar allows fits the schema, apart from the keywords that are named as not held.

    generated_schemas.py PROGRAM [--schemas 2000] [--seed 1]

PROGRAM is the target schema_texts."""

import argparse
import json
import math
import random
import re
import subprocess
import sys

ZOD_DATE = (r"^(?:(?:\d\d[2468][048]|\d\d[13579][26]|\d\d0[48]|[02468][048]00|[13579][26]00)-02-29|\d{4}-(?:(?:0[13578]|1[02])-"
            r"(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|(?:02)-(?:0[1-9]|1\d|2[0-8])))")
ZOD_STRINGS = [
    ("email", r"^(?:[A-Za-z0-9_'+\-]+\.)*[A-Za-z0-9_'+\-]*[A-Za-z0-9_+-]@(?:[A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$"),
    ("email", r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$"),
    ("uuid", r"^([0-9a-fA-F]{8}-[0-9a-fA-F]{4}-4[0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12})$"),
    ("date", ZOD_DATE + "$"),
    ("date-time", ZOD_DATE + r"T(?:(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d+)?(?:Z))$"),
    ("duration", r"^P(?:(\d+W)|(?!.*W)(?=\d|T\d)(\d+Y)?(\d+M)?(\d+D)?(T(?=\d)(\d+H)?(\d+M)?(\d+([.,]\d+)?S)?)?)$"),
    ("ipv4", r"^(?:(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9][0-9]|[0-9])\.){3}(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9][0-9]|[0-9])$"),
    ("base64", r"^$|^(?:[0-9a-zA-Z+/]{4})*(?:(?:[0-9a-zA-Z+/]{2}==)|(?:[0-9a-zA-Z+/]{3}=))?$"),
    ("hostname", r"^(?=.{1,253}\.?$)[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[-0-9a-zA-Z]{0,61}[0-9a-zA-Z])?)*\.?$"),
    ("e164", r"^\+[1-9]\d{6,14}$"),
    ("starts_with", "^ab.*"),
    ("includes", "x"),
    ("lowercase", "^[^A-Z]*$"),
]
PYDANTIC_DECIMALS = [
    r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$",
    r"^(?!^[-+.]*$)[+-]?0*(?:\d{0,8}|(?=[\d.]{1,11}0*$)\d{0,8}\.\d{0,2}0*$)",
    r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d{0,3}0*$",
]
RUST_FORMATS = ["uint", "uint8", "uint32", "uint64", "int", "int32", "int64"]


class Maker:
    """One random schema. Each library's habits are in its own methods."""

    def __init__(self, draw):
        self.draw = draw
        self.definitions = {}
        self.word = draw.choice(["$defs", "definitions"])

    def some(self, *options):
        return self.draw.choice(options)

    def name(self):
        return self.some("a", "id", "userName", "max_length", "x-y", "naïve", "is_ok", "$type") + str(self.draw.randrange(9))

    def zod(self, depth):
        kinds = [self.zod_string, self.zod_number, lambda: {"type": "boolean"}, lambda: {"type": ["string", "null"]},
                 lambda: {"type": "string", "enum": ["a", "b", "c"]}, lambda: {"enum": [1, "a", None]}, lambda: {},
                 lambda: {"type": "string", "const": "k"}]
        nested = [
            lambda: {"type": "array", "items": self.zod(depth - 1), **self.some({}, {"maxItems": 2}, {"minItems": 1})},
            lambda: {"type": "array", "prefixItems": [self.zod(depth - 1), {"type": "null"}], "items": False, "minItems": 2, "maxItems": 2},
            lambda: {"type": "array", "items": [self.zod(depth - 1)], "additionalItems": False, "minItems": 1, "maxItems": 1},
            lambda: {"type": "object", "propertyNames": {"type": "string"}, "additionalProperties": self.zod(depth - 1)},
            lambda: {"type": "object", "propertyNames": {"type": "string", "enum": ["a", "b"]}, "additionalProperties": self.zod(depth - 1),
                     "required": ["a", "b"]},
            lambda: {"oneOf": [self.closed({"kind": {"type": "string", "const": one}, "v": self.zod(depth - 1)}) for one in ("a", "b")]},
            lambda: {"anyOf": [self.zod(depth - 1), {"type": "null"}]},
            lambda: {"allOf": [self.closed({"a": self.zod(0)}, closed=False), self.closed({"b": {"type": "null"}}, closed=False)]},
            lambda: self.closed({self.name(): self.zod(depth - 1) for _ in range(self.draw.randrange(1, 4))})]
        return self.draw.choice(nested if depth > 0 else kinds)()

    def closed(self, properties, closed=True):
        return {"type": "object", "properties": properties, "required": list(properties), **({"additionalProperties": False} if closed else {})}

    def zod_string(self):
        form, pattern = self.draw.choice(ZOD_STRINGS)
        return self.some({"type": "string"}, {"type": "string", "minLength": 1, "maxLength": 5}, {"type": "string", "format": "uri"},
                         {"type": "string", "format": form, "pattern": pattern}, {"type": "string", "pattern": "^[a-z]+$", "maxLength": 9})

    def zod_number(self):
        return self.some({"type": "integer", "minimum": -9007199254740991, "maximum": 9007199254740991},
                         {"type": "integer", "exclusiveMinimum": 0, "maximum": 9007199254740991},
                         {"type": "number", "minimum": -3.4028234663852886e+38, "maximum": 3.4028234663852886e+38},
                         {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1e12}, {"type": "number", "multipleOf": 0.01},
                         {"type": "integer", "multipleOf": 5, "minimum": -9007199254740991, "maximum": 9007199254740991})

    def pydantic(self, depth):
        leaves = [
            lambda: {"type": "string", "title": "T"}, lambda: {"type": "string", "format": "uri", "minLength": 1, "maxLength": 2083},
            lambda: {"type": "string", "format": self.some("path", "binary", "uuid4", "ipv4network", "date-time", "duration", "email")},
            lambda: {"anyOf": [{"type": "number"}, {"type": "string", "pattern": self.draw.choice(PYDANTIC_DECIMALS)}]},
            lambda: {"type": "string", "pattern": "^[a-z]+$", "minLength": 2, "maxLength": 9},
            lambda: {"type": "integer", "minimum": 0, "maximum": 2**31 - 1}, lambda: {"type": "number", "exclusiveMinimum": 0.5, "maximum": 1e12},
            lambda: {"default": None, "anyOf": [{"type": "integer"}, {"type": "null"}], "title": "T"},
            lambda: {"enum": ["a", "b"], "type": "string"}, lambda: {"const": 1, "type": "integer"}]
        nested = [
            lambda: {"type": "array", "uniqueItems": True, "items": self.pydantic(depth - 1)},
            lambda: {"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 1},
            lambda: {"type": "object", "propertyNames": {"enum": ["x", "y"]}, "additionalProperties": self.pydantic(depth - 1)},
            lambda: {"type": "object", "patternProperties": {"^k_": self.pydantic(depth - 1)}},
            lambda: {"type": "array", "prefixItems": [self.pydantic(depth - 1), {"type": "boolean"}], "minItems": 2, "maxItems": 2},
            lambda: self.referred(self.model(depth - 1)), lambda: {**self.referred(self.model(depth - 1)), "description": "d"},
            lambda: {"allOf": [self.referred(self.model(depth - 1))], "default": {}}]
        return self.draw.choice(nested if depth > 0 else leaves)()

    def model(self, depth):
        properties = {self.name(): self.pydantic(depth) for _ in range(self.draw.randrange(1, 4))}
        return {"title": "M", "type": "object", "properties": properties, "required": list(properties)[:1]}

    def referred(self, schema):
        name = self.some("Item", "Page[int]", "a/b", "Node") + str(len(self.definitions))
        self.definitions[name] = schema
        escaped = name.replace("~", "~0").replace("/", "~1")
        return {"$ref": f"#/{self.word}/" + self.some(escaped, escaped.replace("[", "%5B").replace("]", "%5D"))}

    def schemars(self, depth):
        leaves = [
            lambda: {"type": "integer", "format": self.draw.choice(RUST_FORMATS), "minimum": self.some(0, 0.0)},
            lambda: {"type": "number", "format": "double"}, lambda: {"type": ["string", "null"]}, lambda: {"type": "string", "format": "uuid"},
            lambda: {"oneOf": [{"description": "d", "type": "string", "enum": ["A"]}, {"type": "string", "const": "B"}]}]
        nested = [
            lambda: {"type": "array", "items": self.schemars(depth - 1)}, lambda: self.referred(self.struct(depth - 1)),
            lambda: {"type": "object", "additionalProperties": self.schemars(depth - 1)},
            lambda: {"oneOf": [{"type": "string", "enum": ["Unit"]}, self.closed({"New": self.schemars(depth - 1)}),
                               self.closed({"Other": self.schemars(depth - 1)})]},
            lambda: {"anyOf": [self.referred(self.struct(depth - 1)), {"type": "null"}]}]
        return self.draw.choice(nested if depth > 0 else leaves)()

    def struct(self, depth):
        properties = {self.name(): self.schemars(depth) for _ in range(self.draw.randrange(1, 4))}
        return {"type": "object", "properties": properties, "required": list(properties), **self.some({}, {"additionalProperties": False})}

    def whole(self):
        depth = self.draw.randrange(3)
        style = self.some("zod", "pydantic", "schemars")
        schema = {"zod": self.zod, "pydantic": self.model, "schemars": self.struct}[style](depth)
        dialect = {"$schema": "https://json-schema.org/draft/2020-12/schema"} if style == "zod" else {}
        return {**dialect, **schema, **({self.word: self.definitions} if self.definitions else {})}


def fits(schema, value, root, ignored):
    """What JSON Schema says of these keywords, written by hand."""
    if isinstance(schema, bool):
        return schema
    if "$ref" in schema:
        at = root
        for step in schema["$ref"][2:].split("/"):
            at = at[step.replace("%5B", "[").replace("%5D", "]").replace("~1", "/").replace("~0", "~")]
        if not fits(at, value, root, ignored):
            return False
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    types = {"string": isinstance(value, str), "boolean": isinstance(value, bool), "null": value is None, "array": isinstance(value, list),
             "object": isinstance(value, dict), "number": number, "integer": number and value == int(value)}
    asked = schema.get("type", [])
    if asked and not any(types[each] for each in ([asked] if isinstance(asked, str) else asked)):
        return False
    same = [json.dumps(value, sort_keys=True) == json.dumps(each, sort_keys=True) for each in schema.get("enum", [])]
    if ("enum" in schema and not any(same)) or ("const" in schema and value != schema["const"]):
        return False
    for word, right in (("allOf", all), ("anyOf", any), ("oneOf", lambda hits: sum(hits) == 1)):
        if word in schema and word not in ignored and not right([fits(each, value, root, ignored) for each in schema[word]]):
            return False
    if types["string"] and not (schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", 1e9)
                                and ("pattern" in ignored or re.search(schema.get("pattern", ""), value))):
        return False
    if number and not (schema.get("minimum", value) <= value <= schema.get("maximum", value)
                       and schema.get("exclusiveMinimum", -math.inf) < value < schema.get("exclusiveMaximum", math.inf)):
        return False
    if types["array"]:
        first = schema["items"] if isinstance(schema.get("items"), list) else schema.get("prefixItems", [])
        rest = schema.get("additionalItems", True) if isinstance(schema.get("items"), list) else schema.get("items", True)
        if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", 1e9):
            return False
        return all(fits(first[i] if i < len(first) else rest, each, root, ignored) for i, each in enumerate(value))
    if types["object"]:
        if not set(schema.get("required", [])) <= set(value) or len(value) < schema.get("minProperties", 0):
            return False
        for name, each in value.items():
            if "propertyNames" in schema and not fits(schema["propertyNames"], name, root, ignored):
                return False
            of = [schema["properties"][name]] if name in schema.get("properties", {}) else []
            of += [one for pattern, one in schema.get("patternProperties", {}).items() if re.search(pattern, name)]
            if not all(fits(one, each, root, ignored) for one in of or [schema.get("additionalProperties", True)]):
                return False
    return True


def ask(program, strictness, schemas):
    lines = "".join(f"{strictness} {json.dumps(schema, ensure_ascii=False)}\n" for schema in schemas)
    out = subprocess.run([program], input=lines.encode(), stdout=subprocess.PIPE, check=True).stdout
    blocks = out.decode(errors="replace").split("\n\n")
    assert len(blocks) == len(schemas) + 1, f"{len(blocks) - 1} answers to {len(schemas)} schemas"
    return [block.split("\n") for block in blocks[:-1]]


MAY_REFUSE = ("uniqueItems is not supported", "multipleOf is not supported", "multipleOf of fractions", "oneOf must differ", "patternProperties is not supported")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--schemas", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    draw = random.Random(options.seed)
    schemas = [Maker(draw).whole() for _ in range(options.schemas)]
    wrong, texts, refused = [], 0, 0
    for strictness in ("open", "strict"):
        for schema, (head, *written) in zip(schemas, ask(options.program, strictness, schemas)):
            word, _, rest = head.partition(" ")
            if word == "refused":
                refused += 1
                if strictness == "open" or not any(each in rest for each in MAY_REFUSE):
                    wrong.append(f"{strictness} refused: {rest}: {json.dumps(schema)}")
                continue
            ignored = {part.rsplit(": ", 1)[-1] for part in rest.split("; ")}
            for text in written:
                texts += 1
                value = json.loads(text)
                if "inf" not in str(value) and not fits(schema, value, schema, ignored):
                    wrong.append(f"{strictness} does not fit: {text}: {json.dumps(schema)}")
    print(f"seed {options.seed}: {len(schemas)} schemas, {refused} refused because of strict, {texts} texts, {len(wrong)} wrong")
    print("\n".join(wrong[:12]))
    return 1 if wrong or texts < options.schemas else 0


sys.exit(main())
