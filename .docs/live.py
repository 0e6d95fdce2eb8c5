"""A report page and a site, made from committed stores, which the documentation links to."""

import lzma
import tempfile
from pathlib import Path

from typer.testing import CliRunner

from dlbench.suites import cli

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "reports" / "examples"
EXTRA = ROOT / ".docs" / "generated" / "extra"
PAGE = "2026-11-30-table4-of-eight-frameworks"
SITE = (
    "2026-11-26-one-h100",
    "2026-12-01-quick",
    "2026-11-29-inference-quick",
    "2026-11-30-gate-of-memory-and-start",
)


def write_live() -> None:
    """Write the page and the site, unless they are newer than their stores."""
    page, site = EXTRA / "live" / "report.html", EXTRA / "live" / "site"
    if not is_new(page, [PAGE]):
        command("page", PAGE, "--out", str(page), "--title", "Table 4 of the paper, today")
    if not is_new(site / "index.html", SITE):
        for name in SITE:
            command("site", name, "--out", str(site), "--title", "Example nights")


def is_new(target: Path, names: tuple[str, ...] | list[str]) -> bool:
    """Tell whether a file is newer than the stores that it is made from."""
    if not target.exists():
        return False
    written = target.stat().st_mtime
    return all((EXAMPLES / name / "store.sqlite.xz").stat().st_mtime <= written for name in names)


def command(name: str, example: str, *words: str) -> None:
    """Run `dlbench report NAME` on the store of an example."""
    (EXTRA / "live").mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store.sqlite"
        packed = EXAMPLES / example / "store.sqlite.xz"
        store.write_bytes(lzma.decompress(packed.read_bytes()))
        result = CliRunner().invoke(
            cli.build_app("report"), ["report", name, "--store", str(store), *words]
        )
        if result.exit_code != 0:
            raise RuntimeError(
                f"dlbench report {name} failed: {result.output}"
            ) from result.exception
