"""The door for text: what is cleaned, what is refused and how the refusal reads."""

import codecs
import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_runtime.errors import TextError
from edge_runtime.text.normalize import normalize_text, read_text_file, split_design


def official_whitespace(text):
    """The rule of voxcpm.core, which leaves the ends alone."""
    return re.sub(r"\s+", " ", text.replace("\n", " "))


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("Hello", "Hello"),
        ("  Hello \r\n\t world \n", "Hello world"),
        ("\ufeffHello", "Hello"),
        ("\ufeff \ufeff Hello", "Hello"),
        ("a\u00a0b\u3000c\u2028d\x85e\x1cf", "a b c d e f"),
        ("你好\n世界", "你好 世界"),
        ("e\u0301", "e\u0301"),
        ("نص\u200cها", "نص\u200cها"),
    ],
)
def test_whitespace_runs_become_one_space_and_the_ends_are_stripped(text, cleaned):
    assert normalize_text(text) == cleaned


@pytest.mark.parametrize(
    "text", ["7", "é", "你", "😀", "€", "+", "%", "½", "؟ا", "\U0001f1e9\U0001f1ea"]
)
def test_anything_with_a_letter_digit_or_symbol_is_accepted(text):
    assert normalize_text(text) == text


@pytest.mark.parametrize(
    "text", ["", " ", "\n\t\u3000", "\ufeff", "\u200b\u200d \u00ad", "\u3164", "\u2800"]
)
def test_empty_or_invisible_text_is_refused(text):
    with pytest.raises(TextError, match="empty"):
        normalize_text(text)


@pytest.mark.parametrize("text", ["...", "?!", "。", "— “”", "( )", "* * *", "\u0301."])
def test_punctuation_alone_is_refused_as_unpronounceable(text):
    with pytest.raises(TextError, match="nothing to pronounce"):
        normalize_text(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ab\ud800", r"surrogate U\+D800 at position 2"),
        ("\udfffab", r"surrogate U\+DFFF at position 0"),
        ("a\x00b", r"control character U\+0000 at position 1"),
        ("abc\x1b[0m", r"control character U\+001B at position 3"),
        ("a\x7f", r"U\+007F at position 1"),
        ("a\x9b", r"U\+009B at position 1"),
    ],
)
def test_surrogates_and_controls_are_refused_with_position_and_code_point(text, message):
    with pytest.raises(TextError, match=message):
        normalize_text(text)


@pytest.mark.parametrize("text", [None, 3, b"Hello", ["Hello"]])
def test_other_types_are_refused(text):
    with pytest.raises(TextError, match="must be a string"):
        normalize_text(text)


def test_the_length_limit_is_inclusive():
    assert normalize_text("a" * 10, max_chars=10) == "a" * 10
    with pytest.raises(TextError, match="11 characters; the limit is 10"):
        normalize_text("a" * 11, max_chars=10)


@given(st.text())
def test_cleaning_is_idempotent_and_keeps_what_the_official_rule_keeps(text):
    try:
        cleaned = normalize_text(text)
    except TextError:
        return
    assert normalize_text(cleaned) == cleaned
    assert cleaned == official_whitespace(text).lstrip(" \ufeff").rstrip()


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("Grüße".encode(), "Grüße"),
        ("Grüße".encode("utf-8-sig"), "Grüße"),
        (codecs.BOM_UTF16_LE + "Grüße 😀".encode("utf-16-le"), "Grüße 😀"),
        (codecs.BOM_UTF16_BE + "Grüße".encode("utf-16-be"), "Grüße"),
        (b"", ""),
        (b"a\r\nb", "a\r\nb"),
    ],
)
def test_text_files_are_read_by_their_byte_order_mark(tmp_path, data, text):
    file = tmp_path / "text.txt"
    file.write_bytes(data)
    assert read_text_file(file) == text
    assert read_text_file("-", stdin=io.BytesIO(data)) == text


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"abc\xff", "UTF-8 at byte 3"),
        (codecs.BOM_UTF8 + b"ab\xc3", "UTF-8 at byte 5"),
        ("Größe".encode("latin-1"), "UTF-8 at byte 2"),
        (codecs.BOM_UTF16_LE + b"a\x00b", "UTF-16-LE at byte 4"),
        (b"\xed\xa0\x80", "UTF-8 at byte 0"),
    ],
)
def test_a_bad_encoding_is_refused_with_the_byte_offset(tmp_path, data, message):
    file = tmp_path / "text.txt"
    file.write_bytes(data)
    with pytest.raises(TextError, match=message):
        read_text_file(file)


def test_missing_unreadable_and_oversized_files_are_text_errors(tmp_path):
    with pytest.raises(TextError, match=r"no text file .*absent\.txt"):
        read_text_file(tmp_path / "absent.txt")
    with pytest.raises(TextError, match="cannot be read"):
        read_text_file(tmp_path)
    with pytest.raises(TextError, match="cannot be read"):
        read_text_file("a\0b")
    file = tmp_path / "large.txt"
    file.write_bytes(b"a" * 9)
    with pytest.raises(TextError, match="limit of 8 bytes"):
        read_text_file(file, max_bytes=8)


def test_standard_input_is_used_for_a_dash(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("né".encode())))
    assert read_text_file("-") == "né"
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(TextError, match="closed"):
        read_text_file("-")


@pytest.mark.parametrize(
    ("text", "design"),
    [
        ("(a calm old man) Hello.", "(a calm old man) "),
        ("(calm)Hello.", "(calm)"),
        ("（温柔的声音）你好", "（温柔的声音）"),
        ("(温柔）你好", "(温柔）"),
        ("(old (very old) man) Hi (there)", "(old (very old) man) "),
        ("Hello (there) you", ""),
        ("(never closed Hello", ""),
        ("(a (b) Hello", ""),
        ("(1) First", ""),
        ("(a) First", ""),
        ("() Hello", ""),
        ("(only a design)", ""),
        ("(only a design).", ""),
        (") Hello", ""),
        ("", ""),
    ],
)
def test_a_design_is_what_the_first_balanced_parentheses_hold(text, design):
    assert split_design(text) == (design, text[len(design) :])


@given(st.text(alphabet="()（）ab .", max_size=30))
def test_design_and_words_joined_are_the_text(text):
    design, words = split_design(text)
    assert design + words == text
