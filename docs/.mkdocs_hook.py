"""For mkdocs: takes pages of the repository's root into the site, and makes the links to and from them fit."""

import pathlib
import re

from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGES = ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md")


def on_files(files, config):
    for name in PAGES:
        files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown, page, config, files):
    if page.file.src_uri in PAGES:
        return re.sub(r"\]\(docs/", "](", markdown)
    # In the site, these pages lie in docs/ itself: one folder less to climb.
    return re.sub(r"\]\(\.\./((?:\.\./)*(?:%s))" % "|".join(map(re.escape, PAGES)), r"](\1", markdown)
