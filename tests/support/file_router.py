"""A minimal third-party router: vLLM's two-hop protocol, round robin. Its workers are in a file that it reads again for every request. It stands
for any router that a user brings along with a recipe."""

import http.server
import itertools
import json
import sys
import urllib.error
import urllib.request

PORT, FILE = int(sys.argv[1]), sys.argv[2]
TURN = itertools.count()
OFFER = {"do_remote_decode": True, "do_remote_prefill": False}


def workers(role):
    with open(FILE) as file:
        return [line.split()[1] for line in file if line.startswith(role)]


def post(address, path, body):
    request = urllib.request.Request(f"http://{address}{path}", json.dumps(body).encode(), {"Content-Type": "application/json"})
    return urllib.request.urlopen(request, timeout=60)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.answer(200, "application/json", b"{}")

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        turn = next(TURN)
        prefill, decode = workers("prefill"), workers("decode")
        try:
            with post(prefill[turn % len(prefill)], self.path, {**body, "max_tokens": 1, "stream": False, "kv_transfer_params": OFFER}) as reply:
                body["kv_transfer_params"] = json.load(reply)["kv_transfer_params"]
            with post(decode[turn % len(decode)], self.path, body) as reply:
                self.answer(200, reply.headers["Content-Type"], reply.read())
        except OSError as error:
            self.answer(502, "application/json", json.dumps({"error": {"message": str(error)}}).encode())

    def answer(self, status, kind, body):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


http.server.ThreadingHTTPServer(("127.0.0.1", PORT), Handler).serve_forever()
