"""Text in bits becomes sentences."""

from __future__ import annotations

import asyncio

import pytest

from boardvoice.server.refusal import Refusal
from boardvoice.wyoming import sentence_feed
from boardvoice.wyoming.sentence_feed import SentenceFeed
from edge_runtime.text.boundaries import find_boundaries


def pieces(*bits: str, most: int = 10_000) -> list[list[str]]:
    """What can be taken after each bit, and after the end."""

    async def run() -> list[list[str]]:
        feed = SentenceFeed(most)
        taken = []
        for bit in (*bits, None):
            if bit is None:
                feed.end()
            else:
                feed.add(bit)
            now = []
            while True:
                taking = asyncio.ensure_future(feed.take())
                for _ in range(3):
                    await asyncio.sleep(0)
                if not taking.done() or taking.result() is None:
                    taking.cancel()
                    break
                now.append(taking.result())
            taken.append(now)
        return taken

    return asyncio.run(run())


def test_a_sentence_is_whole_when_the_next_begins():
    assert pieces("Hello", " there.", " How", " are you?") == [
        [], [], ["Hello there."], [], ["How are you?"],
    ]  # fmt: skip


def test_what_only_looks_like_an_end_is_none():
    assert pieces("It costs 3.", "50 at Mr. Li's. ", "Yes") == [
        [], [], ["It costs 3.50 at Mr. Li's."], ["Yes"],
    ]  # fmt: skip


def test_a_paragraph_ends_a_sentence():
    assert pieces("A list:\n\n", "- Milk") == [["A list:"], [], ["- Milk"]]


def test_other_scripts_need_no_space():
    assert pieces("你好。", "我很好") == [[], ["你好。"], ["我很好"]]


def test_a_voice_design_leads_every_piece():
    assert pieces("(a calm man) Hello. Yes. ", "No") == [
        ["(a calm man) Hello."], ["(a calm man) Yes."], ["(a calm man) No"],
    ]  # fmt: skip


def test_too_much_is_refused():
    with pytest.raises(Refusal):
        pieces("a" * 60, "a" * 60, most=100)


def test_single_characters_without_an_end_are_not_searched_again_and_again(monkeypatch):
    searched = []

    def counted(text: str):
        searched.append(len(text))
        return find_boundaries(text)

    monkeypatch.setattr(sentence_feed, "find_boundaries", counted)
    taken = pieces(*("a.a " * 1000), most=4000)
    assert "".join(piece for now in taken for piece in now) == ("a.a " * 1000).strip()
    assert sum(searched) < 40 * 4000
