"""The feed of a site: confirmed regressions as Atom (RFC 4287), dated by their runs."""

import uuid
from datetime import UTC, datetime
from xml.etree import ElementTree

from dlbench.reports.formats.inert import one_line
from dlbench.reports.site.contents import Contents, Notice, notices

MOST = 100
"""Entries, the newest."""
_AUTHOR = "dlbench"


def feed(contents: Contents, title: str, address: str = "") -> str:
    """Return the feed as an XML document; ``address``, with a slash at its end, goes before every link."""
    found = notices(contents)[:MOST]
    nights = contents.newest_first()
    # Never the moment of making it: without a new entry the file stays as it is.
    updated = found[0].when if found else nights[-1].started if nights else datetime.fromtimestamp(0, UTC)
    root = ElementTree.Element("feed", xmlns="http://www.w3.org/2005/Atom")
    _add(root, "id", uuid.uuid5(uuid.NAMESPACE_URL, address or f"dlbench\n{title}").urn)
    _add(root, "title", f"{title}: confirmed regressions")
    _add(root, "updated", updated.isoformat(timespec="seconds"))
    _add(ElementTree.SubElement(root, "author"), "name", _AUTHOR)
    ElementTree.SubElement(root, "link", href=f"{address}index.html")
    if address:
        ElementTree.SubElement(root, "link", rel="self", href=f"{address}feed.xml")
    for notice in found:
        root.append(_entry(notice, address))
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _entry(notice: Notice, address: str) -> ElementTree.Element:
    entry = ElementTree.Element("entry")
    _add(entry, "id", notice.id)
    _add(entry, "title", notice.title)
    _add(entry, "updated", notice.when.isoformat(timespec="seconds"))
    ElementTree.SubElement(entry, "link", href=address + notice.file)
    _add(entry, "content", notice.sentence).set("type", "text")
    return entry


def _add(parent: ElementTree.Element, name: str, text: str) -> ElementTree.Element:
    element = ElementTree.SubElement(parent, name)
    element.text = one_line(text)
    return element
