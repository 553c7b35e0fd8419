"""The documentation site: Sphinx reads the Markdown pages of this folder. ``poe site`` builds it."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from virtualstack import __version__

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

ROOT = Path(__file__).parents[1]


def _digest_of_package() -> str:
    digest = hashlib.sha256()
    for path in sorted((ROOT / "virtualstack").rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


project = "virtualstack"
author = "The virtualstack developers"
project_copyright = author
version = release = __version__

extensions = [
    "myst_nb",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx_copybutton",
    "sphinx_design",
    # of docs/_ext
    "api",
    "changelog",
    "commands",
    "pages",
    "pictures",
]
exclude_patterns = ["_ext", "changes"]

# -- pages in Markdown, and notebooks

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
nb_execution_mode = "cache"
nb_execution_cache_path = str(ROOT / "site" / "cache" / _digest_of_package())  # other code, other output
nb_execution_in_temp = True  # each in an empty folder
nb_execution_raise_on_error = True
nb_execution_timeout = 120
nb_merge_streams = True
copybutton_exclude = ".linenos, .gp, .go"  # prompts and outputs of sessions

# -- pages of the API, from docstrings

smartquotes = False
default_role = "py:obj"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = False  # options that are declared once are not in the source of a signature
python_maximum_signature_line_length = 88
add_module_names = False
numpydoc_show_class_members = False

# -- how the pages look: nothing comes from another host

html_theme = "pydata_sphinx_theme"
html_title = "virtualstack"
html_sidebars = {"index": [], "tutorials/*": []}  # which have no pages below them
html_static_path = ["_static"]
templates_path = ["_templates"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "navbar_align": "left",
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc", "notebook"],
    "footer_start": ["copyright"],
    "footer_end": [],
}
