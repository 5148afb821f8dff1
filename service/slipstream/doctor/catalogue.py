"""Every problem that the doctor knows, for `docs/doctor.md`."""

from __future__ import annotations

from slipstream.doctor import live
from slipstream.doctor.checks import (
    agreement,
    capture,
    endpoints,
    explorer,
    groups,
    machine,
    services,
    sidecar,
    storage,
    trainer,
)
from slipstream.doctor.findings import Problem

PROBLEMS: tuple[Problem, ...] = (
    *(
        value
        for module in (agreement, storage, explorer, groups, trainer, sidecar, capture, endpoints, machine, services)
        for value in vars(module).values()
        if isinstance(value, Problem)
    ),
    *live.PROBLEMS,
)
