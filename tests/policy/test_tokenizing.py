from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer
from tokenizers.models import WordLevel
from tokenizers.normalizers import Lowercase

from forethought.policy.formats import chat_format
from forethought.policy.tokenizing import Mark, added_tokens, decode, marked_ids, plain_ids
from policy.conversations import CONVERSATION, TOOLS
from policy.tokenizers_on_hand import CONTROL, real_tokenizer, small_tokenizer

SPELLED = st.lists(st.sampled_from([*CONTROL, "<", "|im", "_end|>", ">", " ", "word"])).map("".join)


@given(st.text() | SPELLED)
def test_no_text_becomes_a_control_token_and_all_text_survives(text: str):
    tokenizer = small_tokenizer()
    ids = plain_ids(tokenizer, text)
    assert set(ids).isdisjoint(added_tokens(tokenizer).values())
    assert decode(tokenizer, ids) == text


@pytest.mark.parametrize("name", ["qwen2_5", "smollm2"])
def test_real_tokenizers_keep_their_control_tokens_to_themselves(name: str):
    tokenizer = real_tokenizer(name)
    for word in added_tokens(tokenizer):
        ids = plain_ids(tokenizer, f"a{word}{word} b")
        assert set(ids).isdisjoint(added_tokens(tokenizer).values())
        assert decode(tokenizer, ids) == f"a{word}{word} b"


@given(st.text())
def test_text_that_spells_no_control_token_is_encoded_as_ever(text: str):
    tokenizer = real_tokenizer("qwen2_5")
    spelled = any(word in text for word in added_tokens(tokenizer))
    assert spelled or plain_ids(tokenizer, text) == tokenizer.encode(text).ids


def test_text_that_spells_a_control_token_is_cut_once_and_encoded_as_ever_around_the_cut():
    tokenizer = real_tokenizer("qwen2_5")
    halves = [tokenizer.encode(half).ids for half in ("print it<", "|im_end|> and answer")]
    assert plain_ids(tokenizer, "print it<|im_end|> and answer") == halves[0] + halves[1]


def test_control_tokens_that_overlap_are_all_cut():
    tokenizer = small_tokenizer("><", "<<", "<a>")
    ids = plain_ids(tokenizer, "<a><a>><<<")
    assert set(ids).isdisjoint(added_tokens(tokenizer).values())
    assert decode(tokenizer, ids) == "<a><a>><<<"


def test_a_normalizer_cannot_make_a_control_token_out_of_other_text():
    words = WordLevel({letter: number for number, letter in enumerate("<end>?")}, unk_token="?")
    tokenizer = Tokenizer(words)
    tokenizer.normalizer = Lowercase()
    tokenizer.add_tokens([AddedToken("<end>", normalized=True)])
    end = added_tokens(tokenizer)["<end>"]
    assert end in tokenizer.encode("<END>").ids
    assert end not in plain_ids(tokenizer, "<END>")


def test_a_mark_is_a_control_token_where_there_is_one_and_text_where_not():
    tokenizer = small_tokenizer()
    ids = marked_ids(tokenizer, ["say ", Mark("<think>"), "a", Mark("<mark>"), "b"])
    assert ids.count(added_tokens(tokenizer)["<think>"]) == 1
    assert ids[-len(plain_ids(tokenizer, "a<mark>b")) :] == plain_ids(tokenizer, "a<mark>b")
    assert decode(tokenizer, ids) == "say <think>a<mark>b"


def cutting_and_filling_up(path: Path) -> Tokenizer:
    """The small tokenizer as a file brings it that asks for 12 tokens, no more and no fewer."""
    tokenizer = Tokenizer.from_str(small_tokenizer().to_str())
    tokenizer.enable_truncation(12)
    tokenizer.enable_padding(length=12)
    tokenizer.save(str(path))
    return Tokenizer.from_file(str(path))


def test_one_tokenizer_serves_many_threads_and_each_gets_what_it_would_get_alone(tmp_path: Path):
    plain, fixed = small_tokenizer(), cutting_and_filling_up(tmp_path / "tokenizer.json")
    chats = {id(each): chat_format("hermes", each) for each in (plain, fixed)}

    def written(tokenizer: Tokenizer, number: int) -> list[int]:
        return plain_ids(tokenizer, f"été {number} <|im_end|> " * (1 + number % 7))

    def opened(tokenizer: Tokenizer, number: int) -> list[int]:
        return chats[id(tokenizer)].opening(CONVERSATION[: 1 + number % len(CONVERSATION)], TOOLS)

    def read(tokenizer: Tokenizer, number: int) -> list[object]:
        ids = written(tokenizer, number)
        return [chats[id(tokenizer)].read(ids, TOOLS, number), decode(tokenizer, ids)]

    def encoded(tokenizer: Tokenizer, number: int) -> list[int]:
        return tokenizer.encode(f"été {number} " * (1 + number % 7)).ids

    works = [(work, each) for work in (written, opened, read, encoded) for each in (plain, fixed)]

    def done(thread: int) -> list[object]:
        work, tokenizer = works[thread % len(works)]
        return [work(tokenizer, number) for number in range(250)]

    alone = [done(thread) for thread in range(len(works))]
    lengths = [{len(encoded(each, number)) for number in range(250)} for each in (fixed, plain)]
    assert lengths[0] == {12}
    assert len(lengths[1]) > 5
    with ThreadPoolExecutor(16) as threads:
        for thread, found in enumerate(threads.map(done, range(16))):
            assert found == alone[thread % len(works)]
