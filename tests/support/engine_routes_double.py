"""The routes of engine_program_double.py besides those that generate text: which of them an engine has, and what they answer. As in the real
programs, an engine lacks a route that its model cannot serve, and then answers as FastAPI does.

The real ones: vllm/entrypoints of vllm 0.32.0 (anthropic/, pooling/, speech_to_text/, serve/lora/, openai/models/serving.py), and
python/sglang/srt/entrypoints/http_server.py of sgl-project/sglang.
"""

import email.parser
import email.policy
import json

JSON = "application/json"


class Answer(Exception):
    """An answer with a status of its own."""

    def __init__(self, status, body):
        super().__init__(status)
        self.status, self.body = status, body


def refused(status, message, kind="BadRequestError"):
    return Answer(status, {"error": {"message": message, "type": kind, "param": None, "code": status}})


def json_body(http, raw):
    if http.headers.get_content_type() != JSON:
        raise Answer(422, {"detail": "Unsupported Media Type: Only 'application/json' is allowed"})
    return json.loads(raw)


def form_body(http, raw):
    """Returns the fields of a form, files as bytes."""
    if http.headers.get_content_type() != "multipart/form-data":
        raise Answer(422, {"detail": "a form is needed"})
    head = f"Content-Type: {http.headers['Content-Type']}\r\n\r\n".encode()
    form = email.parser.BytesParser(policy=email.policy.HTTP).parsebytes(head + raw)
    fields = {}
    for part in form.iter_parts():
        content = part.get_payload(decode=True)
        fields[part.get_param("name", header="content-disposition")] = content if part.get_filename() else content.decode()
    return fields


