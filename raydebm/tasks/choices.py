"""Find the choice that a completion names as its answer.

In:   any text, and the choices by their labels and by their own words.
Out:  a choice, or None if the text names none or several as its answer; always in linear time.
"""

import re
from collections.abc import Callable, Mapping

from raydebm.tasks.answers import (
    LABEL,
    LATEX_TEXT,
    OTHER_LABEL,
    answer_phrases,
    boxed,
    hash_marks,
    json_answer,
    label_of,
    sentences,
)

_BEFORE_CHOICE = re.compile(r"\A(?:the )?(?:final )?answer(?: is)?[ *_]*:?")
_BEHIND_CHOICE = re.compile(r"[*_`'\")]*(?:\Z|\s?[,;:(]|\s[-\u2013\u2014]\s|\s(?:because|since)\b)")
"""Text allowed after a choice at the start of a sentence, so that "a guess" does not name choice A."""
_REASON = re.compile(r"(?<=\w\w)[*_`'\")]*,?\s(?:because|since)\b.*", re.DOTALL)
_LISTED = re.compile(r"[a-z][.)] \S")
_AROUND_CHOICE = " \t*_`'\"().:,;!$"
_QUOTES = str.maketrans("\u2018\u2019\u201c\u201d", "''\"\"")


class Choices:
    """The choices of a problem.

    Args:
        labels: choices by letter or number.
        words: choices by their own words. Default: the labels, for choices without another name.
    """

    def __init__(self, labels: Mapping[str, str], words: Mapping[str, str] | None = None) -> None:
        self._labels = {bare(label): choice for label, choice in labels.items()}
        self._words = self._labels if words is None else {bare(text): choice for text, choice in words.items()}
        self._known = {**self._labels, **self._words}
        longest_first = sorted(filter(None, self._words), key=len, reverse=True)
        self._naming = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, longest_first)) or '(?!)'})(?!\w)")

    def find(self, text: str, *, in_free_words: Callable[[str], str | None] | None = None) -> str | None:
        """Find the choice in the strongest mark, and in the last one of its kind: hash signs before a choice alone; an
        "answer" field, then a box, which decide even if they name no choice; "the answer is ..."; the last line.

        If hash signs begin the last line, the text before it is ignored; elsewhere they may begin a heading.

        Args:
            text: completion to read.
            in_free_words: function that finds the choice in the last line if no mark names one. Default: none.
        """
        lines = [line for line in text.splitlines() if line.strip()]
        if not lines:
            return None
        if lines[-1].lstrip().startswith("####"):
            text = lines[-1]
            labelled = self._labelled(_BEFORE_CHOICE.sub("", bare(text.partition("####")[2])))
            if labelled is not None:
                return single(labelled)
        marked = (self._marked(mark.text) for mark in reversed(hash_marks(text)))
        if (choice := next(filter(None, marked), None)) is not None:
            return choice
        for decisive in (json_answer(text), boxed(text)):
            if decisive is not None:
                return single(self._labelled(bare(LATEX_TEXT.sub("", decisive).strip(" {}"))))
        said = self._said(text)
        found = single(said) or self._known.get(bare(lines[-1]), self._listed(lines))
        return in_free_words(lines[-1]) if found is None and said is None and in_free_words else found

    def named_in(self, text: str) -> set[str]:
        """Choices with their own words in the text; "kitchen drawer" does not name "kitchen" if both are choices."""
        return {self._words[match[0]] for match in self._naming.finditer(bare(text))}

    def _labelled(self, text: str) -> set[str] | None:
        """The choice that is the whole bare text; else those with their letter or number at its start ("b) paris",
        "option b") or as an alternative after it ("a or b"). None if no label begins the text."""
        if text in self._known:
            return {self._known[text]}
        match = LABEL.match(text)
        label = label_of(match).casefold() if match else ""
        if match is None or label not in self._labels:
            return None
        rest = bare(text[match.end() :])
        others = (other.casefold() for other in OTHER_LABEL.findall(text, match.end()))
        named = {self._labels[other] for other in others if other in self._labels}
        return {self._labels[label], *named, *([self._words[rest]] if rest in self._words else [])}

    def _listed(self, lines: list[str]) -> str | None:
        """The choice with its letter at the start of the last line ("B. Paris"). None if the line before it has this
        form, too, because the two are then part of a list."""
        *before, last = ((_LISTED.match(bare(line)) or [""])[0][:1] for line in lines[-2:])
        return self._labels.get(last) if last and not any(before) else None

    def _marked(self, mark: str) -> str | None:
        """The choice that is the whole text after hash signs, or after "final answer:" there."""
        text = bare(mark)
        return self._known.get(text, self._known.get(bare(_BEFORE_CHOICE.sub("", text))))

    def _said(self, text: str) -> set[str] | None:
        """Choices after the last "the answer is ..." that names any; empty if its sentence does not begin with one."""
        for phrase in answer_phrases(text, of_choices=True):
            if bare(phrase) in self._known:
                return {self._known[bare(phrase)]}
            first_sentence, *more = sentences(phrase)
            sentence = bare(first_sentence)
            if more and sentence in self._labels and bare(more[0]) in self._words:  # "1. Ana" is one name
                sentence += f" {bare(more[0])}"
            labelled = self._labelled(sentence)
            if labelled is not None:
                return labelled
            named = self.named_in(_REASON.sub("", sentence))
            if named:
                first = self._naming.match(sentence)
                return named if first and _BEHIND_CHOICE.match(sentence, first.end()) else set()
        return None


def single(choices: set[str] | None) -> str | None:
    """The only choice; None if there are several or none."""
    return min(choices) if choices and len(choices) == 1 else None


def bare(text: str) -> str:
    """The text in lower case, without surrounding punctuation, repeated spaces and a leading "the"."""
    return " ".join(text.translate(_QUOTES).strip(_AROUND_CHOICE).casefold().split()).removeprefix("the ")
