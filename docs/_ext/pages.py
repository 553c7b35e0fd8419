"""What every page gets: navigation from lists of pages, no comments, notebooks to download, and nothing from elsewhere.

A page `index.md` of a folder lists pages, with a sentence about each, under headings. The same links in the same order
become a hidden ``toctree`` for each heading. So the lists are written once, and can be read as plain Markdown.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging

_ITEM = re.compile(r"^- (?:\S[^\[\n]*)?\[[^\]]+\]\((?P<page>[\w./-]+?)\.md\)", re.MULTILINE)


def _add_toctrees(app: Sphinx, docname: str, source: list[str]) -> None:
    if not docname.endswith("/index"):
        return
    for section in re.split(r"^## ", source[0], flags=re.MULTILINE):
        title, _, text = section.partition("\n")
        pages = [match["page"] for match in _ITEM.finditer(text)]
        if pages:
            caption = "" if title.startswith("# ") else f":caption: {title}\n"
            source[0] += "\n".join(["", ":::{toctree}", f":hidden:\n{caption}", *pages, ":::", ""])


def _remove_comments(app: Sphinx, document: nodes.document) -> None:
    """Remove comments of HTML, which set pages up for the tests."""
    for node in list(document.findall(nodes.raw)):
        if node.astext().startswith("<!--"):
            node.parent.remove(node)


def _notebook(app: Sphinx, page: str) -> Path:
    """Return the file that myst-nb writes when it has run the notebook of a page."""
    return Path(app.outdir).parent / "jupyter_execute" / f"{page}.ipynb"


def _offer_notebook(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document) -> None:
    if page.startswith("notebooks/") and _notebook(app, page).exists():
        target = Path(app.outdir, f"{page}.ipynb")
        target.parent.mkdir(exist_ok=True)
        shutil.copy(_notebook(app, page), target)
        context["notebook"] = target.name


_LOADED = re.compile(
    r"<(?:script|img|iframe|link)\b[^>]*?(?:src|href)=[\"']((?:https?:)?//[^\"']+)|url\([\"']?(https?://[^)]+)"
)


def _check_hosts(app: Sphinx, error: Exception | None) -> None:
    """Warn of what a page would load from another host: readers may have no network, and are told of no host."""
    for path in sorted(Path(app.outdir).rglob("*")) if error is None else ():
        for found in _LOADED.finditer(path.read_text()) if path.suffix in {".html", ".css"} else ():
            logging.getLogger(__name__).warning("%s loads '%s'", path.relative_to(app.outdir), found[1] or found[2])


def setup(app: Sphinx) -> dict[str, bool]:
    """Register all of them."""
    app.connect("source-read", _add_toctrees)
    app.connect("doctree-read", _remove_comments)
    app.connect("html-page-context", _offer_notebook)
    app.connect("build-finished", _check_hosts)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
