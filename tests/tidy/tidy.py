"""Checks the rules of the tree that a compiler does not: layers, doors, banned names, own header first.

    tidy.py ROOT          prints each violation and exits with 1, or prints only notes and exits with 0
    tidy.py --self-test   proves that each rule can fail
"""

import fnmatch
import pathlib
import re
import sys
import tempfile

# Folder -> the folders that it may include. The same table is in ARCHITECTURE.md.
FOLDERS = {
    "common": "",
    "gpu": "common",
    "net": "common",
    "openai": "common net",
    "engine": "common gpu",
    "kvtransfer": "common gpu net",
    "worker": "common net openai engine kvtransfer",
    "prefill": "common net openai engine kvtransfer worker",
    "decode": "common net openai engine kvtransfer worker",
    "store": "common net openai engine kvtransfer worker",
    "router": "common net openai",
    "batch": "common net openai",
    "launcher": "common gpu net openai engine kvtransfer worker prefill decode store router batch",
}

# Room -> the rooms of its own folder that it may include; "." is the folder's own level. The same table is in ARCHITECTURE.md.
ROOMS = {
    "common": "",
    "common/config": "files .",
    "common/crypto": "files .",
    "common/files": ".",
    "common/json": ".",
    "common/os": ".",
    "common/packing": ".",
    "common/sqlite": ".",
    "net/loop": "",
    "net/tls": "loop",
    "net/http": "loop tls",
    "net/zeromq": "loop",
    "net/control": "loop zeromq",
    "net/outbound": "loop http",
    "openai/json": "",
    "openai": "json",
    "openai/kserve": ". json",
    "openai/kv_events": "",
    "openai/replies": "json",
    "engine/schema": "",
    "engine/grammar": "schema",
    "engine/kernels": "",
    "engine/recipes": "",
    "engine/stores": "recipes",
    "engine/threads": "kernels",
    "engine": "schema grammar kernels recipes stores threads",
    "kvtransfer/config": "",
    "kvtransfer/rows": "",
    "kvtransfer/link": "config rows",
    "kvtransfer/cuda_ipc": "link",
    "kvtransfer/nccl": "config rows link",
    "kvtransfer/session": "config rows link",
    "kvtransfer/shm": "rows link",
    "kvtransfer/tcp": "rows link",
    "kvtransfer": "config rows link cuda_ipc nccl session shm tcp",
    "worker/blocks": "",
    "worker/core": "blocks",
    "worker/batching": "core",
    "worker/grammar": "",
    "worker/api": "core grammar",
    "worker/foreign": "",
    "worker": "core api foreign",
    "router/recipes": "",
    "router/config": "recipes",
    "router/admission": "config",
    "router/prefix_index": "",
    "router/policies": "config prefix_index",
    "router/core": "config admission policies",
    "router/streams": "",
    "router/relay": "config admission prefix_index core streams",
    "router/members": "config prefix_index core relay",
    "router/external": "recipes config members",
    "router/async": "config relay",
    "router/audit": "config relay async",
    "router/kserve": "core relay",
    "router/cache": "config policies relay",
    "router/batches": "config relay",
    "router/control": "config core",
    "router": "config core streams relay members external async audit kserve cache batches control",
    "batch/core": "",
    "batch/input": "",
    "batch/store": "core",
    "batch/config": "input store",
    "batch/report": "store",
    "batch/stages": "config",
    "batch/catalog": "store",
    "batch": "core input store config report stages",
    "batch/api": "input store config catalog .",
    "launcher/view": "",
    "launcher/placement": "",
    "launcher/plan": "view placement",
    "launcher/convert": "plan",
    "launcher/specs": "plan",
    "launcher/job": "placement plan",
    "launcher/report": "view placement plan job",
    "launcher/scaling": "placement plan job",
    "launcher/rollout": "placement plan job",
    "launcher/clusters": "placement plan job",
    "launcher/ray": "placement plan job clusters",
    "launcher/agents": "placement plan job clusters",
    "launcher/run": "placement plan specs job scaling rollout clusters agents",
    "launcher/dashboard": "",
    "launcher/metrics": "",
    "launcher": "view placement plan specs job report scaling rollout clusters agents run ray dashboard metrics",
    "launcher/look": "view plan specs clusters .",
    "launcher/doctor": "clusters",
    "launcher/pool": "view placement plan specs job clusters agents run look .",
    "launcher/simulator": "clusters",
    "launcher/played": "plan simulator .",
    "launcher/capacity": "view simulator",
    "launcher/compare": "view plan specs simulator played capacity",
    "launcher/tune": "view plan capacity compare look .",
    "launcher/cli": "view plan convert specs report clusters agents run metrics look doctor pool capacity compare tune .",
}

