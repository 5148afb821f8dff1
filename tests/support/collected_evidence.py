"""Evidence for a claim, from differences."""

from __future__ import annotations

from slipstream.evidence import Claim, Evidence


def evidence(claim: Claim, margin: float, found: list[float]) -> Evidence:
    """The evidence after these differences, in their order."""
    collected = Evidence(claim, margin)
    for each in found:
        collected.add(each)
    return collected
