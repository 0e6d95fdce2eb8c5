"""A text of the user's own: what becomes of its bytes, and files that will not do."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import examples

from dlbench.suites.errors import UsageError
from dlbench.suites.run import texts


@examples(40)
@given(st.binary(min_size=1, max_size=3000))
def test_symbols_are_ranks_of_frequency_and_rare_bytes_share_the_last(content):
    symbols = texts.as_symbols(np.frombuffer(content, dtype=np.uint8))
    counts = Counter(content)
    ranked = sorted(counts, key=lambda byte: (-counts[byte], byte))
    assert list(symbols) == [min(ranked.index(byte), 95) for byte in content]


def test_a_text_is_read(tmp_path):
    path = tmp_path / "text.txt"
    path.write_bytes(b"the quick brown fox\n" * 6000)
    text = texts.read_corpus(path)
    assert (text.name, len(text.symbols), text.floor, text.note) == ("corpus", 120_000, None, "")
    other = tmp_path / "other.txt"
    other.write_bytes(b"the quick brown dog\n" * 6000)
    assert texts.read_corpus(other).digest != text.digest == texts.read_corpus(path).digest


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "has 0 bytes"),
        (b"short", "has 5 bytes"),
        (bytes(range(256)) * 1000, "binary"),
        ("text".encode("utf-16") * 50_000, "binary"),
        (None, "is not a file"),
    ],
    ids=["empty", "short", "binary", "utf-16", "folder"],
)
def test_what_is_no_text_is_refused_in_one_line(tmp_path, content, said):
    path = tmp_path / "given"
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=said) as caught:
        texts.read_corpus(path)
    assert "\n" not in str(caught.value)


def test_of_a_huge_file_the_first_part_is_read_and_that_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(texts, "MOST_BYTES", 150_000)
    path = tmp_path / "huge"
    path.write_bytes(b"all work and no play " * 10_000)
    text = texts.read_corpus(path)
    assert len(text.symbols) == 150_000
    assert text.note == "of 210000 bytes the first 150000 are read"


def test_a_file_of_launches_is_written_once_and_mended(tmp_path, monkeypatch):
    monkeypatch.setenv("DLBENCH_HOME", str(tmp_path))
    path = tmp_path / "text"
    path.write_bytes(b"all work and no play " * 10_000)
    text = texts.read_corpus(path)
    file = text.file()
    assert file.read_bytes() == text.symbols.tobytes()
    file.write_bytes(b"damaged")
    assert text.file().read_bytes() == text.symbols.tobytes()
    assert [each.name for each in file.parent.iterdir()] == [file.name]
