"""`dlbench report page --pdf`: by a real Chromium where there is one, and what is said where there is none."""

import lzma
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hostile_texts import STORES

from dlbench.suites.errors import UsageError
from dlbench.suites.publishing import pdf


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.sqlite"
    path.write_bytes(lzma.decompress((STORES / "faults.sqlite.xz").read_bytes()))
    return path


def pretended(folder: Path, script: str) -> str:
    path = folder / "browser"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.skipif(not any(map(shutil.which, pdf.PROGRAMS)), reason="no Chromium is installed here")
def test_the_page_is_printed(tmp_path, command, small):
    code, _, said = command("report", "page", "--store", str(small), "--pdf", "page.pdf", "--title", "A page")
    assert code == 0, said
    assert "Printed: page.pdf" in said
    content = (tmp_path / "page.pdf").read_bytes()
    assert content.startswith(b"%PDF-")
    assert content.rstrip().endswith(b"%%EOF")
    assert len(re.findall(rb"/Type\s*/Page\b", content)) >= 1
    assert {each.name for each in tmp_path.iterdir()} >= {"page.pdf", "report.html"}
    assert not [each for each in tmp_path.iterdir() if each.is_dir()], "nothing is left beside it"


def test_without_a_browser_one_line_says_what_to_do_before_anything_is_written(tmp_path, command, small, monkeypatch):
    monkeypatch.setattr(pdf, "PROGRAMS", ("no-such-browser",))
    monkeypatch.delenv(pdf.NAMED_BY, raising=False)
    code, _, said = command("report", "page", "--store", str(small), "--pdf", "page.pdf")
    assert (code, len(said.splitlines())) == (2, 1)
    assert "none is installed (no-such-browser). Install one, name it in DLBENCH_CHROMIUM" in said
    monkeypatch.setenv(pdf.NAMED_BY, "/no/such/browser")
    assert "names /no/such/browser, which is no program here" in command("report", "page", "--pdf", "page.pdf")[2]
    monkeypatch.setenv(pdf.NAMED_BY, pretended(tmp_path, "true"))
    assert "end its name in .pdf" in command("report", "page", "--pdf", "page.txt")[2]
    assert "not a folder that you may write to" in command("report", "page", "--pdf", "none/page.pdf")[2]
    assert not (tmp_path / "report.html").exists()


def test_a_browser_that_prints_nothing_leaves_nothing(tmp_path):
    (tmp_path / "page.pdf").write_text("the last one")
    failing = pretended(tmp_path, "echo first >&2; echo 'cannot start \033[1m' >&2; exit 3")
    with pytest.raises(UsageError, match=r"printed no PDF: cannot start \\x1b\[1m\. Print"):
        pdf.print_to_pdf("<p>", tmp_path / "page.pdf", failing)
    half = pretended(tmp_path, 'for word; do case $word in --print-to-pdf=*) echo half > "${word#*=}";; esac; done')
    with pytest.raises(UsageError, match="ended with code 0"):
        pdf.print_to_pdf("<p>", tmp_path / "page.pdf", half)
    assert (tmp_path / "page.pdf").read_text() == "the last one"
    assert {each.name for each in tmp_path.iterdir()} == {"page.pdf", "browser"}


def test_on_paper_everything_is_open(tmp_path):
    script = """for word; do case $word in --print-to-pdf=*) printf '%%PDF-' > "${word#*=}";; esac; done"""
    browser = pretended(tmp_path, f'{script}; cp "${{word#file://}}" "{tmp_path}/seen.html"')
    text = "<details><summary>a</summary>b</details> <details id=x><p>c</details> &lt;details&gt; <detailsx>"
    pdf.print_to_pdf(text, tmp_path / "page.pdf", browser)
    seen = (tmp_path / "seen.html").read_text()
    assert seen.count("<details open") == 2
    assert seen.replace("<details open", "<details") == text


def test_a_browser_that_hangs_is_ended_with_its_children(tmp_path):
    hanging = pretended(tmp_path, f'sleep 300 & echo $! > "{tmp_path}/child"; wait')
    with pytest.raises(UsageError, match=r"did not print the page within 0\.5 s"):
        pdf.print_to_pdf("<p>", tmp_path / "page.pdf", hanging, seconds=0.5)
    child = int((tmp_path / "child").read_text())
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(child)], capture_output=True, text=True).stdout
    assert state.strip() in ("", "Z", "Zs")


def test_the_browser_gets_a_profile_of_its_own_and_no_sandbox_only_as_root(tmp_path, monkeypatch):
    seen = tmp_path / "seen"
    browser = pretended(
        tmp_path,
        f'printf "%s\\n" "$@" > "{seen}"; '
        'for word; do case $word in --print-to-pdf=*) printf %%PDF-1.4 > "${word#*=}";; esac; done',
    )
    for user, sandboxed in ((0, False), (1000, True)):
        monkeypatch.setattr(os, "geteuid", lambda user=user: user)
        pdf.print_to_pdf("<p>", tmp_path / "page.pdf", browser)
        words = seen.read_text().splitlines()
        assert ("--no-sandbox" not in words) is sandboxed
        assert {"--headless", "--no-pdf-header-footer", "--disable-background-networking"} <= set(words)
        (profile,) = [word.partition("=")[2] for word in words if word.startswith("--user-data-dir=")]
        assert not Path(profile).exists()
        assert words[-1].startswith("file:///")
