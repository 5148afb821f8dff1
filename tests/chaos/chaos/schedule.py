"""What happens in one schedule: a function of its seed alone."""

from __future__ import annotations

import random
from dataclasses import dataclass

from chaos.faults import FAULTS, Fault

LONGEST = 2.5
"""Seconds: a fault that lasts so long outlasts every timeout of the world's configuration."""


_STORES = ("sqlite", "postgresql")


@dataclass(frozen=True, slots=True)
class Step:
    """One injection: so many seconds after the agents began, for so long."""

    at: float
    fault: Fault
    lasts: float
    seed: int


@dataclass(frozen=True, slots=True)
class Schedule:
    """A world and what is done to it.

    Attributes:
        store: sqlite or postgresql.
        explorer: scripted, embedded or trinity.
        keys: the sidecars ask for a key of theirs.
        webhook: agents are run again by an endpoint that the sidecars tell (`runs.mode: webhook`), and there are no
            shadow calls.
        encrypted: what is stored of conversations is.
        repairs: the sidecars may say in the Explorer's history that it is to take a reward again
            (`explorer.history_url`).
    """

    seed: int
    store: str
    sidecars: int
    workers: int
    explorer: str
    agents: int
    steps: tuple[Step, ...]
    keys: bool = False
    webhook: bool = False
    encrypted: bool = False
    repairs: bool = False

    def __str__(self) -> str:
        parts = f"{self.store}, sidecars: {self.sidecars}, workers: {self.workers}, explorer: {self.explorer}"
        parts += "".join(f", {name}" for name in ("keys", "webhook", "encrypted", "repairs") if getattr(self, name))
        return f"{parts}; {', '.join(step.fault.name for step in self.steps)}"

    @property
    def lasts(self) -> float:
        """Seconds until the last fault is over."""
        return max(step.at + step.lasts for step in self.steps)

    def has(self, *names: str) -> bool:
        return any(step.fault.name in names for step in self.steps)


def schedule_of(seed: int) -> Schedule:
    """The schedule of a seed. Seeds in a row begin with different faults, so that a range of them has each."""
    rng = random.Random(f"slipstream chaos {seed}")
    names = list(FAULTS)
    first = FAULTS[names[seed % len(names)]]
    store = first.needs if first.needs in _STORES else rng.choices(_STORES, (3, 1))[0]
    webhook = first.needs == "endpoint" or rng.random() < 0.1
    explorer = rng.choices(("scripted", "embedded", "trinity"), (92, 5, 3))[0]
    there = (None, store, "endpoint") if webhook else (None, store)
    others = [one for one in FAULTS.values() if one is not first and one.needs in there]
    faults = [first, *rng.sample(others, rng.randint(1, 3))]
    rng.shuffle(faults)
    return Schedule(
        seed=seed,
        store=store,
        sidecars=rng.choices((1, 2), (1, 2))[0] if store == "postgresql" else 1,
        workers=rng.choices((1, 2), (3, 1))[0],
        explorer=explorer,
        agents=4,
        steps=tuple(
            Step(round(rng.uniform(0, 2.0), 2), fault, round(rng.uniform(0.3, fault.longest), 2), rng.getrandbits(32))
            for fault in faults
        ),
        keys=rng.random() < 0.3,
        webhook=webhook,
        encrypted=rng.random() < 0.4,
        repairs=rng.random() < 0.4,
    )
