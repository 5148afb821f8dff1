"""Rows that were there already."""

from __future__ import annotations

import random
from dataclasses import replace

from dataset_rows import provenance, rows

from slipstream.datasets.config import Duplicates as How
from slipstream.datasets.duplicates import Duplicates
from slipstream.datasets.row import Kind, Row

SYSTEM = {"role": "system", "content": " ".join(f"rule{number}" for number in range(300))}


def row(question: str, answer: str, number: int = 0, **fields: bool) -> Row:
    prompt = [SYSTEM, {"role": "user", "content": question}]
    return Row(Kind.KTO, prompt, {"role": "assistant", "content": answer}, provenance(number), good=True, **fields)


def words(drawn: random.Random, count: int) -> list[str]:
    return [f"w{drawn.randrange(3000)}" for _ in range(count)]


def test_an_equal_row_is_found_whatever_its_origin() -> None:
    known = Duplicates(How(), 0)
    for given in rows(Kind.SFT):
        assert known.seen(given) is None
        assert known.seen(replace(given, provenance=provenance(99))) == "duplicate"


def test_a_row_is_near_when_its_prompt_and_its_answer_are() -> None:
    drawn = random.Random(3)
    question, answer = words(drawn, 120), words(drawn, 60)
    near = [*question[:60], "another", *question[61:]]  # 5 of 116 5-grams differ: a similarity of 0.92
    far = [word if number % 4 else "else" for number, word in enumerate(question)]

    def found(asked: list[str], said: list[str], threshold: float | None = 0.85) -> str | None:
        known = Duplicates(How(near=threshold), 0)
        assert known.seen(row(" ".join(question), " ".join(answer))) is None
        return known.seen(row(" ".join(asked), " ".join(said)))

    assert found(near, answer) == "near_duplicate"
    assert found(near, answer, threshold=None) is None
    assert found(near, answer, threshold=0.99) is None
    assert found(far, answer) is None
    assert found(question, answer[:30]) is None, "another answer to the same prompt teaches something else"
    assert found([*question, *question[:20]], words(drawn, 60)) is None, "an agent's next step"
    assert found(["what", "now"], ["this"]) is None


def test_the_same_words_with_another_label_are_not_the_same() -> None:
    known = Duplicates(How(near=0.85), 0)
    good = row("one two three four five six", "seven eight nine ten eleven")
    assert known.seen(good) is None
    assert known.seen(replace(good, good=False)) is None
    assert (
        known.seen(replace(good, prompt=[SYSTEM, {"role": "user", "content": "ONE two, three four five six"}]))
        == "near_duplicate"
    )


def test_a_pair_the_other_way_round_and_another_correction_teach_something_else() -> None:
    pair, _ = rows(Kind.PREFERENCE)[:2]
    left = {"role": "assistant", "content": "one two three four five six"}
    right = {"role": "assistant", "content": "seven eight nine ten eleven twelve"}
    known = Duplicates(How(near=0.85), 0)
    assert known.seen(replace(pair, answer=left, rejected=right)) is None
    assert known.seen(replace(pair, answer=right, rejected=left)) is None
    asked = [*pair.prompt, {"role": "user", "content": "?"}]
    assert known.seen(replace(pair, prompt=asked, answer=left, rejected=right)) == "near_duplicate"
    corrected = rows(Kind.CORRECTION)[0]
    known = Duplicates(How(near=0.85), 0)
    assert known.seen(replace(corrected, correction="No, it was Monday the third of May")) is None
    assert known.seen(replace(corrected, correction="No, it was never said who came there")) is None
    assert known.seen(replace(corrected, correction="no! It was Monday, the third of May")) == "near_duplicate"


def test_nearly_all_near_rows_of_many_are_found_and_the_same_ones_each_time() -> None:
    def run() -> list[str | None]:
        drawn, known, found = random.Random(5), Duplicates(How(near=0.85), 1), []
        for _ in range(300):
            question, answer = words(drawn, 100), words(drawn, 30)
            found.append(known.seen(row(" ".join(question), " ".join(answer))))
            question[drawn.randrange(100)] = "changed"
            found.append(known.seen(row(" ".join(question), " ".join(answer))))
        return found

    found = run()
    assert found[::2] == [None] * 300
    assert found[1::2].count("near_duplicate") >= 290
    assert run() == found


def test_scripts_without_spaces_are_compared_by_character() -> None:
    known = Duplicates(How(near=0.6), 0)
    text = "昨日の会議で決まったことを三つにまとめて、担当者の名前と期限を付けて、明日の朝までに全員に送ってください。"
    assert known.seen(row(text, "はい")) is None
    assert known.seen(row(text.replace("三", "四"), "はい")) == "near_duplicate"
