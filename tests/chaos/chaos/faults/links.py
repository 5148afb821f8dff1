"""What networks do, and what the other end says."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import logged_production
import relay

from chaos.faults.fault import fault

if TYPE_CHECKING:
    from chaos.world import World


_ENDS = {"explorer": "Explorer", "production": "production", "endpoint": "the endpoint of agents"}


def _on_a_link(link: str, way: str, what: str) -> None:
    name = f"{link}_link_{way}"
    needs = "endpoint" if link == "endpoint" else None

    @fault(name, f"between sidecar and {_ENDS[link]}: {what}", production=link == "production", needs=needs)
    async def _(world: World, rng: random.Random) -> AsyncIterator[None]:
        between = world.links[link]
        before = between.struck[way]
        # a head has some 150 bytes, so that this is before it, in it, or amid a body; the endpoint says a word or two
        between.break_(way, rng.choice((0, 40, 130) if link == "endpoint" else (0, 40, 250, 400, 700)))
        yield
        between.heal()
        world.struck[name] += between.struck[way] - before


for _way, _what in relay.WAYS.items():
    _on_a_link("explorer", _way, _what)
    if _way in ("refused", "black_hole", "reset", "truncated", "slow"):  # the rest would alter what production said
        _on_a_link("production", _way, _what)
    if _way in ("refused", "black_hole", "reset", "garbled", "too_many", "error"):
        _on_a_link("endpoint", _way, _what)


def _of_production(way: str, what: str) -> None:
    name = f"production_{way}"

    @fault(name, f"the production model: {what}", production=True)
    async def _(world: World, rng: random.Random) -> AsyncIterator[None]:
        before = world.misbehaved(way)
        world.orders.write_text(way)
        yield
        world.orders.unlink(missing_ok=True)
        world.struck[name] += world.misbehaved(way) - before


for _way, _what in logged_production.WAYS.items():
    _of_production(_way, _what)


@fault("dns_fails", "production's name has no address", production=True)
async def _(world: World, rng: random.Random) -> AsyncIterator[None]:
    if world.sandbox is None:
        world.impossible["dns_fails"] += 1
        yield
        return
    world.sandbox.resolve(False)
    world.links["production"].drop()  # what is open needs no name
    world.struck["dns_fails"] += 1
    yield
    world.sandbox.resolve(True)
