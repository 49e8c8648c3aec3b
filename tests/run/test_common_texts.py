"""Common texts are counted in bounded memory."""

from raydebm.run.common_texts import MOST_TEXTS, CommonTexts


def test_of_equal_counts_the_first_text_comes_first():
    texts = CommonTexts()
    texts.update(["b", "a", "c", "a", "c"])

    assert texts.most_common(2) == [("a", 2), ("c", 2)]


def test_texts_after_the_first_thousand_are_not_counted():
    texts = CommonTexts()
    texts.update(f"t{number}" for number in range(MOST_TEXTS))
    texts.update(["new", "new", "t7"])

    assert texts.most_common(1) == [("t7", 2)]
    assert len(texts.most_common(2000)) == MOST_TEXTS