class Routes:
    """What one engine has. `runner`: generate, pooling or transcription, by its model."""

    def __init__(self, make, model, runner, lora, loads):
        self.make, self.model, self.runner = make, model, runner
        self.adapters = dict(lora or {}) if lora is not None else None
        vllm = make == "vllm"
        self.generating = {"/v1/completions", "/v1/chat/completions", "/v1/responses"} if runner == "generate" else set()
        self.generating |= {"/generate"} if not vllm and self.generating else set()
        self.table = {"/tokenize": self.tokenize}
        if runner == "generate":
            self.table |= {"/v1/messages": self.messages, "/v1/messages/count_tokens": self.count_tokens}
        if runner == "transcription":
            self.table |= {"/v1/audio/transcriptions": self.transcribe}
            self.table |= {"/v1/audio/translations": self.transcribe} if vllm else {}
        if runner == "pooling":
            self.table |= {"/v1/rerank": self.rerank, "/v1/score": self.score}
            self.table |= {"/pooling": self.pool, "/rerank": self.rerank, "/score": self.score} if vllm else {}
        if lora is not None and (loads or not vllm):
            prefix = "/v1" if vllm else ""
            self.table |= {f"{prefix}/load_lora_adapter": self.load, f"{prefix}/unload_lora_adapter": self.unload}

    def openapi(self):
        paths = sorted(self.generating | set(self.table) | {"/health", "/v1/models"})
        return {"openapi": "3.1.0", "info": {"title": "FastAPI", "version": "0.1.0"}, "paths": {path: {"post": {}} for path in paths}}

    def models(self, created):
        cards = [{"id": self.model, "object": "model", "created": created, "owned_by": self.make, "root": self.model, "parent": None,
                  "max_model_len": 2048}]
        for name, path in (self.adapters or {}).items():
            cards.append({"id": name, "object": "model", "created": created, "owned_by": self.make, "root": path, "parent": self.model,
                          "max_model_len": None})
        return {"object": "list", "data": cards}

    def knows(self, name):
        """True if a request may name this model: vLLM knows adapters by their names, SGLang behind a colon."""
        if name == self.model:
            return True
        if self.make == "vllm":
            return name in (self.adapters or {})
        base, colon, adapter = name.partition(":")
        return bool(colon) and base == self.model and adapter in (self.adapters or {})

    def check_model(self, name):
        if not self.knows(name):
            raise refused(404, f"The model `{name}` does not exist.", "NotFoundError")

    def answer(self, http, raw):
        """Returns a status with a body, a text being a stream; None if the route generates text."""
        if http.path in self.generating:
            return None
        if http.path not in self.table:
            return 404, {"detail": "Not Found"}
        try:
            return self.table[http.path](http, raw)
        except Answer as answer:
            return answer.status, answer.body

    # --- the routes

    def messages(self, http, raw):
        body = json_body(http, raw)
        assert not {"kv_transfer_params", "bootstrap_host", "bootstrap_port", "bootstrap_room"} & set(body), "a client named a source of KV"
        self.check_model(body["model"])
        if not isinstance(body.get("max_tokens"), int) or body["max_tokens"] < 1:
            raise Answer(400, {"type": "error", "error": {"type": "invalid_request_error", "message": "max_tokens is required"}})
        text = " ".join(word[::-1] for word in body["messages"][-1]["content"].split()[:body["max_tokens"]])
        message = {"id": "msg_1", "type": "message", "role": "assistant", "model": body["model"], "stop_reason": "end_turn",
                   "content": [{"type": "text", "text": text}], "usage": {"input_tokens": 1, "output_tokens": 1}}
        if not body.get("stream"):
            return 200, message
        events = [("message_start", {"type": "message_start", "message": {**message, "content": []}}),
                  ("content_block_delta", {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}),
                  ("message_stop", {"type": "message_stop"})]
        return 200, "".join(f"event: {name}\ndata: {json.dumps(data)}\n\n" for name, data in events)

    def tokenize(self, http, raw):
        body = json_body(http, raw)
        self.check_model(body.get("model") or self.model)
        tokens = list((body["prompt"] if "prompt" in body else json.dumps(body["messages"])).encode())
        return 200, {"count": len(tokens), "max_model_len": 2048, "tokens": tokens, "token_strs": None}

    def count_tokens(self, http, raw):
        body = json_body(http, raw)
        self.check_model(body["model"])
        return 200, {"input_tokens": sum(len(message["content"].split()) for message in body["messages"])}

    def score(self, http, raw):
        body = json_body(http, raw)
        self.check_model(body.get("model") or self.model)
        texts = body["text_2"] if isinstance(body["text_2"], list) else [body["text_2"]]
        return 200, {"object": "list", "model": self.model, "data": [{"index": i, "object": "score", "score": likeness(body["text_1"], text)}
                                                                     for i, text in enumerate(texts)]}

    def rerank(self, http, raw):
        body = json_body(http, raw)
        self.check_model(body.get("model") or self.model)
        results = [{"index": i, "document": {"text": text}, "relevance_score": likeness(body["query"], text)}
                   for i, text in enumerate(body["documents"])]
        return 200, {"id": "score-1", "model": self.model, "results": sorted(results, key=lambda one: -one["relevance_score"])}

    def pool(self, http, raw):
        body = json_body(http, raw)
        self.check_model(body.get("model") or self.model)
        return 200, {"object": "list", "model": self.model, "data": [{"index": 0, "object": "pooling", "data": [float(len(body["input"]))]}]}

    def transcribe(self, http, raw):
        fields = form_body(http, raw)
        self.check_model(fields.get("model") or self.model)
        assert isinstance(fields["file"], bytes)
        return 200, {"text": f"{len(fields['file'])} bytes", "usage": {"type": "duration", "seconds": 1}}

    def load(self, http, raw):
        body = json_body(http, raw)
        name, path = body.get("lora_name"), body.get("lora_path")
        if not name or not path:
            raise refused(400, "Both 'lora_name' and 'lora_path' must be provided.", "InvalidUserInput")
        if name in self.adapters and not body.get("load_inplace"):
            raise refused(400, f"The lora adapter '{name}' has already been loaded.", "InvalidUserInput")
        if "missing" in path:
            raise refused(404, f"Loading lora {name} failed: No adapter found for {path}", "NotFoundError")
        self.adapters[name] = path
        return 200, f"Success: LoRA adapter '{name}' added successfully." if self.make == "vllm" else {"success": True}

    def unload(self, http, raw):
        name = json_body(http, raw)["lora_name"]
        if name not in self.adapters:
            raise refused(404, f"The lora adapter '{name}' cannot be found.", "NotFoundError")
        del self.adapters[name]
        return 200, f"Success: LoRA adapter '{name}' removed successfully." if self.make == "vllm" else {"success": True}


def likeness(one, other):
    words = set(one.split())
    return len(words & set(other.split())) / len(words)
