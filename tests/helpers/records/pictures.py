"""What stands in a picture."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path


def texts(path: Path) -> list[str]:
    """Return every text of an SVG, in order."""
    return [
        "".join(element.itertext()).strip()
        for element in ElementTree.parse(path).iter()
        if element.tag.endswith("}text")
    ]