# Library -> (its headers, the only files that may include them).
DOORS = {
    "yaml-cpp": (r"yaml-cpp/", "common/config/config_document.cc"),
    "spdlog": (r"spdlog/", "common/log.cc"),
    "Prometheus client": (r"prometheus/", "common/metrics.cc"),
    "ZeroMQ": (r"zmq", "net/zeromq/curve_channel.cc net/zeromq/kv_subscription.cc net/zeromq/zeromq_socket.cc"),
    "simdjson": (r"simdjson", "openai/*.cc"),
    "nlohmann_json": (r"nlohmann/", "common/json/json_fields.cc openai/json/*.cc"),
    "libllama": (r"(llama|gguf|chat\.h)", "engine/*.cc"),
    "ggml": (r"ggml", "engine/*.cc"),
    "XGrammar": (r"(xgrammar/|dlpack/|picojson|support/logging)", "engine/grammar/* engine/schema/*"),
    "xxhash": (r"xxh", "engine/*.cc kvtransfer/rows/row_digest.cc router/prefix_index/prompt_blocks.cc batch/input/row_files.cc"),
    "libsodium": (r"sodium", "kvtransfer/link/link_keys.cc openai/openai_embedding.cc router/async/webhook_secret.cc common/crypto/sha256.cc common/crypto/blake2b.cc"),
    "SQLite": (r"sqlite3", "common/sqlite/database.cc tests/unit/router/async/async_database_test.cc"),
    "zlib": (r"zlib", "common/packing/unpacker.cc"),
    "zstd": (r"zstd", "common/packing/unpacker.cc"),
    "libcurl": (r"curl/", "net/outbound/outbound_client.cc"),
    "OpenSSL": (r"openssl/", "net/tls/tls_session.cc tests/unit/net/tls/tls_client.cc"),
    "CLI11": (r"CLI/", "launcher/cli/main.cc launcher/cli/*_arguments.cc launcher/compare/*_arguments.cc launcher/pool/*_arguments.cc launcher/tune/*_arguments.cc"),
}

# Name -> (pattern, where it is allowed). All other code gets time, randomness and threads as arguments.
BANNED = {
    "<thread>": (r"#include <thread>", "engine/*_engine.cc kvtransfer/kv_endpoint.cc kvtransfer/nccl/nccl_device.cc net/loop/thread_resolver.h net/loop/thread_helper.h worker/core/engine_thread.h worker/grammar/grammar_thread.h"),
    "<mutex>": (r"#include <(shared_)?mutex>", "common/os/channel.h engine/llama_engine.cc"),
    "a clock": (r"_clock::now\b", "common/os/real_clock.cc"),
    "rand": (r"\b(s?rand|random_device)\b *[({]", ""),
    "getenv": (r"\bgetenv\b", "common/files/small_file.cc launcher/plan/model_config.cc launcher/plan/gpu_shares.cc launcher/clusters/local_cluster.cc launcher/clusters/topology_here.cc net/loop/child_process.cc worker/foreign/engine_place.cc"),
    "zmq_": (r"\bzmq_", "net/zeromq/curve_channel.cc net/zeromq/kv_subscription.cc net/zeromq/zeromq_socket.cc"),
    "istreambuf_iterator": (r"istreambuf_iterator", ""),  # It throws; common/os/read_text.h does not.
    "throw": (r"\bthrow\b", "engine/kv_spans.cc engine/grammar/library_log.cc"),
}

