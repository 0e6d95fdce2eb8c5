"""The claims of the papers: their words from ``reports/data/claims.toml``, their tests from the modules here."""

import functools
import tomllib
from importlib import resources

from dlbench.reports.claims import brandfonbrener2017, gurari2021, shi2016, small_recurrent, wuensche2018
from dlbench.reports.claims.claim import Claim

PAPERS = {
    "shi2016": "Shi, Wang, Xu, Chu 2016",
    "brandfonbrener2017": "Brandfonbrener 2017",
    "gurari2021": "Gurari 2021",
    "wuensche2018": "Wuensche 2018",
    "slides": "Slides on simulating recurrent networks",
}
"""The papers by the names that --paper takes."""
_TESTS = {**shi2016.TESTS, **small_recurrent.TESTS, **gurari2021.TESTS, **wuensche2018.TESTS}
_ON_PAPER = {**shi2016.ON_PAPER, **brandfonbrener2017.ON_PAPER, **gurari2021.ON_PAPER, **wuensche2018.ON_PAPER}


@functools.cache
def claims() -> tuple[Claim, ...]:
    """Return all of them, in the order of the papers."""
    text = resources.files("dlbench.reports").joinpath("data/claims.toml").read_text(encoding="utf-8")
    listed = tomllib.loads(text)["claim"]
    return tuple(Claim(**each, test=_TESTS.get(each["id"]), on_paper=_ON_PAPER.get(each["id"])) for each in listed)
