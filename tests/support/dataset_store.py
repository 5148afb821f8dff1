"""A store with what data sets are made of: answers of production, scored runs of the policy, and what users said."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from scripted import completion

from slipstream.dialects.form import Problem
from slipstream.store.bodies import pack
from slipstream.store.database import Database
from slipstream.store.shadow_requests import packed
from slipstream.store.states import FeedbackState, GroupState, RunState, TaskState
from slipstream.store.tables.capture import CallRow, TaskRow
from slipstream.store.tables.feedback import FeedbackRow, FeedbackTargetRow
from slipstream.store.tables.runs import GroupRow, RunCallRow, RunRow
from slipstream.tenants import DEFAULT, qualified

NOW = 1_000_000.0


class Stored:
    """Tasks in a store, each made by one call; times rise by a second from one to the next."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._database = Database(url)
        self._numbers = itertools.count(1)

    async def task(
        self,
        name: str,
        answer: str | Mapping[str, Any] = "production's",
        runs: Sequence[tuple[Any, float]] = (),
        *,
        session: str | None = None,
        tenant: str = DEFAULT,
        thumbs: float | None = None,
        comment: str | None = None,
        labels: Sequence[str] = (),
        metadata: Mapping[str, Any] | None = None,
        request: Mapping[str, Any] | None = None,
        finish_reason: str = "stop",
        variant: str | None = None,
        then: str | None = None,
        problem: Problem | None = None,
    ) -> None:
        """Have a task with one call, and a group of shadow runs with their rewards.

        Args:
            runs: their answers, as of `replay`, and rewards.
            then: answer of a second call.
            problem: the reason why the policy cannot be asked this.
            thumbs, comment: reward that a user gave to production's answer, and words.
        """
        at = NOW + next(self._numbers)
        ref = qualified(tenant, name)
        asked = {"model": "prod", "messages": [{"role": "user", "content": f"about {name}"}], **(request or {})}
        said = completion(f"prod-{name}", answer) if isinstance(answer, str) else dict(answer)
        said["choices"][0]["finish_reason"] = finish_reason
        async with self._database.write() as write:
            write.add(
                TaskRow(
                    id=ref, session_id=qualified(tenant, session or f"session of {name}"), tenant=tenant,
                    state=TaskState.COMPLETE, decided=True, labels=list(labels), meta=dict(metadata or {}),
                    created_at=at, updated_at=at,
                )
            )  # fmt: skip
            await write.flush()
            call = CallRow(
                task_id=ref, position=0, msg_id=qualified(tenant, f"prod-{name}"), request=pack(asked), latency=0.5,
                variant=variant, answer=pack(said), started_at=at, problem=problem,
            )  # fmt: skip
            write.add(call)
            await write.flush()
            if then is not None:
                write.add(
                    CallRow(
                        task_id=ref, position=1, msg_id=qualified(tenant, f"then-{name}"), request=pack(asked),
                        latency=0.5, answer=pack(completion(f"then-{name}", then)), started_at=at,
                    )
                )  # fmt: skip
                await write.flush()
            if runs:
                write.add(
                    GroupRow(
                        id=f"{ref}.0", task_id=ref, call_id=call.id, state=GroupState.DELIVERED, updated_at=at
                    )
                )  # fmt: skip
                await write.flush()
            for number, (text, reward) in enumerate(runs):
                write.add(
                    RunRow(
                        group_id=f"{ref}.0", run_id=number, state=RunState.SCORED, policy_version=3,
                        msg_id=f"policy-{name}-{number}", request=packed({**asked, "model": "policy"}, asked),
                        answer=pack(_answer(f"policy-{name}-{number}", text)), reward=reward,
                        breakdown={"exact_match": reward}, updated_at=at,
                    )
                )  # fmt: skip
            if thumbs is not None or comment is not None:
                write.add(FeedbackRow(id=f"feedback-{ref}", reward=thumbs, comment=comment, created_at=at))
                await write.flush()
                write.add(
                    FeedbackTargetRow(
                        feedback_id=f"feedback-{ref}", kind="task_id", ref=ref, state=FeedbackState.MATCHED,
                        matched_to="production", call_pk=call.id,
                    )
                )  # fmt: skip

    async def replay(self, name: str, runs: Sequence[tuple[Sequence[Any], float]]) -> None:
        """Have a task whose agent was run again: of each run its answers, to a conversation that grows, and its
        reward. An answer is its text, a message with what the agent says to it, or a whole completion."""
        await self.task(name)
        async with self._database.write() as write:
            write.add(
                GroupRow(
                    id=f"{name}.replay", task_id=name, kind="agent_replay", state=GroupState.DELIVERED, updated_at=NOW
                )
            )  # fmt: skip
            await write.flush()
            for number, (answers, reward) in enumerate(runs):
                run = RunRow(
                    group_id=f"{name}.replay", run_id=number, state=RunState.SCORED, policy_version=3,
                    msg_id=f"{name}-{number}", reward=reward, breakdown={}, updated_at=NOW,
                )  # fmt: skip
                write.add(run)
                await write.flush()
                messages: list[dict[str, Any]] = [{"role": "user", "content": f"about {name}"}]
                for step, given in enumerate(answers):
                    said, reply = given if isinstance(given, tuple) else (given, None)
                    write.add(
                        RunCallRow(
                            run_pk=run.id, msg_id=f"{name}-{number}-{step}", choices=1, latency=0.1, policy_version=3,
                            request=pack({"model": "policy", "messages": messages}), started_at=NOW + step,
                            answer=pack(_answer(f"{name}-{number}-{step}", said)),
                        )
                    )  # fmt: skip
                    message = said if isinstance(said, dict) else {"role": "assistant", "content": said}
                    messages = [*messages, message, reply or {"role": "user", "content": f"and {step}?"}]


def _answer(msg_id: str, said: Any) -> dict[str, Any]:
    if isinstance(said, dict) and "choices" in said:
        return said
    answer = completion(msg_id, "" if isinstance(said, dict) else said)
    if isinstance(said, dict):
        answer["choices"][0]["message"] = said
    return answer


@asynccontextmanager
async def stored(folder: Path) -> AsyncIterator[Stored]:
    """A store in a file that no sidecar has."""
    url = f"sqlite+aiosqlite:///{folder / 'slipstream.db'}"
    database = Database(url)
    await database.open()
    await database.close()
    filling = Stored(url)
    try:
        yield filling
    finally:
        await filling._database.close()
