"""Prompts that begin alike, so that what they share is read once.

The calls of an agent share its system message and its tools, which are mostly longer than the question, and the runs
of a group share all of their prompt (prefix sharing as in Hydragen, arXiv:2402.05099, and in vLLM's prefix caching;
here among the prompts that are read together, the rows that are being answered, and those that have ended).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

Prompt = tuple[int, ...]

WORTH = 32  # shared tokens; for fewer, a pass of their own through the model takes as long as reading them again


@dataclass(frozen=True)
class Family:
    """Different prompts that are read together; all of them begin with the same `shared` tokens, and go on after.

    Args:
        held: the tokens of a row that begins with them too, so that they need not be read.
    """

    shared: int
    prompts: tuple[Prompt, ...]
    held: Prompt | None = None

    @property
    def tokens(self) -> int:
        """Return how many tokens are read, including the padding to the longest."""
        rest = max(map(len, self.prompts), default=0) - self.shared
        return len(self.prompts) * rest + (self.shared if self.held is None else 0)


@dataclass(frozen=True)
class Families:
    """Prompts that are read together: related ones, and beside them strangers, which share nothing that is worth a
    pass."""

    related: tuple[Family, ...] = ()
    strangers: Family = Family(0, ())

    @classmethod
    def of_rows(cls, held: Iterable[Prompt]) -> Families:
        """Nothing to read yet, beside rows with these tokens."""
        return cls(tuple(Family(len(prompt), (), prompt) for prompt in dict.fromkeys(held)))

    @property
    def all(self) -> tuple[Family, ...]:
        return tuple(family for family in (*self.related, self.strangers) if family.prompts)

    @property
    def tokens(self) -> int:
        return sum(family.tokens for family in self.all)

    def and_also(self, prompt: Prompt) -> Families:
        """These and one more prompt, where it costs the least; one that is there already costs nothing."""
        if any(prompt in family.prompts for family in self.all):
            return self
        apart = Families(self.related, Family(0, (*self.strangers.prompts, prompt)))
        single = (Family(len(stranger) - 1, (stranger,)) for stranger in self.strangers.prompts)
        candidates = [(_common(family, prompt), family) for family in (*self.related, *single)]
        shared, nearest = max(candidates, key=lambda candidate: candidate[0], default=(0, self.strangers))
        if shared < WORTH:
            return apart
        joined = Family(shared, (*nearest.prompts, prompt), nearest.held)
        together = Families(
            (*(family for family in self.related if family is not nearest), joined),
            Family(0, tuple(other for other in self.strangers.prompts if other not in nearest.prompts)),
        )
        return min(together, apart, key=lambda families: families.tokens)


def _common(family: Family, prompt: Prompt) -> int:
    """Return how many tokens all of them can share. The last token of a prompt is not shared: its logits are needed."""
    first = family.held or family.prompts[0]
    low, high = 0, min(family.shared, len(prompt) - 1)
    while low < high:  # by halves, since comparing slices is fast and comparing tokens one by one is not
        middle = (low + high + 1) // 2
        low, high = (middle, high) if first[low:middle] == prompt[low:middle] else (low, middle - 1)
    return low
