"""For mkdocs: takes pages of the repository's root into the site, and makes the links to and from them fit."""

import fnmatch
import pathlib
import re

import yaml
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGES = ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md")


# Refused with a reason, whatever follows a star.
REFUSED = {"control": ("router/control/control_words.cc", r'\{"(/[^"]*)", k[A-Z]\w*[,}]')}
# Where the routes of each kind of process are in the code: the file, and a pattern with their paths.
ROUTES = {
    "router": [("router/http_api.cc", r'\{"(?:GET|POST)", "(/[^"]*)", Endpoint'), ("router/async/async_api.cc", r'\bpath == "(/v1/[^"]*)"'), ("router/batches/batch_relay.cc", r'[{ ]"(/v1/[^"]*)"')],
    "worker": [("worker/api/openai_api.cc", r'\{"(/[^"]*)", "(?:GET|POST)",')],
    "control": [("router/control/control_words.cc", r'\{"(?:GET|POST)", "(/[^"]*)", Words')],
    "launcher": [("launcher/admin_api.cc", r'request\.path == "(/[^"]*)"'), ("launcher/launcher_process.cc", r'(?:\{|pages\[)"(/[^"?]*)(?:\?[^"]*)?"')],
}
# Those of these routes with an id are in no table.
WITH_ID = {"router": {"/pdjob/requests/{id}", "/v1/files/{id}", "/v1/files/{id}/content", "/v1/batches/{id}", "/v1/batches/{id}/cancel"}, "worker": {"/pdjob/transfers/{id}", "/v1/models/{id}"}, "control": set(), "launcher": set()}


def on_pre_build(config):
    """The routes of openapi.yaml are those of the code."""
    paths = yaml.safe_load((ROOT / "docs/reference/openapi.yaml").read_text())["paths"]
    for tag, places in ROUTES.items():
        written = {path for path, operations in paths.items() for what in operations.values() if "tags" in what and tag in what["tags"]}
        coded = {path.replace("/ID", "/{id}") for file, pattern in places for path in re.findall(pattern, (ROOT / file).read_text())} | WITH_ID[tag]
        file, pattern = REFUSED.get(tag, (None, None))
        for refused in re.findall(pattern, (ROOT / file).read_text()) if file else ():
            coded |= set(fnmatch.filter(written, refused)) or {refused}
        if written != coded:
            raise PluginError(f"docs/reference/openapi.yaml: the {tag}'s routes differ from the code's: {sorted(written ^ coded)}")


def on_files(files, config):
    for name in PAGES:
        files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown, page, config, files):
    if page.file.src_uri in PAGES:
        return re.sub(r"\]\(docs/", "](", markdown)
    # In the site, these pages lie in docs/ itself: one folder less to climb.
    return re.sub(r"\]\(\.\./((?:\.\./)*(?:%s))" % "|".join(map(re.escape, PAGES)), r"](\1", markdown)
