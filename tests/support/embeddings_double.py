"""A double of an embeddings worker. Its /v1/embeddings counts the words of a text, each in the dimension given by the word's CRC. Texts with the
same words in another order have the same vector. Texts without a common word have vectors at right angles, except for collisions."""

import http.server
import json
import sys
import threading
import zlib

DIMENSIONS = 384


def vector(text):
    counts = [0] * DIMENSIONS
    for word in "".join(c if c.isalnum() else " " for c in text.lower()).split():
        counts[zlib.crc32(word.encode()) % DIMENSIONS] += 1
    return counts


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.server.closed:
            self.close_connection = True
            return
        texts = body["input"] if isinstance(body["input"], list) else [body["input"]]
        reply = {
            "object": "list",
            "model": body.get("model", "double"),
            "data": [{"object": "embedding", "index": i, "embedding": vector(text)} for i, text in enumerate(texts)],
        }
        text = json.dumps(reply).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


class EmbeddingsDouble:
    """Serves in its own thread until it is closed."""

    def __init__(self, port=0):
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self._server.closed = False
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self):
        self._server.closed = True  # Also ends connections that are open.
        self._server.shutdown()
        self._server.server_close()


if __name__ == "__main__":
    double = EmbeddingsDouble(int(sys.argv[1]))
    print(f"ready url={double.url}", flush=True)
    threading.Event().wait()
