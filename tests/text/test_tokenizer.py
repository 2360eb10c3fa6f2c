"""Token ids: equal to the official wrapper's, and never a control token from text."""

import ctypes
import importlib.util
import json
from concurrent.futures import ThreadPoolExecutor

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, models, normalizers

from edge_runtime.errors import BundleError, TextError
from edge_runtime.tokenizer import Tokenizer

MARK = "▁"
TEXTS = [
    "",
    "hi",
    "hi  a ",
    "你好 你好中国 中国",
    "hi 你好\U0001f600",
    "世界 世 界",
    "a\u0301 <unk",
    "世中 hi世中",
    "中国你好hi",
]


def build():
    """A Llama-style tokenizer: byte fallback, word marks, Chinese entries of several characters."""
    entries = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    entries += [MARK, *"abhist<>/", "你", "好", "世", "中", "国"]
    entries += ["你好", "中国", "世界", "hi"]
    entries += [MARK + "你", MARK + "你好", MARK + "中", MARK + "中国", MARK + "hi", MARK + "a"]
    entries += [MARK + "世", MARK + "世中"]
    merges = [(MARK, "hi"), ("h", "i"), (MARK, "a"), ("你", "好"), (MARK, "你"), (MARK, "你好")]
    merges += [("中", "国"), (MARK, "中国"), (MARK, "中")]
    merges += [(MARK, "世"), (MARK + "世", "中")]
    vocabulary = {entry: number for number, entry in enumerate(entries)}
    base = tokenizers.Tokenizer(
        models.BPE(
            vocab=vocabulary, merges=merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True
        )
    )
    base.normalizer = normalizers.Sequence(
        [normalizers.Prepend(MARK), normalizers.Replace(" ", MARK)]
    )
    base.add_special_tokens(["<unk>", "<s>", "</s>"])
    base.add_tokens([AddedToken("[audio]", special=False, normalized=False)])
    return base


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    build().save(str(path))
    return path


@pytest.fixture(scope="module")
def tokenizer(file):
    return Tokenizer.load(file, frozenset({1, 2, build().token_to_id("[audio]")}))


