"""The verdict for a version, against production and against the champion.

Sources are the newest evaluation on each suite, and the newest rollout, which has the rewards of live answers. Rewards
of training runs are no source: production's answers were not scored with them, and versions answered other prompts.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.errors import RequestError
from slipstream.evaluation.pairing import Paired, pair
from slipstream.evaluation.statistics import Judgement
from slipstream.rollouts.stage import Rollouts
from slipstream.settings.evaluation import Evaluation as Settings
from slipstream.store import aliases, evaluations, rollouts
from slipstream.store.evaluations import Evaluation
from slipstream.store.rollouts import Rollout

CHAMPION = "champion"
"""The alias of the version that others are compared with."""

PROMOTABLE = (Judgement.BETTER, Judgement.EQUAL)

_REMEMBERED = 500
"""Comparisons of two evaluations, which do not change once both are done."""

NAMED = 10
"""Cases, tasks and labels that a comparison names on each side."""

_ORDER = (Judgement.WORSE, Judgement.BETTER, Judgement.EQUAL)
"""Verdicts by precedence: the first one that any source says counts."""


class Verdicts:
    """Verdicts by what is in the store.

    Args:
        stage: knows the evidence of the current rollout.
    """

    def __init__(self, settings: Settings, stage: Rollouts) -> None:
        self._settings = settings
        self._stage = stage
        self._known: OrderedDict[tuple[int, int], Paired] = OrderedDict()

    async def of(self, session: AsyncSession, versions: Sequence[int]) -> dict[int, dict[str, Any]]:
        """The verdict of each of these versions.

        Returns:
            `verdict`, `production` and `champion` (null for the champion itself and without one), and `sources` with
            the figures of each.
        """
        champion = await aliases.version_of(session, CHAMPION)
        wanted = {*versions} if champion is None else {*versions, champion}
        done = await evaluations.newest_done(session, wanted)
        live = await rollouts.newest_of(session, versions)
        found = {}
        for version in versions:
            sources = [self._evaluated(one) for one in done.get(version, {}).values() if _compares(one)]
            if (rollout := live.get(version)) is not None:
                sources += await self._live(session, rollout)
            if champion is not None and champion != version:
                for suite, one in done.get(version, {}).items():
                    if (other := done.get(champion, {}).get(suite)) is not None:
                        sources.append(await self._against(session, one, other))
            found[version] = _verdict(sources, None if champion == version else champion)
        return found

    async def required(self, session: AsyncSession, version: int) -> dict[str, Any]:
        """The verdict of a version that is to be promoted by hand.

        Raises:
            RequestError: 409, it is neither better nor equal; says what it is, by which sources, and what is missing.
        """
        found = (await self.of(session, [version]))[version]
        if found["verdict"] in PROMOTABLE:
            return found
        raise RequestError(
            f"version {version}: expected the verdict better or equal, found {_in_words(found)}; "
            "say force: true to promote it all the same",
            param="force",
            status=409,
            code="no_verdict",
        )

    def _evaluated(self, one: Evaluation) -> dict[str, Any]:
        assert one.result is not None, "it is done"
        return {**_source(one), "against": "production", **one.result["against_production"]}

    async def _live(self, session: AsyncSession, rollout: Rollout) -> list[dict[str, Any]]:
        """The verdict by a rollout: better by its own test, worse by a guardrail, equal by the interval."""
        evidence = await self._stage.evidence_of(session, rollout)
        if not evidence:
            return []
        objective = evidence["objective"]
        harmed = [name for name, one in evidence["guardrails"].items() if one["harm"]["proven"]]
        low, high = objective["interval"]
        margin = self._settings.margin
        verdict = Judgement.NOT_ENOUGH_DATA
        if harmed:
            verdict = Judgement.WORSE
        elif objective["better"]["proven"]:
            verdict = Judgement.BETTER
        elif -margin < low and high < margin:
            verdict = Judgement.EQUAL
        elif high < 0:
            verdict = Judgement.WORSE
        units = evidence["units"]
        missing = objective["better"]["missing"]
        return [
            {
                "source": "rollout",
                "rollout": rollout.id,
                "objective": objective["value"],
                "harmed": harmed,
                "against": "production",
                "verdict": verdict,
                "difference": objective["difference"],
                "standard_error": None,
                "interval": objective["interval"],
                "sessions": units["control"] + units["treatment"],
                "cases": None,
                "missing": {"sessions": missing, "cases": None} if verdict is Judgement.NOT_ENOUGH_DATA else None,
            }
        ]

    async def between(self, session: AsyncSession, one: Evaluation, other: Evaluation) -> Paired:
        """Compare the versions of two evaluations that are done, on the cases that both were asked."""
        name = one.id, other.id
        if name not in self._known:
            self._known[name] = await pair(session, one, other, NAMED)
            while len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        return self._known[name]

    async def _against(self, session: AsyncSession, one: Evaluation, other: Evaluation) -> dict[str, Any]:
        found = await self.between(session, one, other)
        return {
            **_source(one),
            "against": CHAMPION,
            "champion": other.version,
            "champion_evaluation": other.id,
            "reason": found.reason,
            **found.judgement,
        }


def _source(one: Evaluation) -> dict[str, Any]:
    return {"source": "evaluation", "evaluation": one.id, "suite": one.suite}


def _compares(one: Evaluation) -> bool:
    return one.result is not None and one.result["against_production"] is not None


def _verdict(sources: Sequence[Mapping[str, Any]], champion: int | None) -> dict[str, Any]:
    production = _first([each for each in sources if each["against"] == "production"])
    over = None if champion is None else _first([each for each in sources if each["against"] == CHAMPION])
    verdict = production
    if over is Judgement.WORSE or (production is Judgement.NOT_ENOUGH_DATA and over is not None):
        verdict = Judgement.WORSE if production is Judgement.WORSE else over
    return {"verdict": verdict, "production": production, CHAMPION: over, "sources": list(sources)}


def _first(sources: Sequence[Mapping[str, Any]]) -> Judgement:
    said = {each["verdict"] for each in sources}
    return next((each for each in _ORDER if each in said), Judgement.NOT_ENOUGH_DATA)


def _in_words(found: Mapping[str, Any]) -> str:
    """The verdict with what its sources say."""
    told = []
    for each in found["sources"]:
        name = f"suite {each['suite']}" if each["source"] == "evaluation" else f"rollout {each['rollout']}"
        text = f"{name} against {each['against']}: {_words(each['verdict'])}, {each['sessions']} sessions"
        sessions = (each["missing"] or {}).get("sessions")
        text += f" and about {sessions} more needed" if sessions else ""
        told.append(text + (f" because {reason}" if (reason := each.get("reason")) else ""))
    return f"{_words(found['verdict'])} ({'; '.join(told) or 'no evaluation and no rollout compares it yet'})"


def _words(judgement: str) -> str:
    return judgement.replace("_", " ")