# Pure state machines: time and randomness come in as arguments, effects go out as values.
CORES = "launcher/job/job launcher/job/groups launcher/job/supervision launcher/job/membership_log launcher/job/probing launcher/scaling/autoscaler launcher/scaling/group_sizes launcher/scaling/job_change launcher/scaling/failing_pairs launcher/scaling/stragglers launcher/rollout/rollout launcher/placement/placement launcher/placement/node_trust launcher/placement/gang launcher/ray/ray_session launcher/agents/agent_session launcher/agents/agent_roster launcher/pool/keeper router/external/external_router worker/foreign/engine_supervisor router/core/router router/members/static_members prefill/prefill_worker decode/decode_worker store/block_store kvtransfer/session/transfer_session kvtransfer/nccl/nccl_link batch/core/ledger batch/stages/stage_pool batch/api/batch_lifecycle"
NOT_IN_CORES = r'#include "(common/(log|os/\w+)\.h|net/loop/(event_)?loop\.h)"'

# Its step has a Turn, no members that hold only during one; its time comes by next_wakeup().
OWN_SHAPE = r"struct \w*TimePassed|struct Turn \{|Instant now_\b|\beffects_;|Instant (next_)?deadline\(\)"

FILE_LINES, FUNCTION_LINES = 600, 70
ROOM_MODULES = 15  # A folder with more gets rooms.
INCLUDE = re.compile(r'^ *#include ([<"])([^>"]+)[>"]', re.M)


def allowed(path, globs):
    return any(fnmatch.fnmatch(path, glob) for glob in globs.split())


def without_comments_and_texts(code):
    """Keeps line breaks and #include lines, so that positions and includes stay valid."""
    token = re.compile(r'^ *#include[^\n]*|//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"', re.S | re.M)
    keep = lambda m: m[0] if m[0].lstrip().startswith("#") else re.sub(r"[^\n]+", " ", m[0])
    return token.sub(keep, code)


def check_layers(path, includes):
    folder = path.split("/")[0]
    room = path.rsplit("/", 1)[0]
    for bracket, name in includes:
        other, other_room = name.split("/")[0], name.rsplit("/", 1)[0]
        if bracket == '"' and other in FOLDERS and other not in [folder, *FOLDERS[folder].split()]:
            yield f"{folder}/ may not include {other}/ ({name})"
        seen = [room, *(f"{folder}/{each}".removesuffix("/.") for each in ROOMS.get(room, "").split())]
        if bracket == '"' and other == folder and other_room not in seen:
            yield f"{room}/ may not include {other_room}/ ({name})"
        if bracket == '"' and other not in FOLDERS:
            yield f'"{name}" is not named from the root of the tree'


def check_doors(path, includes):
    for bracket, name in includes:
        for library, (pattern, files) in DOORS.items():
            if bracket == "<" and re.match(pattern, name) and not allowed(path, files):
                yield f"{library} has one door, {files}: <{name}> may not be included here"


def check_names(path, code):
    for name, (pattern, files) in BANNED.items():
        if re.search(pattern, code) and not allowed(path, files):
            yield f"{name} is only for {files or 'nobody'}"
    if path.rsplit(".", 1)[0] in CORES.split():
        if found := re.search(NOT_IN_CORES, code):
            yield f"a core is pure: no {found[1]}"
        if found := re.search(OWN_SHAPE, code):
            yield f"common/core.h gives the shape of a core: no {found[0]}"


def check_order(root, path, includes):
    own = path.removesuffix(".cc") + ".h"
    if path.endswith(".cc") and (root / own).exists() and (not includes or includes[0][1] != own):
        yield f"{own} must be included first"


