"""Sessions that are kept for evaluation: no task of theirs is trained on, by any algorithm."""

from __future__ import annotations

from slipstream.selection.fraction import hash_fraction

_SALT = "held-out"


def is_held_out(session_ref: str, share: float) -> bool:
    """Return whether a session is held out. It is decided by its name alone, so that selection, data sets and
    evaluation agree, on every sidecar and at any time. With a larger share the sessions of a smaller one stay held out.

    Args:
        session_ref: with its tenant, as in the store.
        share: of all sessions, from 0 to 1.
    """
    return held_out_at(session_ref) < share


def held_out_at(session_ref: str) -> float:
    """Return the place of a session from 0 to below 1: it is held out with any share above that."""
    return hash_fraction(session_ref, _SALT)
