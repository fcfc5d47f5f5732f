#!/usr/bin/env python3
"""Doubles of the programs `mooncake_master`, `mooncake_client` and `lmcache server`: by the name under which this file is called. They keep
nothing. They take the options that the real ones take (mooncake 0.3.13, lmcache 0.5.6), refuse all others, and listen where the real ones do. A
client of Mooncake ends unless its master answers, and so does the engine double without its store.

STORE_DOUBLE_FOLDER: each start adds a line to the file `starts` in it: name, pid, options.
"""

import argparse
import http.server
import json
import os
import pathlib
import socket
import sys
import threading


class Health(http.server.BaseHTTPRequestHandler):
    path_of_health = "/health"

    def do_GET(self):
        self.send_response(200 if self.path == self.path_of_health else 404)
        self.end_headers()

    def log_message(self, *_):
        pass


def listen(host, port):
    """A port whose protocol nobody speaks here."""
    server = socket.create_server((host, port))

    def accept():
        while True:
            server.accept()[0].close()

    threading.Thread(target=accept, daemon=True).start()


def check_address(text):
    host, port = text.rsplit(":", 1)
    socket.create_connection((host, int(port)), timeout=2).close()


def options_of(parser, argv):
    options = parser.parse_args(argv)
    name = pathlib.Path(sys.argv[0]).name
    with open(pathlib.Path(os.environ["STORE_DOUBLE_FOLDER"]) / "starts", "a", encoding="utf-8") as starts:
        starts.write(json.dumps([name, os.getpid(), vars(options)]) + "\n")
    return options


def flag(text):
    return {"true": True, "false": False}[text]


def mooncake_master(parser):
    for name in ("rpc_address", "metrics_host"):
        parser.add_argument("--" + name, required=True)
    for name in ("rpc_port", "rpc_thread_num", "default_kv_lease_ttl", "metrics_port"):
        parser.add_argument("--" + name, type=int, required=True)
    for name in ("eviction_high_watermark_ratio", "eviction_ratio"):
        parser.add_argument("--" + name, type=float)
    parser.add_argument("--logtostderr", action="store_true")
    options = options_of(parser, sys.argv[1:])
    listen(options.rpc_address, options.rpc_port)
    return options.metrics_host, options.metrics_port


def mooncake_client(parser):
    for name in ("host", "master_server_address", "metadata_server"):
        parser.add_argument("--" + name, required=True)
    parser.add_argument("--protocol", choices=["tcp", "rdma"])
    for name in ("port", "global_segment_size", "http_port"):
        parser.add_argument("--" + name, type=int, required=True)
    parser.add_argument("--enable_http_server", type=flag)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--logtostderr", action="store_true")
    options = options_of(parser, sys.argv[1:])
    assert options.metadata_server == "P2PHANDSHAKE" and options.enable_http_server
    check_address(options.master_server_address)
    listen(options.host, options.port)
    return "0.0.0.0", options.http_port


def lmcache(parser):
    assert sys.argv[1] == "server"
    for name in ("host", "http-host"):
        parser.add_argument("--" + name, required=True)
    for name in ("port", "http-port", "chunk-size"):
        parser.add_argument("--" + name, type=int)
    parser.add_argument("--l1-size-gb", type=float, required=True)
    parser.add_argument("--eviction-policy", choices=["LRU"], required=True)
    parser.add_argument("--supported-transfer-mode", choices=["lmcache_driven", "engine_driven", "auto"])
    options = options_of(parser, sys.argv[2:])
    Health.path_of_health = "/healthcheck"
    listen(options.host, options.port)
    return options.http_host, options.http_port


def main():
    program = {"mooncake_master": mooncake_master, "mooncake_client": mooncake_client, "lmcache": lmcache}[pathlib.Path(sys.argv[0]).name]
    host, port = program(argparse.ArgumentParser(allow_abbrev=False))
    http.server.ThreadingHTTPServer((host, port), Health).serve_forever()


if __name__ == "__main__":
    main()
