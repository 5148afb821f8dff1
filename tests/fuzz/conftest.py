"""Hypothesis: the same examples in each `make test`; `SLIPSTREAM_FUZZ=5000 pytest tests/fuzz` makes as many new."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

_MORE = os.environ.get("SLIPSTREAM_FUZZ")

settings.register_profile("fixed", derandomize=True, max_examples=60, deadline=None, database=None)
settings.register_profile(
    "more",
    max_examples=int(_MORE or 1),
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("more" if _MORE else "fixed")
