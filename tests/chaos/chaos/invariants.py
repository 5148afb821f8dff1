"""The invariants of the design, checked from the outside once everything is healed, settled and ended."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator

from stores import stored_rows

from chaos import remains
from chaos.endpoint import part_of
from chaos.explorers import Effect
from chaos.record import Answer
from chaos.sent import Sent, answers_sent
from chaos.settings import CALCULATED
from chaos.world import World

_WITHOUT_EFFECT = {
    "feedback": "SELECT feedback_id FROM feedback_targets WHERE state = 'waiting' AND (kind = 'msg_id' AND ref IN "
    "(SELECT msg_id FROM calls) OR kind = 'task_id' AND ref IN (SELECT task_id FROM calls))",
    "mark": "SELECT m.id, m.created_at, m.expires_at, t.created_at FROM marks m JOIN tasks t ON t.id = m.task_id "
    "WHERE m.state = 'waiting' AND t.created_at < m.expires_at",
}
"""What was said of an answer and did not find it, though both are stored."""
_NAMES = {
    "tasks": "id, session_id",
    "calls": "task_id",
    "groups": "task_id",
    "marks": "task_id",
    "feedback_targets": "ref",
    "facade_groups": "task_id",
}
"""Where the store has the names of tasks and sessions, besides that they were deleted."""
_LOSE_CAPTURES = (
    "sidecar_killed",
    "parent_killed",
    "training_killed",
    "training_hung",
    "worker_killed",
    "sidecar_stopped",
    "training_stopped",
    "store_read_only",
)
"""Faults that end processes, or drop them from their lease, with captured calls that are not stored yet."""
_AFTER = 2.5
"""Seconds after a fault in which answers may still show it: the longest timeout, and a restart."""


async def violations(world: World) -> list[str]:
    """What does not hold; empty where all does."""
    sent = answers_sent(world.production_log)
    found = list(world.record.wrong)
    found += _answers(world, sent)
    found += await _acknowledged(world)
    found += await _effects(world, world.explorer.effects())
    found += await _captured(world, sent)
    found += await _erased(world)
    found += await _as_agents_said(world)
    found += await _poisoned(world)
    found += await remains.readable(world)
    return found


def _answers(world: World, sent: dict[str, Sent]) -> Iterator[str]:
    """Production's bytes and nothing else, and only production's own faults are felt."""
    for answer in world.record.answers:
        who = f"answer {answer.number} to {answer.prompt!r}"
        if answer.number is None:
            if (
                answer.status is not None
                and answer.whole
                and answer.refusal
                not in (
                    "upstream_unreachable",
                    "upstream_timeout",
                )
            ):
                yield f"{who}: {answer.status} {bytes(answer.body[:200])!r}, which production did not say"
        elif (original := sent.get(answer.number)) is None:
            yield f"{who}: production never gave it"
        elif original.prompt != answer.prompt or original.status != answer.status:
            yield f"{who}: production's was {original.status} to {original.prompt!r}"
        elif not original.body.startswith(answer.body):
            yield f"{who}: other bytes than production's"
        elif answer.whole and not (original.ended and original.body == answer.body):
            yield f"{who}: seems whole, and is cut"
        if not _well(answer) and not answer.left and not _excused(world, answer):
            yield f"{who}: failed while nothing of production's was broken: {answer.status} {answer.error}"


def _well(answer: Answer) -> bool:
    return answer.whole and answer.status == 200


def _excused(world: World, answer: Answer) -> bool:
    return any(answer.began <= until + _AFTER and answer.ended >= begun for begun, until in world.harmful)


async def _acknowledged(world: World) -> list[str]:
    """What got a 2xx is in the store."""
    record, found = world.record, []
    for table, ids in (("feedback", record.feedback), ("marks", record.marks)):
        stored = {row[0] for row in await stored_rows(world.store_url, f"SELECT id FROM {table}")}
        found += [f"{table} {one} was acknowledged and is lost" for one in ids if one not in stored]
    for one, query in _WITHOUT_EFFECT.items():
        found += [f"{one} {row} waits for what is there" for row in await stored_rows(world.store_url, query)]
    query = "SELECT g.task_id, r.run_id, r.state, r.reward FROM runs r JOIN groups g ON g.id = r.group_id"
    rows = await stored_rows(world.store_url, f"{query} WHERE g.kind = 'agent_replay'")
    runs = {(task, run): (state, reward) for task, run, state, reward in rows}
    for (task, run), reward in record.finished.items():
        if task in record.erased:
            continue
        state, stored_reward = runs.get((task, run), (None, None))
        if state == "scored" and stored_reward is not None and math.isclose(stored_reward, reward):
            continue
        if state != "failed":
            found.append(f"run {run} of {task} was ended with {reward}: it is {state} with {stored_reward}")
    rows = await stored_rows(world.store_url, "SELECT msg_id, reward FROM facade_answers")
    rewards = dict(rows)
    for msg_id, reward in record.facade.items():
        if rewards.get(msg_id) is None or not math.isclose(rewards[msg_id], reward):
            found.append(f"the facade acknowledged {reward} for {msg_id}: it has {rewards.get(msg_id)}")
    return found


async def _effects(world: World, effects: list[Effect]) -> list[str]:
    """What the Explorer handed to the Trainer: whole groups, once each, in one commit, with the stored rewards."""
    found = []
    for msg_id, times in Counter(effect.msg_id for effect in effects).items():
        if times > 1:
            found.append(f"{msg_id} had effect {times} times")
    groups: dict[str, list[Effect]] = defaultdict(list)
    for effect in effects:
        if effect.reward is None or not math.isfinite(effect.reward) or not 0 <= effect.reward <= 1:
            found.append(f"{effect.msg_id} had the reward {effect.reward}")
        groups[str(effect.group_id)].append(effect)
    expected, states = await _expected(world)
    told, uncertain = _told(world)
    unsure = {task for task, answer in world.record.erased.items() if answer is None}
    for group, parts in groups.items():
        commits = {part.commit for part in parts}
        if len(commits) > 1:
            found.append(f"{group} went out in {len(commits)} commits")
        if group not in states:
            known = told.get(group, uncertain.get(group))
            if _task(group) not in unsure and known != {part.msg_id for part in parts}:
                found.append(f"{group} was trained on, and is neither in the store nor told by its deletion")
        elif {part.msg_id for part in parts} != set(expected[group]):
            missing = set(expected[group]) ^ {part.msg_id for part in parts}
            found.append(f"{group} ({states[group]}) was trained in part: {sorted(missing)}")
        else:
            wrong = [part for part in parts if not math.isclose(part.reward or 0, expected[group][part.msg_id])]
            found += [f"{part.msg_id} had the reward {part.reward}, stored is another" for part in wrong]
    for group, state in states.items():
        if state == "delivered" and group not in groups:
            found.append(f"{group} is delivered, and had no effect")
        if state not in ("delivered", "rerun", "lost", "dropped"):
            found.append(f"{group} is still {state}")
    found += [f"{group} was told by its deletion, and had no effect" for group in told if group not in groups]
    replayed = {(_task(str(part.group_id)), part.run_id) for part in effects if ".replay" in str(part.group_id)}
    for task, run in world.record.broken & replayed:
        found.append(f"run {run} of {task} was trained on, though its agent missed an answer")
    return found


def _task(group: str) -> str:
    """The task of a group; those of the agents have no dot."""
    return group.partition(".")[0]


def _told(world: World) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """What deletions said that the Explorer had been given, by group: with effect, and with none that is known."""
    delivered: dict[str, set[str]] = {}
    uncertain: dict[str, set[str]] = {}
    for answer in world.record.erased.values():
        if answer is not None:
            said = answer["explorer"]
            delivered |= {group["group_id"]: set(group["msg_ids"]) for group in said["delivered"]["groups"]}
            uncertain |= {group["group_id"]: set(group["msg_ids"]) for group in said["uncertain"]}
    return delivered, uncertain


async def _expected(world: World) -> tuple[dict[str, dict[str, float]], dict[str, str]]:
    """Of each group: the answers of its scored runs with their rewards, and its state."""
    url = world.store_url
    expected: dict[str, dict[str, float]] = defaultdict(dict)
    query = "SELECT r.group_id, r.msg_id, r.reward FROM runs r JOIN groups g ON g.id = r.group_id"
    for group, msg_id, reward in await stored_rows(url, f"{query} WHERE g.kind = 'shadow_call' AND r.state = 'scored'"):
        expected[group][msg_id] = reward
    query = "SELECT r.group_id, c.msg_id, r.reward FROM runs r JOIN run_calls c ON c.run_pk = r.id"
    for group, msg_id, reward in await stored_rows(url, f"{query} WHERE r.state = 'scored'"):
        expected[group][msg_id] = reward
    query = "SELECT group_id, msg_id, reward FROM facade_answers WHERE reward IS NOT NULL AND group_id IS NOT NULL"
    for group, msg_id, reward in await stored_rows(url, query):
        expected[group][msg_id] = reward
    states = dict(await stored_rows(url, "SELECT id, state FROM groups"))
    return expected, states | dict(await stored_rows(url, "SELECT id, state FROM facade_groups"))


async def _captured(world: World, sent: dict[str, Sent]) -> list[str]:
    """No answer that was cut is stored as a call, from which experience would be made."""
    whole = {f"prod-{number}" for number, one in sent.items() if one.whole}
    rows = await stored_rows(world.store_url, "SELECT msg_id FROM calls")
    return [f"the call {msg_id} is stored, and its answer was cut" for (msg_id,) in rows if msg_id not in whole]


async def _erased(world: World) -> list[str]:
    """Of a session whose deletion was acknowledged nothing is in the store."""
    erased = {task for task, told in world.record.erased.items() if told is not None}
    erased |= {f"{task}-session" for task in erased}
    found = []
    for table, columns in _NAMES.items():
        for row in await stored_rows(world.store_url, f"SELECT {columns} FROM {table}"):
            found += [f"{one} was deleted, and is in {table}" for one in erased.intersection(row)]
    return found


async def _poisoned(world: World) -> list[str]:
    """Poison is set apart, refused, or read like anything else; what came with it and behind it is trained on."""
    if not world.struck["poison"]:
        return []
    url, found = world.store_url, []
    query = "SELECT id FROM tasks WHERE state = 'quarantined' UNION ALL SELECT g.task_id FROM runs r "
    query += "JOIN groups g ON g.id = r.group_id WHERE r.state = 'quarantined'"
    apart = [task for (task,) in await stored_rows(url, query)]
    found += [f"{task} is set apart, and is no poison" for task in apart if not task.startswith("poison-")]
    [(exchanges,)] = await stored_rows(url, "SELECT count(*) FROM quarantined_exchanges")
    if exchanges > world.struck["poison"]:
        found.append(f"{exchanges} exchanges are set apart, and {world.struck['poison']} were poisoned")
    if not world.schedule.has(*_LOSE_CAPTURES):
        stored = {task for (task,) in await stored_rows(url, "SELECT task_id FROM calls")}
        found += [f"{task} came behind poison, and is not stored" for task in world.record.behind_poison - stored]
    return found


async def _as_agents_said(world: World) -> list[str]:
    """The reward of a run that the endpoint was told of is what its agent said, or the calculator's."""
    query = "SELECT g.task_id, r.run_id, r.reward FROM runs r JOIN groups g ON g.id = r.group_id "
    query += "WHERE g.kind = 'agent_replay' AND NOT g.by_client AND r.state = 'scored'"
    rows = await stored_rows(world.store_url, query)
    said = [part_of(task, run).ending for task, run, _ in rows]
    return [
        f"run {run} of {task} has the reward {reward}, and its agent said {ending}"
        for (task, run, reward), ending in zip(rows, said, strict=True)
        if "error" in ending or not math.isclose(reward, ending.get("reward", CALCULATED))
    ]
