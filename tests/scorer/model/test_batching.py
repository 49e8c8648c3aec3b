import pytest
from hypothesis import given
from hypothesis import strategies as st

from raydebm.errors import ConfigError
from raydebm.scorer.model.backbone import load_backbone
from raydebm.scorer.model.batching import TextEncoder, fitted, plan_micro_batches, token_ids

CLS, SEP = 1, 2


def words(count, first=0):
    return " ".join(f"w{first + index}" for index in range(count))


def ids_of(tokenizer, text):
    return tuple(tokenizer.convert_tokens_to_ids(text.split()))


def test_input_is_cls_problem_sep_candidate_sep(tokenizer):
    (encoded,) = TextEncoder(tokenizer, max_length=20)([("w1 w2", "w3")])
    w1, w2, w3 = ids_of(tokenizer, "w1 w2 w3")
    assert tuple(encoded.ids) == (CLS, w1, w2, SEP, w3, SEP)


def test_a_problem_that_is_too_long_is_cut_in_its_middle(tokenizer):
    (encoded,) = TextEncoder(tokenizer, max_length=12)([(words(10), words(4, 50))])
    ids = ids_of(tokenizer, "w0 w1 w7 w8 w9")
    assert tuple(encoded.ids) == (CLS, *ids, SEP, *ids_of(tokenizer, words(4, 50)), SEP)
    assert (encoded.num_truncated, encoded.problem_read, encoded.answer_read) == (5, 0.5, 1.0)


def test_an_answer_that_is_too_long_is_cut_in_its_middle_and_keeps_its_end(tokenizer):
    (encoded,) = TextEncoder(tokenizer, max_length=12)([(words(2), words(14, 50))])
    ids = ids_of(tokenizer, "w50 w51 w52 w60 w61 w62 w63")
    assert tuple(encoded.ids) == (CLS, *ids_of(tokenizer, "w0 w1"), SEP, *ids, SEP)
    assert (encoded.num_truncated, encoded.problem_read, encoded.answer_read) == (7, 1.0, 0.5)


def test_where_both_are_too_long_the_problem_has_a_third(tokenizer):
    (encoded,) = TextEncoder(tokenizer, max_length=12)([(words(9), words(9, 50))])
    ids = ids_of(tokenizer, "w0 w7 w8"), ids_of(tokenizer, "w50 w51 w52 w56 w57 w58")
    assert tuple(encoded.ids) == (CLS, *ids[0], SEP, *ids[1], SEP)


@pytest.mark.parametrize(
    ("problem", "answer", "room", "kept"),
    [
        (10, 20, 30, (10, 20)),  # an exact fit
        (25, 5, 30, (25, 5)),
        (11, 20, 30, (10, 20)),
        (10, 21, 30, (10, 20)),
        (40, 40, 30, (10, 20)),
        (6, 40, 30, (6, 24)),  # what the problem does not use
        (40, 12, 30, (18, 12)),  # what the answer does not use
        (0, 40, 30, (0, 30)),
        (40, 0, 30, (30, 0)),
        (90, 60, 20, (6, 14)),  # a context shorter than a third of the problem
        (5, 5, 3, (1, 2)),
        (5, 5, 2, (0, 2)),  # no third of so little
        (5, 1, 2, (1, 1)),
        (5, 5, 1, (0, 1)),
    ],
)
def test_the_room_of_problem_and_answer(problem, answer, room, kept):
    ids = list(range(problem)), list(range(100, 100 + answer))
    assert tuple(map(len, fitted(*ids, room, request=ids[0]))) == kept


def test_the_last_token_of_an_answer_stays():
    assert fitted([1, 2, 3], [4, 5, 6], 1, request=[1, 2, 3]) == ([], [6])


@pytest.mark.parametrize(
    ("room", "kept"),
    [(70, 50), (69, 5), (25, 5), (12, 4)],  # all of it, the request alone, exactly, and a third of 12
)
def test_reference_information_is_left_out_before_anything_is_cut(room, kept):
    problem, answer = fitted(range(50), range(100, 120), room, request=range(5))
    assert (len(problem), len(answer)) == (kept, min(20, room - kept))


def test_the_text_of_a_problem_ends_before_its_reference_information(tokenizer):
    problem = f"w1 w2\n\nReference information:\n{words(9, 10)}"
    whole, request = TextEncoder(tokenizer, max_length=40), TextEncoder(tokenizer, max_length=10)
    w1, w2, w3 = ids_of(tokenizer, "w1 w2 w3")

    assert len(whole([(problem, "w3")])[0].ids) == 3 + 13 + 1
    (encoded,) = request([(problem, "w3")])
    assert tuple(encoded.ids) == (CLS, w1, w2, SEP, w3, SEP)
    assert encoded.problem_read == 2 / 13


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


def test_a_context_without_room_is_refused(tokenizer):
    with pytest.raises(ConfigError, match=r"max_length must be above 3, got 3"):
        TextEncoder(tokenizer, max_length=3)


LENGTHS = st.lists(st.integers(1, 600), min_size=1, max_size=60)


@given(lengths=LENGTHS, max_tokens=st.integers(1, 4000))
def test_every_text_is_in_one_micro_batch_within_the_limit_unless_it_is_longer(lengths, max_tokens):
    groups = plan_micro_batches(lengths, max_tokens=max_tokens)
    assert sorted(position for group in groups for position in group) == list(range(len(lengths)))
    for group in groups:
        assert len(group) * max(lengths[position] for position in group) <= max_tokens or len(group) == 1


def test_texts_of_unlike_length_go_to_different_micro_batches():
    assert plan_micro_batches([100] * 4 + [400] * 4, max_tokens=10_000) == [[4, 5, 6, 7], [0, 1, 2, 3]]


def test_on_a_gpu_texts_of_unlike_length_share_a_micro_batch_that_is_small():
    assert plan_micro_batches([100] * 4 + [400] * 4, max_tokens=20_000, device="cuda") == [[4, 5, 6, 7, 0, 1, 2, 3]]


def test_a_special_token_that_is_spelled_out_is_its_letters():
    tokenizer = load_backbone("embedded:encoder-mini", device="cpu").tokenizer
    ids = token_ids(tokenizer, ["4 [SEP]"])["4 [SEP]"]

    assert tokenizer.sep_token_id not in ids
    assert tokenizer.decode(ids) == "4 [SEP]"
