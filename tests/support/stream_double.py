"""How the doubles of engine_program_double.py write streams, as vLLM 0.32 and SGLang 0.5 do. A token is a byte of UTF-8. The next one follows from
all tokens before it, whether they came as a prompt or were made here; with a seed, also from the number of the draw. So a stream that goes on
elsewhere from its tokens has the same text, and one with a seed has not. A few characters have two bytes: the first of them makes no text.

Words in a request that an engine would act on: max_tokens, max_completion_tokens, min_tokens, ignore_eos, stop, seed, temperature, logprobs, tools,
tool_choice, stream_options, return_token_ids. With the variable DOUBLE_REASONS=N, the first N tokens of a chat are reasoning.
"""

import json
import os
import time
import zlib

REASONS = int(os.environ.get("DOUBLE_REASONS", "0"))
CALL_AFTER = 6  # Tokens of a chat with tools, before it calls one.
LEAD = 0xC3  # The first byte of "à" to "ý".


def ids_of(text):
    return list(text.encode())


def text_of(ids):
    """Raises AssertionError for a prompt that ends inside a character: its end could not be written."""
    try:
        return bytes(ids).decode()
    except UnicodeDecodeError:
        raise AssertionError("the prompt ends inside a character") from None


def next_token(context, seed, draw):
    words = bytes(context[-200:]) + len(context).to_bytes(4, "little") + (b"" if seed is None else f"{seed} {draw}".encode())
    chance = zlib.crc32(words)
    if context and context[-1] == LEAD:
        return 0xA0 + chance % 30
    if chance % 7 == 0:
        return LEAD
    return 0x20 if chance % 5 == 0 else 0x61 + chance % 26


class Text:
    """The text of tokens as they come, less what may be part of a stop string."""

    def __init__(self, stop):
        self.stop = [stop] if isinstance(stop, str) else stop or []
        self.bytes, self.sent, self.stopped = b"", 0, False

    def add(self, token, last):
        """Returns the new text."""
        self.bytes += bytes([token])
        text = self.bytes.decode(errors="ignore")
        found = [text.find(stop) for stop in self.stop if stop in text]
        if found:
            text, self.stopped = text[: min(found)], True
        keep = 0 if last or self.stopped or not self.stop else max(map(len, self.stop)) - 1
        new = text[self.sent : max(self.sent, len(text) - keep)]
        self.sent += len(new)
        return new


class StreamWriter:
    """Writes the events of one answer to a connection."""

    def __init__(self, http, body, prompt_ids, model, step_seconds, on_token):
        self.http, self.body, self.prompt, self.model = http, body, prompt_ids, model
        self.step_seconds, self.on_token = step_seconds, on_token
        self.chat = "messages" in body
        request_id = http.headers.get("X-Request-Id", "none")
        self.head = {"id": f"{'chatcmpl' if self.chat else 'cmpl'}-{request_id}",
                     "object": "chat.completion.chunk" if self.chat else "text_completion", "created": int(time.time()), "model": model}
        self.ids = body.get("return_token_ids", False)

    def write(self):
        http = self.http
        http.send_response(200)
        http.send_header("Content-Type", "text/event-stream; charset=utf-8")
        http.send_header("Transfer-Encoding", "chunked")
        http.end_headers()
        if self.chat:
            self.event({"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None},
                       **({"prompt_token_ids": self.prompt if self.ids else None}))
        made = self.tokens()
        if (self.body.get("stream_options") or {}).get("include_usage"):
            usage = {"prompt_tokens": len(self.prompt), "total_tokens": len(self.prompt) + made, "completion_tokens": made}
            self.send(json.dumps({**self.head, "choices": [], "usage": usage}, separators=(",", ":")))
        self.send("[DONE]")
        http.wfile.write(b"0\r\n\r\n")

    def tokens(self):
        body, context = self.body, list(self.prompt)
        limit = body.get("max_completion_tokens") or body.get("max_tokens") or (200 if self.chat else 16)
        seed = body.get("seed") if body.get("temperature") != 0 else None
        text, offset = Text(body.get("stop")), 0
        for made in range(1, limit + 1):
            if self.step_seconds:
                time.sleep(self.step_seconds)
            token = next_token(context, seed, made)
            context.append(token)
            self.on_token()
            ends = zlib.crc32(bytes(context[-9:])) % 211 == 0 and not body.get("ignore_eos") and made >= body.get("min_tokens", 0) and token != LEAD
            new = text.add(token, last=ends or made == limit)
            reason = "stop" if ends or text.stopped else "length" if made == limit else None
            logprobs = None
            if body.get("logprobs") not in (None, False) and not self.chat:
                name = bytes([token]).decode(errors="replace")
                logprobs = {"text_offset": [offset], "token_logprobs": [-0.5], "tokens": [name], "top_logprobs": [{name: -0.5}]}
                offset += len(name)
            self.token_event(token, new, reason, logprobs, made)
            if reason:
                return made
        return limit

    def token_event(self, token, text, reason, logprobs, made):
        choice = {"index": 0, **(self.delta(text, made) if self.chat else {"text": text}), "logprobs": logprobs, "finish_reason": reason}
        if reason or not self.chat:
            choice["stop_reason"] = None
        if not self.chat:
            choice["prompt_token_ids"] = self.prompt if self.ids and made == 1 else None
        choice["token_ids"] = [token] if self.ids else None
        self.event(choice)

    def delta(self, text, made):
        if made <= REASONS and self.body.get("separate_reasoning", True):
            return {"delta": {"reasoning_content": text}}
        if self.body.get("tools") and self.body.get("tool_choice") != "none" and made > CALL_AFTER:
            first = {"id": f"call-{os.urandom(4).hex()}", "type": "function"} if made == CALL_AFTER + 1 else {}
            named = {"name": "note"} if first else {}
            return {"delta": {"tool_calls": [{"index": 0, **first, "function": {**named, "arguments": text}}]}}
        return {"delta": {"content": text}}

    def event(self, choice, **more):
        self.send(json.dumps({**self.head, "choices": [choice], **more}, separators=(",", ":"), ensure_ascii=False))

    def send(self, text):
        payload = f"data: {text}\n\n".encode()
        self.http.wfile.write(f"{len(payload):x}\r\n".encode() + payload + b"\r\n")
