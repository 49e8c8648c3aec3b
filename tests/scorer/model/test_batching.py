import pytest
from hypothesis import given
from hypothesis import strategies as st

from raydebm.errors import ConfigError
from raydebm.scorer.model.backbone import load_backbone
from raydebm.scorer.model.batching import TextEncoder, cut_middle, micro_batches, plan_micro_batches, token_ids

CLS, SEP = 1, 2


def words(count, first=0):
    return " ".join(f"w{first + index}" for index in range(count))


def ids_of(tokenizer, text):
    return tuple(tokenizer.convert_tokens_to_ids(text.split()))


def test_input_is_cls_problem_sep_candidate_sep(tokenizer):
    (encoded,) = TextEncoder(tokenizer, max_length=20)([("w1 w2", "w3")])
    w1, w2, w3 = ids_of(tokenizer, "w1 w2 w3")
    assert tuple(encoded.ids) == (CLS, w1, w2, SEP, w3, SEP)


def test_a_text_that_fits_exactly_is_not_cut(tokenizer):
    (encoded,) = TextEncoder(tokenizer, max_length=13)([(words(6), words(4, 50))])
    assert (len(encoded.ids), encoded.num_truncated) == (13, 0)


def test_the_problem_is_cut_in_its_middle(tokenizer):
    (encoded,) = TextEncoder(tokenizer, max_length=12)([(words(10), words(4, 50))])
    ids = ids_of(tokenizer, "w0 w1 w2 w8 w9")
    assert tuple(encoded.ids) == (CLS, *ids, SEP, *ids_of(tokenizer, words(4, 50)), SEP)
    assert encoded.num_truncated == 5


def test_a_candidate_that_fits_alone_is_never_cut(tokenizer):
    (encoded,) = TextEncoder(tokenizer, max_length=8)([(words(10), words(5, 50))])
    assert tuple(encoded.ids) == (CLS, SEP, *ids_of(tokenizer, words(5, 50)), SEP)
    assert encoded.num_truncated == 10


def test_a_candidate_that_is_too_long_alone_keeps_its_end(tokenizer):
    (encoded,) = TextEncoder(tokenizer, max_length=8)([(words(2), words(9, 50))])
    assert tuple(encoded.ids) == (CLS, SEP, *ids_of(tokenizer, words(5, 54)), SEP)
    assert encoded.num_truncated == 6


def test_empty_texts_are_texts(tokenizer):
    (encoded,) = TextEncoder(tokenizer, max_length=8)([("", "")])
    assert tuple(encoded.ids) == (CLS, SEP, SEP)


def test_no_texts_give_no_encodings(tokenizer):
    assert TextEncoder(tokenizer, max_length=8)([]) == []


class Listening:
    """A tokenizer that remembers what it was asked."""

    def __init__(self, tokenizer):
        self.asked = []
        self._tokenizer = tokenizer

    def __call__(self, texts, **options):
        self.asked.append(texts)
        return self._tokenizer(texts, **options)

    def __getattr__(self, name):
        return getattr(self._tokenizer, name)


def test_many_texts_are_tokenized_in_chunks_each_once(tokenizer, monkeypatch):
    texts = [(words(1 + index // 3), words(2, 50 + index)) for index in range(9)]
    at_once = TextEncoder(tokenizer, max_length=20)(texts)
    monkeypatch.setattr("raydebm.scorer.model.batching.CHUNK", 5)
    listening = Listening(tokenizer)

    assert TextEncoder(listening, max_length=20)(texts) == at_once
    assert [len(asked) for asked in listening.asked] == [5, 5, 2]
    assert sorted(text for asked in listening.asked for text in asked) == sorted({t for pair in texts for t in pair})


def test_token_ids_take_four_bytes_each(tokenizer):
    (encoded,) = TextEncoder(tokenizer, max_length=20)([("w1 w2", "w3")])
    assert memoryview(encoded.ids).nbytes == 4 * len(encoded.ids)


def test_a_context_without_room_is_refused(tokenizer):
    with pytest.raises(ConfigError, match=r"max_length must be above 3, got 3"):
        TextEncoder(tokenizer, max_length=3)


@pytest.mark.parametrize(
    ("length", "expected"), [(4, [0, 1, 8, 9]), (5, [0, 1, 2, 8, 9]), (1, [0]), (0, []), (10, list(range(10)))]
)
def test_cut_middle(length, expected):
    assert cut_middle(list(range(10)), length) == expected


LENGTHS = st.lists(st.integers(1, 600), min_size=1, max_size=60)


@given(lengths=LENGTHS, max_tokens=st.integers(1, 4000))
def test_every_text_is_in_one_micro_batch(lengths, max_tokens):
    groups = plan_micro_batches(lengths, max_tokens=max_tokens)
    assert sorted(position for group in groups for position in group) == list(range(len(lengths)))


@given(lengths=LENGTHS, max_tokens=st.integers(1, 4000))
def test_micro_batches_keep_the_token_limit_unless_one_text_is_longer(lengths, max_tokens):
    for group in plan_micro_batches(lengths, max_tokens=max_tokens):
        padded = len(group) * max(lengths[position] for position in group)
        assert padded <= max_tokens or len(group) == 1


def test_texts_of_unlike_length_go_to_different_micro_batches():
    assert plan_micro_batches([100] * 4 + [400] * 4, max_tokens=10_000) == [[4, 5, 6, 7], [0, 1, 2, 3]]


def test_small_micro_batches_are_not_split_for_padding():
    assert plan_micro_batches([10, 40, 20], max_tokens=10_000) == [[1, 2, 0]]


def test_rows_are_padded_at_the_right():
    (batch,) = micro_batches([(7, 8), (9,)], max_tokens=100, pad_id=5)
    assert batch.ids.tolist() == [[7, 8], [9, 5]]
    assert batch.mask.tolist() == [[1, 1], [1, 0]]


def test_a_special_token_that_is_spelled_out_is_no_special_token(tokenizer):
    (encoded,) = TextEncoder(tokenizer, max_length=20)([("w1 [CLS] w2", "w3 [SEP] [PAD]")])

    assert [place for place, token in enumerate(encoded.ids) if token in (0, CLS, SEP)] == [0, 5, len(encoded.ids) - 1]


def test_a_special_token_that_is_spelled_out_is_its_letters():
    tokenizer = load_backbone("embedded:encoder-mini", device="cpu").tokenizer
    ids = token_ids(tokenizer, ["4 [SEP]"])["4 [SEP]"]

    assert tokenizer.sep_token_id not in ids
    assert tokenizer.decode(ids) == "4 [SEP]"


def test_special_tokens_of_a_template_stay(tokenizer):
    assert list(token_ids(tokenizer, ["w1 [SEP]"], is_templated=True)["w1 [SEP]"])[-1] == SEP


def test_ordinary_texts_have_the_ids_that_they_had():
    tokenizer = load_backbone("embedded:encoder-mini", device="cpu").tokenizer
    text = "Let x = 3\u00d72 \u2014 so x[0] is <b>6</b>.\nThe answer is 6."

    assert list(token_ids(tokenizer, [text])[text]) == tokenizer(text, add_special_tokens=False)["input_ids"]
