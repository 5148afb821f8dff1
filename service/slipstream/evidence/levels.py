"""Levels at which one version of many, or one guardrail of several, is tested."""

from __future__ import annotations

import math

from slipstream.evidence.checks import at_least, between

_POWER = 1.1
_SUM = 10.584448464950809
"""The sum of k ** -1.1 over all k from 1 on: Riemann's zeta function at 1.1."""


def version_level(alpha: float, version: int, promotions: int) -> float:
    """The level for the promotion of one version in an endless stream of them, by e-LOND.

    Source: Z. Xu and A. Ramdas, "Online multiple testing with e-values", AISTATS 2024, arXiv:2311.06412: the algorithm
    e-LOND. Level k is alpha * gamma_k * (promotions so far + 1), where the gammas sum to 1. Here gamma_k is in
    proportion to k ** -1.1. However the versions depend on each other, the false discovery rate (the mean share of
    false ones among the promotions) is at most alpha at any time. While no version is better, that is the probability
    of any promotion at all.

    Args:
        alpha: the false discovery rate, above 0 and below 1.
        version: this version's position in the stream, from 1. Each that was tested counts, promoted or not.
        promotions: versions before it that were promoted by this test, at most `version - 1`.

    Returns:
        A level in (0, alpha]. It is computed once, when the version's test begins.

    Raises:
        ValueError: an argument is outside of its bounds.
    """
    between("alpha", alpha, 0, 1)
    at_least("version", version, 1)
    if at_least("promotions", promotions, 0) >= version:
        raise ValueError(f"promotions: expected fewer than version, {version}, found {promotions}")
    return alpha * math.pow(version, -_POWER) / _SUM * (promotions + 1)


def guardrail_level(alpha: float, guardrails: int) -> float:
    """The level for each of several guardrails, so that any of them is false with probability `alpha` at most.

    Source: Bonferroni's inequality.

    Raises:
        ValueError: `alpha` is not above 0 and below 1, or there is no guardrail.
    """
    return between("alpha", alpha, 0, 1) / at_least("guardrails", guardrails, 1)
