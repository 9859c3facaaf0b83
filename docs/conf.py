"""The site: ``make docs``. Everything that needs more than a setting stands in `docs/_site`."""

import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "src")]

import trimreg  # noqa: E402

project = "trimreg"
author = "The trimreg developers"
copyright = "the trimreg developers, BSD-3-Clause"
version = release = trimreg.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "myst_parser",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
    "_site.api",
    "_site.formulas",
    "_site.links",
    "_site.publish",
]
exclude_patterns = ["_site", "_templates", "_build", "gallery/**/*.ipynb", "gallery/**/*.py"]
templates_path = ["_templates"]
nitpicky = False
keep_warnings = True

# -- API pages ----------------------------------------------------------------------------------------------

autosummary_generate = ["api/index.rst"]  # written when the build begins
autosummary_imported_members = False
autodoc_typehints = "none"  # the docstrings say it in words
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
numpydoc_xref_param_type = False

# -- pages --------------------------------------------------------------------------------------------------

myst_enable_extensions = ["colon_fence", "dollarmath", "deflist"]
myst_heading_anchors = 3
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

html_theme = "pydata_sphinx_theme"
html_math_renderer = "mathml"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_title = f"trimreg {version}"
html_show_sourcelink = False
html_copy_source = False
html_baseurl = os.environ.get("SITE_URL", "http://localhost:8000/").rstrip("/") + f"/{version}/"
html_theme_options = {
    "logo": {"text": "trimreg"},
    "navbar_align": "left",
    "header_links_before_dropdown": 6,
    "show_prev_next": False,
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_context = {"default_mode": "auto"}
html_sidebars = {"index": [], "how_it_works": [], "changelog": [], "paper": [], "benchmarks": []}

# -- gallery ------------------------------------------------------------------------------------------------

sphinx_gallery_conf = {
    "examples_dirs": [str(HERE.parent / "examples")],
    "gallery_dirs": ["gallery"],
    "filename_pattern": r"[/\\][a-z]",
    "ignore_pattern": r"__init__\.py|[/\\]_",
    "plot_gallery": os.environ.get("TRIMREG_GALLERY", "1") == "1",
    "abort_on_example_error": True,
    "remove_config_comments": True,
    "download_all_examples": False,
    "thumbnail_size": (260, 180),
    "show_memory": False,
    "min_reported_time": 1e9,
    "show_signature": False,
    "reset_modules": ("matplotlib",),
    "within_subsection_order": "FileNameSortKey",
    "write_computation_times": False,
}
