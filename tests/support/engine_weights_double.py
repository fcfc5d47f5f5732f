"""The calls of engine_program_double.py by which a trainer changes its weights. It is stricter than the real programs: weights are loaded only while
it is paused, runs no request and keeps no prompt, and no request may come while it is paused.

The "weights" are the word in model.safetensors. An engine adds it to each word that it generates. Before the first change there is none.

The real ones: vllm/entrypoints/rl/online/api_router.py and vllm/entrypoints/serve/dev/{cache,rpc}/api_router.py of vllm 0.32.0, and
python/sglang/srt/entrypoints/http_server.py of sgl-project/sglang.

Variables for tests: DOUBLE_LOAD_SECONDS (that a change takes), DOUBLE_LOAD_FILE (while it exists, a change fails after half of it is done).
"""

import json
import os
import pathlib
import time
import urllib.parse


class Weights:
    def __init__(self, double, make):
        self.double, self.word, self.paused = double, "", False
        self.table = {"/pause_generation": self.pause, "/continue_generation": self.resume, "/flush_cache": self.flush,
                      "/update_weights_from_disk": self.update} if make == "sglang" else {}
        if make == "vllm" and os.environ.get("VLLM_SERVER_DEV_MODE") == "1":
            self.table = {"/pause": self.pause, "/resume": self.resume, "/reset_prefix_cache": self.reset, "/collective_rpc": self.call}

    def answer(self, path, raw):
        """Returns a status and a body, or None for another route."""
        parts = urllib.parse.urlsplit(path)
        if parts.path not in self.table:
            return None
        return self.table[parts.path](dict(urllib.parse.parse_qsl(parts.query)), json.loads(raw) if raw else {})

    def pause(self, query, body):
        assert {**query, **body} == {"mode": "abort"}, (query, body)
        self.paused = True
        deadline = time.monotonic() + 20
        while self.double.in_flight and time.monotonic() < deadline:
            time.sleep(0.01)  # They are aborted, and end.
        assert not self.double.in_flight
        return 200, {"status": "paused"}

    def resume(self, query, body):
        assert not query and not body and self.paused, (query, body, self.paused)
        self.paused = False
        return 200, {"status": "resumed"}

    def drop(self):
        assert self.paused, "a request may come between the flush and the new weights"
        self.double.seen.clear()
        for cache in self.double.caches:
            cache.reset()

    def reset(self, query, body):
        assert query == {"reset_external": "true"} and not body, (query, body)
        self.drop()
        return 200, {"success": True}

    def flush(self, query, body):
        assert not query and not body, (query, body)
        self.drop()
        return 200, "Cache flushed.\n"

    def call(self, query, body):
        assert not query and body == {"method": "reload_weights", "kwargs": {"weights_path": body["kwargs"]["weights_path"]}}, body
        return (200, {"results": [None]}) if self.load(body["kwargs"]["weights_path"]) else (500, {"error": {"message": "EngineCore failed"}})

    def update(self, query, body):
        assert not query and set(body) == {"model_path", "weight_version", "flush_cache"} and body["flush_cache"] is True, body
        if self.load(body["model_path"]):
            return 200, {"success": True, "message": "Succeeded to update model weights.", "num_paused_requests": 0}
        return 400, {"success": False, "message": "Failed to update weights", "num_paused_requests": 0}

    def load(self, folder):
        assert self.paused and not self.double.in_flight, "weights change under a request"
        assert not self.double.seen, "prompts of the old weights are kept"
        self.word = "half"
        time.sleep(float(os.environ.get("DOUBLE_LOAD_SECONDS", "0.05")))
        if os.path.exists(os.environ.get("DOUBLE_LOAD_FILE", "/nowhere")):
            return False
        self.word = (pathlib.Path(folder) / "model.safetensors").read_text()
        return True