@pytest.fixture(scope="module")
def official():
    """The official wrapper's module alone, without the package's other imports."""
    pytest.importorskip("transformers")
    pytest.importorskip("torch")
    package = importlib.util.find_spec("voxcpm")
    if package is None:
        pytest.skip("voxcpm is not installed")
    spec = importlib.util.spec_from_file_location(
        "official_utils", f"{package.submodule_search_locations[0]}/model/utils.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.mask_multichar_chinese_tokens


def test_chinese_entries_are_split_into_characters_with_and_without_a_word_mark(tokenizer):
    ids = build().get_vocab()
    assert tokenizer.encode("你好中国") == [ids["你"], ids["好"], ids["中"], ids["国"]]
    assert tokenizer.encode("hi中国") == [ids[MARK + "hi"], ids["中"], ids["国"]]


def test_an_entry_that_exists_only_behind_a_word_mark_stays_whole(tokenizer):
    assert tokenizer.encode("世中") == [build().token_to_id(MARK + "世中")]


def test_a_split_character_without_an_entry_becomes_unknown(tmp_path):
    """The entry 世界 is reached by an added token; 界 alone has no entry."""
    base = build()
    base.add_tokens([AddedToken("世界", special=False)])
    base.save(str(tmp_path / "tokenizer.json"))
    ids = base.get_vocab()
    loaded = Tokenizer.load(tmp_path / "tokenizer.json", frozenset())
    assert loaded.encode("世界") == [ids["世"], ids["<unk>"]]


def test_ids_equal_the_official_wrapper_on_the_same_tokenizer_json(tokenizer, file, official):
    from transformers import PreTrainedTokenizerFast

    wrapper = official(PreTrainedTokenizerFast(tokenizer_file=str(file), unk_token="<unk>"))
    for text in [*TEXTS, " hi", "  a", " "]:
        assert tokenizer.encode(text) == wrapper(text), text

    @settings(max_examples=150, deadline=None)
    @given(st.text(alphabet="hia 你好中国世界😀é<>", max_size=20))
    def same(text):
        assert tokenizer.encode(text) == wrapper(text)

    same()


def test_ids_equal_the_llama_class_of_any_transformers_on_stripped_text(tokenizer, file, official):
    from transformers import LlamaTokenizerFast

    config = {"tokenizer_class": "LlamaTokenizerFast", "unk_token": "<unk>"}
    (file.parent / "tokenizer_config.json").write_text(json.dumps(config))
    wrapper = official(LlamaTokenizerFast.from_pretrained(str(file.parent)))
    for text in TEXTS:
        assert tokenizer.encode(text) == wrapper(text), text


def test_names_of_special_tokens_in_text_are_plain_text(tokenizer):
    ids = tokenizer.encode("hi <s> </s>")
    assert not {1, 2} & set(ids)
    assert len(ids) > 6


def test_an_added_token_that_text_still_reaches_is_refused_by_its_piece(tokenizer):
    with pytest.raises(TextError, match=r"'\[audio\]' at position 5"):
        tokenizer.encode("hi \U0001f600 [audio] a")


def test_saved_truncation_and_padding_are_turned_off(tmp_path, tokenizer):
    base = build()
    base.enable_truncation(2)
    base.enable_padding(length=9)
    base.save(str(tmp_path / "tokenizer.json"))
    loaded = Tokenizer.load(tmp_path / "tokenizer.json", frozenset())
    for text in TEXTS:
        assert loaded.encode(text) == tokenizer.encode(text)


def test_the_vocabulary_size_counts_added_tokens(tokenizer):
    assert tokenizer.vocab_size == len(build().get_vocab())


def test_threads_get_the_same_ids(tokenizer):
    expected = [tokenizer.encode(text) for text in TEXTS]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: [tokenizer.encode(text) for text in TEXTS], range(20)))
    assert all(result == expected for result in results)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"model": 3}',
        b'{"model": {"type": "BPE"}}',
        b'{"version": "1.0", "model": {"type": "Nonsense"}}',
        b"\xff\xfe",
        b"[" * 200_000,
    ],
)
def test_a_file_that_is_no_tokenizer_is_a_bundle_error_naming_it(tmp_path, data):
    path = tmp_path / "tokenizer.json"
    path.write_bytes(data)
    with pytest.raises(BundleError, match=r"tokenizer\.json"):
        Tokenizer.load(path, frozenset())


def test_missing_and_torn_files_are_bundle_errors(file, tmp_path):
    with pytest.raises(BundleError, match="missing"):
        Tokenizer.load(tmp_path / "tokenizer.json", frozenset())
    data = file.read_bytes()
    path = tmp_path / "tokenizer.json"
    for size in (len(data) // 3, len(data) - 2):
        path.write_bytes(data[:size])
        with pytest.raises(BundleError, match="torn"):
            Tokenizer.load(path, frozenset())
    with pytest.raises(BundleError):
        Tokenizer.load(tmp_path, frozenset())


def test_an_entry_that_cannot_be_split_without_an_unknown_token_is_a_bundle_error(file, tmp_path):
    description = json.loads(file.read_text())
    description["model"]["unk_token"] = "<none>"
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(description))
    with pytest.raises(BundleError):
        Tokenizer.load(path, frozenset())


def test_texts_leave_nothing_behind(tmp_path) -> None:
    class Heap(ctypes.Structure):
        _fields_ = (("_before", ctypes.c_size_t * 7), ("used", ctypes.c_size_t),
                    ("_after", ctypes.c_size_t * 2))  # fmt: skip

    count = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if count is None:
        pytest.skip("this libc does not tell what its heap holds")
    count.restype = Heap
    path = tmp_path / "tokenizer.json"
    build().save(str(path))
    tokenizer = Tokenizer.load(path, frozenset())
    tokenizer.encode("hi")
    before = count().used
    for number in range(3000):
        tokenizer.encode(f"hi {number} " * 8)
    # The library's own cache of pieces would hold ten million.
    assert count().used - before < 100_000
