"""Formulas as MathML, which browsers draw without a script and without a font from elsewhere."""

import re

from docutils import nodes
from docutils.utils.math import MathError, latex2mathml
from sphinx.util import logging

#: Commands of LaTeX that the converter does not know, and their like.
LIKE = {
    r"\\dots\b": r"\\ldots",
    r"\\(B|b)ig(?=[(/])": r"\\\1igl",
    r"\\(B|b)ig(?=\))": r"\\\1igr",
    r"\\textstyle\b": "",
}


def mathml(source: str, block: bool) -> str:
    """The MathML of a formula in LaTeX."""
    for pattern, like in LIKE.items():
        source = re.sub(pattern, like, source)
    source = source.strip()
    if block and ("&" in source or r"\\" in source) and r"\begin" not in source:
        source = rf"\begin{{aligned}}{source}\end{{aligned}}"
    return latex2mathml.tex2mathml(source, as_block=block)


def visit_inline(self, node):
    self.body.append(_converted(self, node, block=False))
    raise nodes.SkipNode


def visit_block(self, node):
    self.body.append(f'<div class="math-block">{_converted(self, node, block=True)}</div>\n')
    raise nodes.SkipNode


def _converted(self, node, block):
    try:
        return mathml(node.astext(), block)
    except (MathError, SyntaxError, AttributeError) as error:
        logging.getLogger(__name__).warning("formula %r: %s", node.astext(), error, location=node)
        return f"<code>{self.encode(node.astext())}</code>"


def setup(app):
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