def check_built(root, path):
    """A file that no target names is never compiled."""
    folder = root / path.rsplit("/", 1)[0]
    lists = [folder / "CMakeLists.txt", *folder.glob("*.cmake"), *(parent / "CMakeLists.txt" for parent in folder.parents)]
    if path.startswith("tests/support/"):
        lists = (root / "tests").rglob("CMakeLists.txt")
    named = {word.rsplit("/", 1)[-1] for file in lists if file.exists() for word in re.split(r"[\s()]+", file.read_text())}
    if path.endswith(".cc") and path.rsplit("/", 1)[-1] not in named:
        yield "no CMake target names it"


def check_mirror(root, path):
    """A unit test stands where its module stands."""
    if (test := re.match(r"tests/unit/(.*/)(\w+)_test\.cc$", path)) and not (root / test[1] / (test[2] + ".h")).exists():
        for module in sorted((root / test[1].split("/")[0]).rglob(test[2] + ".h")):
            yield f"belongs into tests/unit/{module.parent.relative_to(root)}/"


def check_file(root, path):
    text = (root / path).read_text()
    code = without_comments_and_texts(text)
    includes = INCLUDE.findall(code)
    if path.endswith(".h") and not re.search(r"^#pragma once$", text, re.M):
        yield "#pragma once is missing"
    if re.search(r"\bTODO\b(?!\(#\d+\):)", text):
        yield "a TODO names its issue: TODO(#12): ..."
    yield from check_built(root, path)
    yield from check_mirror(root, path)
    if path.split("/")[0] in FOLDERS:
        yield from check_layers(path, includes)
        yield from check_doors(path, includes)
        yield from check_names(path, code)
        yield from check_order(root, path, includes)


def check_architecture(root):
    """The folder table that people read must be the one that is enforced."""
    page = root / "ARCHITECTURE.md"
    rows = re.findall(r"^\| `(\w+)/` \|[^|]*\|([^|]*)\|([^|]*)\|$", page.read_text(), re.M) if page.exists() else []
    written = {folder: (includes.strip(), doors.strip()) for folder, includes, doors in rows if folder != "tests"}
    if page.exists() and list(written) != list(FOLDERS):
        yield f"ARCHITECTURE.md: the folder table names {', '.join(written)}; tidy.py {', '.join(FOLDERS)}"
    for folder, (includes, doors) in written.items():
        wanted = {"common": "nothing", "launcher": "all above"}.get(folder, FOLDERS.get(folder))
        libraries = [name for name, (_, files) in DOORS.items() if any(f.startswith(folder + "/") for f in files.split())]
        if includes != wanted:
            yield f"ARCHITECTURE.md: {folder}/ may include: {includes}; tidy.py has: {wanted}"
        if sorted(doors.split(", ")) != sorted(libraries or ["-"]):
            yield f"ARCHITECTURE.md: the doors of {folder}/ are {doors}; tidy.py has: {', '.join(libraries)}"


def check_rooms(root):
    """The rooms that people read must be those that are enforced, and none may be too full."""
    page = root / "ARCHITECTURE.md"
    rows = re.findall(r"^\| `(\w+(?:/\w+)?)` \|[^|]+\|([^|]*)\|$", page.read_text(), re.M) if page.exists() else []
    written = {room: sees.strip().replace("-", "") for room, sees in rows}
    for room, sees in ROOMS.items():
        if page.exists() and written.get(room) != sees:
            yield f"ARCHITECTURE.md: the room {room} sees: {written.get(room)}; tidy.py has: {sees}"
    for folder in {file.parent for top in FOLDERS for file in (root / top).rglob("*.h")}:
        name = str(folder.relative_to(root))
        if (count := len(list(folder.glob("*.h")))) > ROOM_MODULES:
            yield f"{name}: {count} modules: give it rooms"
        if "/" in name and name not in ROOMS:
            yield f"{name}: tidy.py has no such room"


def notes(root, path):
    """Reports places that are not wrong, but worth a second look."""
    lines = (root / path).read_text().split("\n")
    if len(lines) > FILE_LINES:
        yield f"{len(lines)} lines: look again"
    for indent in ("", "  "):
        start = None
        for number, line in enumerate(lines):
            if re.match(rf"{indent}\S.*\{{$", line) and not re.match(r" *(namespace|class|struct|enum|extern|union)\b", line):
                start = number if start is None else start
            elif line.startswith(indent + "}") and start is not None:
                if number - start + 1 > FUNCTION_LINES:
                    yield f"line {start + 1}: a function of {number - start + 1} lines: look again"
                start = None


