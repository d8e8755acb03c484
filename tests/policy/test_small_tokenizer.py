"""The small tokenizer writes any text, digit by digit, and never a control token by accident."""

from functools import cache

from hypothesis import given, settings
from hypothesis import strategies as st

from forethought.core.messages import Assistant, ToolCall
from forethought.policy.formats import chat_format
from forethought.policy.small_tokenizer import CONTROL, train_tokenizer
from forethought.policy.tokenizing import added_tokens, decode, plain_ids
from scripted import PYTHON

FRAME = '{"name": "python", "arguments": {"code": "'
NUMBERS = " ".join(str(n) for n in range(1000, 1400))
TEXTS = (NUMBERS, *["print(1234)", r"\boxed{1234} \1 \2 \12", "the answer is 12 and 12"] * 40)


@cache
def tokenizer(vocabulary=400):
    return train_tokenizer(TEXTS, [PYTHON], vocabulary)


anything = st.text() | st.lists(
    st.sampled_from([*CONTROL, FRAME, '"}}', "<|im_", "end|>", "\\1", "\\", "7", "é", " ", "\n"])
).map("".join)


@settings(deadline=None, max_examples=150)
@given(anything)
def test_any_text_comes_back(text):
    words = tokenizer()
    assert decode(words, plain_ids(words, text)) == text


@settings(deadline=None, max_examples=150)
@given(anything)
def test_no_text_becomes_a_control_token_or_a_frame(text):
    words = tokenizer()
    assert set(added_tokens(words).values()).isdisjoint(plain_ids(words, text))


def test_every_control_text_would_be_a_token_if_it_were_not_kept_from_it():
    words = tokenizer()
    for control in (*CONTROL, FRAME):
        assert len(words.encode(control).ids) == 1
        assert len(plain_ids(words, control)) > 1


def test_no_token_holds_a_digit_and_something_else():
    words = tokenizer()
    tokens = [words.decode([id], skip_special_tokens=False) for id in range(words.get_vocab_size())]
    with_digits = [token for token in tokens if any(each.isdigit() for each in token)]
    assert sorted(with_digits) == list("0123456789")


@given(st.text("0123456789", min_size=1, max_size=30))
@settings(deadline=None, max_examples=40)
def test_a_number_takes_one_token_a_digit(number):
    assert len(plain_ids(tokenizer(), number)) == len(number)


def test_frequent_words_become_tokens_with_their_space():
    assert len(plain_ids(tokenizer(), " answer")) == 1
    assert len(plain_ids(tokenizer(), r"\boxed{")) == 1


def test_the_frame_of_a_call_is_one_token_at_each_end():
    words = tokenizer()
    chat = chat_format("compact", words)
    call = ToolCall(id="call_0", name="python", arguments='{"code": "7"}')
    ids = chat.assistant(Assistant(text="", calls=(call,)))
    shown = [decode(words, [id]) for id in ids]
    assert shown == ["<tool_call>", FRAME, "7", '"}}', "</tool_call>", "<|im_end|>"]


def test_a_call_that_was_written_with_the_frame_is_read_back():
    words = tokenizer()
    chat = chat_format("compact", words)
    call = ToolCall(id="call_0", name="python", arguments='{"code": "print(\'é\')"}')
    ids = chat.assistant(Assistant(text="so", calls=(call,)))
    assert chat.read(ids, [PYTHON], 0).message == Assistant(text="so", calls=(call,))


def test_without_tools_there_is_no_frame():
    assert set(added_tokens(train_tokenizer(TEXTS, [], 320))) == set(CONTROL)


def test_the_vocabulary_is_no_larger_than_asked_for():
    for size in (320, 333, 400):
        assert tokenizer(size).get_vocab_size() <= size


def test_the_same_texts_give_the_same_tokenizer():
    assert train_tokenizer(TEXTS, [PYTHON], 400).to_str() == tokenizer().to_str()
