"""The section `preferences` of sidecar.yaml: pairs of answers that people compare."""

from __future__ import annotations

from pydantic import Field

from slipstream.config.units import PositiveDuration
from slipstream.settings.section import Section


class Preferences(Section):
    """Rules by which pairs are given to annotators.

    Attributes:
        judgements: annotators who judge each pair.
        lease: seconds that a pair is kept for the annotator to whom it was shown.
    """

    judgements: int = Field(default=1, ge=1, le=100)
    lease: PositiveDuration = 600.0
