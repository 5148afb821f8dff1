"""Longest ids, in characters."""

from __future__ import annotations

from slipstream.tenants import LONGEST_PREFIX

ID_LENGTH = 64
"""Trinity keeps task ids in a column of 64 characters; those that callers and the Explorer see are never longer."""

REF_LENGTH = ID_LENGTH + LONGEST_PREFIX
"""A session's or a task's id in the store, with its tenant: see `slipstream.tenants`."""

MSG_ID_LENGTH = 256
"""A completion's id."""

MSG_REF_LENGTH = MSG_ID_LENGTH + LONGEST_PREFIX
"""A completion's id with its tenant."""
