"""A publisher's note: Markdown, without HTML, pictures or links that run anything."""

from markdown_it import MarkdownIt
from markupsafe import Markup

from dlbench.reports.formats.inert import visible_lines


def note_to_html(text: str) -> Markup:
    """Return a note as HTML; HTML in it is shown as text, and an image as its link's words."""
    parser = MarkdownIt("commonmark", {"html": False}).enable("table").disable(["image", "html_block", "html_inline"])
    tokens = parser.parse(visible_lines(text))
    for token in tokens:
        token.attrs.pop("style", None)  # of aligned columns: the page's policy forbids it
    return Markup(parser.renderer.render(tokens, parser.options, {}))  # the parser escapes, and knows safe links only
