"""Sphinx's configuration: the pages of docs/, as `make docs` builds them into a site that needs no network."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))
import python_api  # noqa: E402 - from the folder above

_about = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

project = "Slipstream"
author = _about["authors"][0]["name"]
version = release = _about["version"]
language = "en"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "pages"]
exclude_patterns = ["site", "images"]

# Pages: GitHub's Markdown and anchors, so that they read the same there.
myst_heading_anchors = 6
highlight_language = "none"
suppress_warnings = ["misc.highlighting_failure"]  # JSON with `...` in it

# The client's docstrings: Google's sections, and Markdown's backticks for code.
default_role = "code"
autodoc_mock_imports = python_api.NOT_INSTALLED
autodoc_default_options = {"members": True}
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_class_signature = "mixed"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88

html_theme = "furo"
html_title = f"Slipstream {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_show_copyright = False
html_theme_options = {"light_css_variables": {"content-padding": "2.5em"}}

repository = f"{_about['urls']['Homepage']}/blob/main"