def sources(root):
    for folder in [*FOLDERS, "tests"]:
        for file in sorted((root / folder).rglob("*")):
            if file.suffix in (".h", ".cc"):
                yield str(file.relative_to(root))


def check_tree(root):
    problems = [f"{path}: {problem}" for path in sources(root) for problem in check_file(root, path)]
    return problems + list(check_architecture(root)) + list(check_rooms(root))


# The message of each rule for a small tree that breaks it.
BROKEN = {
    "net/a.h": ("int x;", "#pragma once is missing"),
    "net/layer.cc": ('#include "router/r.h"', "net/ may not include router/"),
    "net/loop/room.cc": ('#include "net/http/h.h"', "net/loop/ may not include net/http/"),
    "router/role.cc": ('#include "decode/d.h"', "router/ may not include decode/"),
    "net/relative.cc": ('#include "a.h"', "is not named from the root"),
    "net/door.cc": ("#include <yaml-cpp/yaml.h>", "yaml-cpp has one door"),
    "engine/k.h": ("#pragma once\n#include <llama.h>", "libllama has one door"),
    "net/clock.cc": ("auto t = std::chrono::steady_clock::now();", "a clock is only for"),
    "net/lock.cc": ("#include <mutex>", "<mutex> is only for"),
    "net/env.cc": ('getenv("HOME");', "getenv is only for"),
    "net/dice.cc": ("int x = rand();", "rand is only for nobody"),
    "net/throws.cc": ("throw 1;", "throw is only for"),
    "router/core/router.cc": ('#include "common/log.h"', "a core is pure"),
    "net/b.cc": ('#include <string>\n#include "net/b.h"', "net/b.h must be included first"),
    "net/todo.cc": ("// TODO: later", "a TODO names its issue"),
    "net/orphan.cc": ("", "no CMake target names it"),
    "tests/unit/net/orphan_test.cc": ("", "no CMake target names it"),
}
GOOD = {
    "net/b.h": "#pragma once",
    "net/room/new.h": "#pragma once",
    "net/good.cc": '// throw, rand() and TODO(#1): fine here.\n#include "common/log.h"\nauto s = "getenv";',
}


def self_test():
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for path, text in {**{path: text for path, (text, _) in BROKEN.items()}, **GOOD}.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text + "\n")
        for listed in {(root / path).parent for path in [*BROKEN, *GOOD]}:
            names = [file.name for file in listed.iterdir() if "orphan" not in file.name]
            (listed / "CMakeLists.txt").write_text(f"add_library(x {' '.join(names)})")
        (root / "ARCHITECTURE.md").write_text("| `common/` | words | net | yaml-cpp |\n")
        problems = check_tree(root)
        expected = [f"{path}: {problem}" for path, (_, problem) in BROKEN.items()]
        expected += ["the folder table names", "common/ may include: net", "the doors of common/ are yaml-cpp",
                     "net/room: tidy.py has no such room", "the room net/loop sees: None"]
        missed = [text for text in expected if not any(text.split(": ", 1)[-1] in p and text.split(": ")[0] in p for p in problems)]
        surplus = [p for p in problems if p.split(": ")[0] in GOOD]
        (root / "net/long.cc").write_text("void f() {\n" + "  g();\n" * 700 + "}\n")
        if len(list(notes(root, "net/long.cc"))) != 2:
            missed.append("long file and function")
        print("\n".join([f"not found: {text}" for text in missed] + [f"wrongly found: {text}" for text in surplus]))
        return 1 if missed or surplus else 0


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    root = pathlib.Path(sys.argv[1])
    for path in sources(root):
        for note in notes(root, path):
            print(f"note: {path}: {note}")
    problems = check_tree(root)
    print("\n".join(problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
