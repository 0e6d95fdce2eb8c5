"""`dlbench demo`: what a visitor sees without measuring, and where it refuses to write."""

import pytest
from processes import refusal


def test_the_demo_shows_a_matrix_a_verdict_advice_and_a_page(command, tmp_path):
    code, output, errors = command("demo")
    assert (code, errors) == (0, "")
    lines = output.splitlines()
    assert lines[0] == (
        "An example, measured on AMD EPYC, 2 CPUs on 2026-12-01, not on this machine."
    )
    words = " ".join(output.split())
    for part in (
        "tensorflow function *0.226±5%",
        "clearly the fastest: tensorflow function in 3, mxnet hybrid in 3",
        "lstm32, mini-batch 128, 2 threads: mxnet hybrid; then tensorflow function (1.18x",
        "torch eager: use 2 threads; a step takes 1.93x as long with 1",
        "Written: dlbench-demo.html",
    ):
        assert part in words, part
    assert "dlbench run quick " in lines[-2]
    assert "dlbench new step train_step.py " in lines[-1]
    page = (tmp_path / "dlbench-demo.html").read_text()
    assert "Example of dlbench, measured on AMD EPYC, 2 CPUs on 2026-12-01" in page
    # It measured nothing, and leaves nothing else behind.
    assert list(tmp_path.iterdir()) == [tmp_path / "dlbench-demo.html"]
    # A second one does not write over the first.
    assert refusal(command, "demo") == (
        "dlbench: dlbench-demo.html exists already. Name another file (--out FILE), or leave the "
        "page out (--no-page)."
    )


def test_without_a_page_nothing_is_written(command, tmp_path):
    (tmp_path / "dlbench-demo.html").write_text("mine")
    code, output, _ = command("demo", "--no-page")
    assert code == 0
    assert "Written" not in output
    assert (tmp_path / "dlbench-demo.html").read_text() == "mine"


@pytest.mark.parametrize(
    ("out", "reason"),
    [
        ("missing/demo.html", "there is no folder missing"),
        (".", "it is a folder"),
        ("x" * 300, "File name too long"),
    ],
)
def test_a_page_that_cannot_be_written_is_refused_before_anything_is_shown(command, out, reason):
    assert reason in refusal(command, "demo", "--out", out)
