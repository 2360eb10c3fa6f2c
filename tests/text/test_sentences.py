"""Cutting long texts: where, how whole, and at what price."""

import itertools
import unicodedata

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from edge_runtime.errors import CapacityError
from edge_runtime.text.boundaries import find_boundaries
from edge_runtime.text.characters import cluster_ends, is_spoken
from edge_runtime.text.sentences import chunk_text

FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
FLAG = "\U0001f1e9\U0001f1ea"


def at_most(length):
    return lambda piece: len(piece) <= length


def bare(text):
    return "".join(text.split())


def sentences(text):
    cuts = [0, *find_boundaries(text).sentences, len(text)]
    return [text[start:end].strip() for start, end in itertools.pairwise(cuts)]


class Counter:
    """A capacity in characters that counts what it is asked."""

    def __init__(self, length):
        self.length = length
        self.calls = 0
        self.characters = 0

    def __call__(self, piece):
        self.calls += 1
        self.characters += len(piece)
        return len(piece) <= self.length


@pytest.mark.parametrize(
    "parts",
    [
        ["Hello there.", "How are you?", "Fine!"],
        ["Dr. Smith met Mr. Jones at 7.30 p.m. on Monday.", "They ate 3.14 pies."],
        ["It rained, e.g. in May, i.e. early.", "Then it stopped."],
        ["No. 5 is alive.", "No.", "I mean it."],
        ["J. R. R. Tolkien wrote it.", "He did."],
        ["Open https://a.example/x?y=1.2 now.", "Then ping 192.168.0.1 twice."],
        ["He left at 5 a.m.", "She stayed."],
        ["See Fig. 3 and Sec. 4.", "Done."],
        ["Pens, paper etc. are there.", "Take some."],
        ["1. Wash it.", "2. Dry it.", "3. Fold it."],
        ['"What?" he said.', '"Go!"', "She left.", "(He stayed.)", "Then he ran."],
        ["Well... maybe not.", "Hmm...", "Yes."],
        ["Well… maybe not.", "Hmm…", "Yes."],
        ["Wait!!!", "What?!", "\U0001f600 Yes."],
        ["« Bonjour ! » dit-il.", "Il part."],
        ["Er kam.", "»Hallo« sagte er."],
        ["hello.", "how are you?", "fine."],
        ["مرحبا.", "كيف حالك؟", "بخير۔", "شکریہ۔"],
        ["नमस्ते।", "आप कैसे हैं?", "ठीक।"],
        ["The U.S. Army came.", "It left."],
        ["In 1990.", "Then more."],
        ["Buy: 1. Milk 2. Eggs 3. Bread.", "Done."],
    ],
)
def test_spaced_sentences_end_where_a_reader_ends_them(parts):
    assert sentences(" ".join(parts)) == parts


@pytest.mark.parametrize(
    "parts",
    [
        ["他说：“你好。”", "然后走了。", "真的？", "是！", "好；", "行。"],
        ["圆周率是3.14和３．１４。", "对。"],
        ["等等……我来了。", "好。"],
        ["Hello!", "你好!", "再见"],
        ["「行く。」", "と言った。"],
        ["ጤና ይስጥልኝ።", "ደህና።"],
    ],
)
def test_sentences_of_scripts_without_spaces_end_at_their_own_marks(parts):
    assert sentences("".join(parts)) == parts


def test_sentences_are_merged_while_they_fit():
    text = "One. Two. Three. Four. Five."
    assert chunk_text(text, at_most(10)) == ["One. Two.", "Three.", "Four.", "Five."]
    assert chunk_text(text, at_most(16)) == ["One. Two. Three.", "Four. Five."]
    assert chunk_text(text, at_most(28)) == [text]


def test_a_long_sentence_is_cut_at_clauses_then_words_then_characters():
    text = "When it rains, the long road home floods. Yes."
    assert chunk_text(text, at_most(30)) == ["When it rains,", "the long road home floods.", "Yes."]
    assert chunk_text(text, at_most(14)) == [
        "When it rains,",
        "the long road",
        "home floods.",
        "Yes.",
    ]
    assert chunk_text("abcdefgh", at_most(3)) == ["abc", "def", "gh"]


def test_numbers_times_and_addresses_are_not_cut_at_their_points():
    text = "Take 3.14 at 7.30 from 10.0.0.1 or 1,000 more"
    for length in range(8, 46):
        words = " ".join(chunk_text(text, at_most(length)))
        assert words == text


def test_a_latin_name_in_chinese_is_moved_whole_to_the_next_piece():
    assert chunk_text("我喜欢手机iPhone和", at_most(8)) == ["我喜欢手机", "iPhone和"]


def test_thai_is_cut_at_its_spaces_before_its_letters():
    assert chunk_text("สวัสดีครับ ผมชื่อเอ", at_most(12)) == ["สวัสดีครับ", "ผมชื่อเอ"]


@pytest.mark.parametrize(
    ("unit", "count"),
    [
        (FAMILY, 5),
        (FLAG, 7),
        ("e\u0301", 9),
        ("\U0001f44d\U0001f3fd", 6),
        ("क्षि", 5),
        ("1\ufe0f\u20e3", 5),
        ("\u1112\u1161\u11ab", 5),
        ("ที่", 6),
    ],
)
def test_no_user_perceived_character_is_torn(unit, count):
    text = unit * count
    for length in range(len(unit), len(text) + 1):
        pieces = chunk_text(text, at_most(length))
        assert "".join(pieces) == text
        assert all(len(piece) % len(unit) == 0 for piece in pieces)


def test_a_character_that_does_not_fit_alone_is_a_capacity_error():
    with pytest.raises(CapacityError, match="position 3"):
        chunk_text(f"ab {FAMILY}", at_most(3))
    with pytest.raises(CapacityError):
        chunk_text("a", at_most(0))


