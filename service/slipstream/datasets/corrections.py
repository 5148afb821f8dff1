"""Detection of corrections: messages in which a user says that the answer before was not right, and what was.

The detector counts signs that a person can read (`correction_signs`), and names those that it found. It is made for few
false alarms, and misses what it does not know: most corrections that only say the right thing, without a word that says
that the answer was wrong. benchmarks/corrections measures it.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from slipstream.datasets.correction_signs import BIAS, LINK, TEXT_SIGNS, TO_THE_MODEL
from slipstream.trajectory import Message, message_text

LONGEST = 600
"""Characters of a correction. A longer message brings something new, and has room for more than a correction."""

_QUOTED = re.compile(
    r"```.*?(?:```|\Z)|`[^`\n]*`|^>[^\n]*|\"[^\"\n]*\"|“[^”\n]*”|„[^“”\n]*[“”]|«[^»\n]*»|「[^」\n]*」|『[^』\n]*』",
    re.DOTALL | re.MULTILINE,
)
_SPACES = re.compile(r"\s+")
_NOT_THIS = re.compile(
    r"(?:\bnot|n't|\bnicht|\bkeine?n?|\bstatt|\binstead of|不是|不要|而不是)\s*"
    r"(?:the |a |an |in |on |at |der |die |das |den |dem |auf |im |am )?([\w.]+)"
)


@dataclass(frozen=True, slots=True)
class Found:
    """The judgement of a message.

    Attributes:
        score: from 0 to 1; a correction from `corrections.min_score` on.
        signs: names of the signs that were found, for and against.
    """

    score: float
    signs: tuple[str, ...]


def detect(message: str, answer: str) -> Found:
    """Judge whether a message corrects the answer before it.

    The score is the logistic function of the sum of the weights of the signs found. What the message quotes is not
    looked at.

    Args:
        message: the user's next message.
        answer: text of the answer.
    """
    said = _plain(message)
    if not said:
        return Found(0.0, ())
    found = [(sign.name, sign.weight) for sign in TEXT_SIGNS if sign.pattern.search(said)]
    answered = _plain(answer)
    if answered.endswith(("?", "？")):
        found.append(("replies to a question", -3.5))
    elif any(_stands_in(answered, denied) for denied in _NOT_THIS.findall(said)):
        found.append(("denies a word of the answer", 1.6))
    odds = BIAS + sum(weight for _, weight in found)
    return Found(1 / (1 + math.exp(-odds)), tuple(name for name, _ in found))


def _stands_in(answered: str, denied: str) -> bool:
    """Return whether a denied word is one of the answer's; Chinese has no spaces between words."""
    if denied.isascii():
        return re.search(rf"(?<!\w){re.escape(denied.strip('.'))}(?!\w)", answered) is not None and len(denied) > 1
    return denied in answered


def refused(message: str) -> str | None:
    """Return the reason why a text may not become a correction to learn from; None if it may.

    It is about the text and not about who wrote it. A user's words are to steer the answer that they follow: general
    orders to the model, and addresses that would reach others, are left out.
    """
    if len(message) > LONGEST:
        return "correction too long"
    said = _spaced(message)
    if TO_THE_MODEL.search(said):
        return "correction is an order to the model"
    return "correction with a link" if LINK.search(said) else None


def _plain(text: str) -> str:
    """The text in lower case and on one line, without what it quotes."""
    return _spaced(_QUOTED.sub(" ", text[: 4 * LONGEST]))


def _spaced(text: str) -> str:
    return _SPACES.sub(" ", unicodedata.normalize("NFKC", text).replace("’", "'").lower()).strip()


_WORD = re.compile(r"[\u3040-\u30ff\u4e00-\u9fff]|\w+")
_RUN = 6
"""Words in a row, or Chinese characters, that an answer has in common with a correction by more than chance."""
_LOOKS_BACK = re.compile(
    r"\b(?:you(?:'re| are) right|sorry|apolog\w+|my mistake|as you (?:said|asked|noted|pointed)|correct(?:ed|ion)\b"
    r"|(?:earlier|previous|first|unsuccessful) (?:answer|attempt)"
    r"|thanks? (?:you )?for (?:pointing|the correction|your feedback))"
    r"|\b(?:entschuldig\w+|tut mir leid|mein fehler|du hast recht|sie haben recht|wie (?:du|sie) (?:sag|gesag)\w*)"
    r"|抱歉|对不起|您说得对|你说得对|感谢(?:您|你)?(?:的)?(?:指正|纠正)"
)


def corrected_prompt(prompt: Sequence[Message], correction: str) -> list[Message]:
    """Return the prompt with the correction in it: before the last message of a user.

    A model that is asked this is the teacher of the one that is asked the prompt alone. Both prompts end alike, so that
    the answer keeps its form. Behind the message, or with the wrong answer beside them, the words led a small model to
    write about them, or to give that answer again.
    """
    messages: list[Message] = list(prompt)
    for at in reversed(range(len(messages))):
        if messages[at].get("role") == "user":
            messages[at] = {**messages[at], "content": f"{correction}\n\n{message_text(messages[at])}"}
            return messages
    return [*messages, {"role": "user", "content": correction}]


def shows_correction(answer: str, correction: str, known: str) -> bool:
    """Return whether an answer that was given with a correction in view shows it: such an answer is not to be taught.

    It does if it repeats several words in a row of the correction, or if it looks back, as by an apology.

    Args:
        known: what was said before the correction, which an answer may repeat.
    """
    words, said = _WORD.findall(_spaced(answer)), f" {' '.join(_WORD.findall(_spaced(known)))} "
    secret = f" {' '.join(_WORD.findall(_spaced(correction)))} "
    runs = (f" {' '.join(words[at : at + _RUN])} " for at in range(len(words) - _RUN + 1))
    return any(run in secret and run not in said for run in runs) or _LOOKS_BACK.search(_spaced(answer)) is not None
