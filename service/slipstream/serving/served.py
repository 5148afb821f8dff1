"""A user's request under a share: who answered it, and how that went."""

from __future__ import annotations

from typing import Literal

import msgspec

Arm = Literal["control", "treatment"]


class Served(msgspec.Struct, array_like=True):
    """A request that was answered while a share was set. A worker fills it in, and it is stored with the call.

    Attributes:
        variant: who gave the answer: `production` or `version:N`.
        opted_out: the caller asked for production by a header.
        arm: None where the request could not be assigned: then nothing below it is set.
        unit: 64 bits of hash, whose calls are counted together.
        version: the version that was compared with production, in both arms.
        epoch: of the share.
        fell_back: it was assigned to the version, and production answered.
        failed: it fell back, or its answer was no 2xx, was cut, or never began.
        waited: seconds until the first byte of the answer's body, or until the end of a request without one.
        alone: nothing else of the exchange is to be kept: `capture.rate` left it out.
    """

    variant: str
    opted_out: bool = False
    arm: Arm | None = None
    unit: int = 0
    version: int = 0
    epoch: int = 0
    fell_back: bool = False
    failed: bool = False
    waited: float = 0.0
    alone: bool = False

    @property
    def unit_name(self) -> str | None:
        """The unit in hexadecimal, as it is stored; None without an arm."""
        return None if self.arm is None else f"{self.unit:016x}"