@pytest.mark.parametrize(
    "text", ["Hello there. ...", "... Hello there.", "Hi. ... – Hello there.", "Hello there !"]
)
def test_punctuation_sticks_to_its_neighbour(text):
    for length in range(12, 24):
        assert all(any(map(is_spoken, piece)) for piece in chunk_text(text, at_most(length)))


def test_text_without_characters_has_no_pieces():
    assert chunk_text("", at_most(5)) == []
    assert chunk_text("  ", at_most(5)) == []


PIECES = st.sampled_from(
    [
        *"abcXYZ019 .,!?;:-'\"()",
        " ",
        ". ",
        "... ",
        "…",
        "。",
        "，",
        "你",
        "好",
        "Dr. ",
        "e.g. ",
        "3.14",
        "\u0301",
        "\u200d",
        "\u200b",
        FAMILY,
        FLAG,
        "\U0001f1e9",
        "क्ष",
        "ที่",
        " — ",
        "”",
        "“",
        "؟",
        "।",
        "\u2028",
        "!!!!",
    ]
)


@settings(max_examples=300, deadline=None)
@given(st.lists(PIECES, max_size=60).map("".join), st.integers(1, 40))
@example("a" + "!" * 50 + " b", 5)
@example(". . . a . . .", 3)
def test_pieces_lose_nothing_say_nothing_twice_and_fit(text, length):
    clusters = [0, *cluster_ends(text, 0, len(text))]
    longest = max((len(text[a:b].strip()) for a, b in itertools.pairwise(clusters)), default=0)
    if longest > length:
        with pytest.raises(CapacityError):
            chunk_text(text, at_most(length))
        return
    pieces = chunk_text(text, at_most(length))
    assert bare("".join(pieces)) == bare(text)
    assert all(piece and piece == piece.strip() and len(piece) <= length for piece in pieces)


@settings(max_examples=200, deadline=None)
@given(st.lists(PIECES, min_size=1, max_size=40).map("".join), st.integers(1, 40))
def test_cuts_fall_on_unicode_cluster_boundaries(text, length):
    regex = pytest.importorskip("regex")
    try:
        pieces = chunk_text(text, at_most(length))
    except CapacityError:
        return
    boundaries = {0} | {found.end() for found in regex.finditer(r"\X", text)}
    at = 0
    for piece in pieces:
        at = text.index(piece, at)
        assert at in boundaries or text[at - 1].isspace()
        at += len(piece)


@settings(max_examples=100, deadline=None)
@given(st.lists(PIECES, max_size=60).map("".join), st.data())
def test_a_capacity_that_is_not_by_length_alone_is_still_kept(text, data):
    limit = data.draw(st.integers(12, 60))

    def fits(piece):
        return sum(3 if ord(c) > 127 else 1 for c in piece) <= limit

    try:
        pieces = chunk_text(text, fits)
    except CapacityError:
        return
    assert all(map(fits, pieces))
    assert bare("".join(pieces)) == bare(text)


@settings(max_examples=300, deadline=None)
@given(st.lists(PIECES, max_size=60).map("".join), st.integers(2, 40), st.sets(st.integers(2, 40)))
@example("Aa. Bb cc", 7, {3})
def test_pieces_fit_even_where_a_longer_one_would_and_a_shorter_one_would_not(
    text, most, not_these
):
    def fits(piece):
        return len(piece) <= most and len(piece) not in not_these

    try:
        pieces = chunk_text(text, fits)
    except CapacityError:
        return
    assert all(map(fits, pieces))
    assert bare("".join(pieces)) == bare(text)


@pytest.mark.parametrize(
    "text",
    [
        "The quick brown fox jumps over the lazy dog, again and again. " * 3000,
        "a" * 200_000,
        "天地玄黄宇宙洪荒" * 25_000,
        "word " * 40_000,
        "a" + "!" * 200_000,
        ("x" * 100 + " ") * 2000,
        FLAG * 50_000,
        "Hi. " * 50_000,
        "a, " * 60_000,
    ],
    ids=[
        "prose",
        "one word",
        "chinese",
        "no marks",
        "marks",
        "long words",
        "flags",
        "short",
        "commas",
    ],
)
@pytest.mark.parametrize("length", [300, 10**9])
def test_a_long_line_is_measured_a_few_times_over_not_once_per_piece(text, length):
    fits = Counter(length)
    pieces = chunk_text(text, fits)
    assert fits.calls <= 8 * len(pieces) + 40
    assert fits.characters <= 8 * len(text)
    assert bare("".join(pieces)) == bare(text)
    if length == 300:
        assert sum(map(len, pieces)) / len(pieces) > 150


def test_clusters_are_never_finer_than_unicode_ones():
    regex = pytest.importorskip("regex")
    samples = [
        "a",
        "\u0301",
        "\u200d",
        "\U0001f600",
        "\U0001f1e9",
        "가",
        "\u1100",
        "\u1161",
        "\u11a8",
        "क",
        "्",
    ]
    uniform = (
        range(0x3400, 0xA000),
        range(0xAC00, 0xD7A4),
        range(0x12000, 0x16A00),
        range(0x17000, 0x1B000),
    )
    for code in range(0x1FC00):
        if code % 61 and any(code in block for block in uniform):
            continue
        character = chr(code)
        if unicodedata.category(character) in ("Cs", "Cn", "Co"):
            continue
        for sample in samples:
            for text in (character + sample, sample + character):
                ends = {found.end() for found in regex.finditer(r"\X", text)}
                assert set(cluster_ends(text, 0, 2)) <= ends, ascii(text)
