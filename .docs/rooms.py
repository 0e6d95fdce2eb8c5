"""Names of pages: by their part of the documentation, not by the room that they lie in."""

import os
import posixpath
import re

from sphinx.application import Sphinx
from sphinx.project import Project

NOT_IN_NAMES = (".docs/generated/", ".docs/")
_LINK = re.compile(r"(?<=\]\()([\w./-]+)\.md(?=[#)])")


class Rooms(Project):
    """A project in which `suites/docs/how-to/x.md` is the page `how-to/x`."""

    def path2doc(self, filename: str | os.PathLike[str]) -> str | None:
        """Return the name of a page."""
        name = super().path2doc(filename)
        if name is None:
            return None
        for folder in NOT_IN_NAMES:
            if name.startswith(folder):
                return name.removeprefix(folder)
        room, part, page = name.partition("/docs/")
        return page if part and "/" not in room else name


def use_rooms(app: Sphinx) -> None:
    """Let the build name its pages as `Rooms` does."""
    rooms = Rooms(app.srcdir, app.config.source_suffix)
    rooms.restore(app.project)
    app.project = app.env.project = rooms


def find_generated(app: Sphinx, page: str, content: list[str]) -> None:
    """Let links to pages that are made from the code, `../reference/axes.md`, lead to them."""
    folder = app.env.doc2path(page).parent

    def generated_link(link: re.Match[str]) -> str:
        name = posixpath.normpath(posixpath.join(posixpath.dirname(page), link[1]))
        if (folder / f"{link[1]}.md").exists() or name not in app.env.found_docs:
            return link[0]
        return f"/{app.env.doc2path(name, base=False)}"

    content[0] = _LINK.sub(generated_link, content[0])


def setup(app: Sphinx) -> dict[str, bool]:
    """Register what Sphinx calls."""
    app.connect("builder-inited", use_rooms)
    app.connect("source-read", find_generated)
    return {"parallel_read_safe": True}
