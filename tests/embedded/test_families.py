from __future__ import annotations

from functools import reduce

from slipstream.embedded.families import Families, Family

SYSTEM = tuple(range(100, 200))
OTHER = tuple(range(300, 400))


def arranged(*prompts: tuple[int, ...]) -> Families:
    return reduce(Families.and_also, prompts, Families())


def test_what_prompts_begin_with_is_read_once() -> None:
    families = arranged((*SYSTEM, 1), (*SYSTEM, 2, 3), (*SYSTEM, 4))

    assert families.all == (Family(100, ((*SYSTEM, 1), (*SYSTEM, 2, 3), (*SYSTEM, 4))),)
    assert families.tokens == 100 + 3 * 2  # padded to the longest rest


def test_two_agents_prompts_come_mixed_and_are_read_apart() -> None:
    families = arranged((*SYSTEM, 1), (*OTHER, 1), (*SYSTEM, 2), (*OTHER, 2))

    assert {family.prompts for family in families.all} == {
        ((*SYSTEM, 1), (*SYSTEM, 2)),
        ((*OTHER, 1), (*OTHER, 2)),
    }
    assert families.tokens == 2 * (100 + 2)


def test_a_near_relation_is_not_given_up_for_a_distant_one() -> None:
    distant = (*SYSTEM[:40], *OTHER)
    families = arranged((*SYSTEM, 1), (*SYSTEM, 2), distant)

    assert families.related == (Family(100, ((*SYSTEM, 1), (*SYSTEM, 2))),)
    assert families.strangers.prompts == (distant,)


def test_each_prompt_keeps_a_token_of_its_own() -> None:
    """The logits after it are wanted, so its last token is read in its own row."""
    families = arranged(SYSTEM, (*SYSTEM, 1))

    assert families.all == (Family(99, (SYSTEM, (*SYSTEM, 1))),)


def test_a_prompt_costs_nothing_twice() -> None:
    assert arranged(SYSTEM, SYSTEM) == arranged(SYSTEM)


def test_a_few_tokens_in_common_are_no_relation() -> None:
    assert arranged((1, 2, 3, 4), (1, 2, 3, 5)).all == (Family(0, ((1, 2, 3, 4), (1, 2, 3, 5))),)


def test_what_a_row_holds_is_not_read_again() -> None:
    families = reduce(Families.and_also, [(*SYSTEM, 1), (*SYSTEM, 2)], Families.of_rows([OTHER, (*SYSTEM, 1)]))

    assert families.all == (Family(100, ((*SYSTEM, 1), (*SYSTEM, 2)), (*SYSTEM, 1)),)
    assert families.tokens == 2
