"""Configuration of the documentation: `sphinx-build -W --keep-going -c .docs . OUT`.

Sphinx, MyST-Parser and furo were chosen since all three have had releases within the last year,
they build without a network, and the result is plain HTML: it is searched in the reader's browser,
and loads and reports nothing. Of MkDocs there has been no release since 2024.

Pages lie in the rooms that they are about (`suites/docs/how-to/x.md`), and are published by part
(`how-to/x.html`).
"""

import importlib.metadata
import sys
from pathlib import Path

from sphinx.application import Sphinx

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
(HERE / "generated" / "extra").mkdir(parents=True, exist_ok=True)

project = "dlbench"
release = importlib.metadata.version("dlbench")
copyright = ""
root_doc = "index"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "rooms"]
source_suffix = {".md": "markdown"}
include_patterns = [".docs/**.md", "*/docs/**.md", "*.md", "*/*.md", "*/*/README.md"]
exclude_patterns = [".git", ".pytest_cache", ".venv", ".packages", "build", "dist"]

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
autodoc_member_order = "bysource"
napoleon_numpy_docstring = False

html_theme = "furo"
html_title = "dlbench"
html_show_copyright = False
html_show_sphinx = False
html_static_path = ["static"]
html_extra_path = ["generated/extra"]
html_css_files = ["dlbench.css"]


def setup(app: Sphinx) -> None:
    """Write the pages that are made from the code and from stores, before any is read."""
    import generate
    import live

    app.connect("builder-inited", lambda app: generate.write_pages(), priority=100)
    app.connect("builder-inited", lambda app: live.write_live(), priority=100)
