"""The section `rollouts` of sidecar.yaml: who decides about versions."""

from __future__ import annotations

from typing import Literal

from slipstream.settings.section import Section


class Rollouts(Section):
    """Rules for decisions about rollouts.

    Attributes:
        approval: `second_person`: a promotion, and by hand each step, takes two keys of different names.
    """

    approval: Literal["one_person", "second_person"] = "one_person"

    @property
    def by_two(self) -> bool:
        """Return whether a decision that sends more users to a version takes a second person."""
        return self.approval == "second_person"
