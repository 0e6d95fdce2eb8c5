"""Names of pages: by their part of the documentation, not by the room that they lie in."""

import os

from sphinx.application import Sphinx
from sphinx.project import Project

NOT_IN_NAMES = (".docs/generated/", ".docs/")


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
