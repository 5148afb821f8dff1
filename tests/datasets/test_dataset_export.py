"""Data sets made from a store: which answers become rows, and why the others do not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from dataset_store import NOW, Stored, stored
from scripted import completion, tool_call

from slipstream.datasets import erasure, folder
from slipstream.datasets.config import Dataset
from slipstream.datasets.export import export
from slipstream.datasets.folder import Manifest
from slipstream.datasets.row import Row
from slipstream.errors import ConfigError
from slipstream.settings.sidecar import Settings

EXACT = {"calculators": [{"exact_match": {"optional": True}}]}
"""Rewards by a reference that some tasks have."""


async def _exported(
    made: Stored, directory: Path, dataset: Mapping[str, Any], **sections: Any
) -> tuple[Manifest, dict[str, list[Row]]]:
    settings = Settings.model_validate({"store": {"url": made.url}, "rewards": EXACT, **sections})
    wanted = Dataset.model_validate({"name": "data", **dataset})
    manifest = await export(settings, wanted, directory, replace=True)
    rows = {split: list(folder.read_rows(directory / "data", split)) for split in ("train", "held_out")}
    return manifest, rows


def _texts(rows: list[Row]) -> list[Any]:
    return [row.answer.get("content", "") for row in rows]


async def test_answers_of_production_become_rows_and_what_cannot_be_taught_is_counted(tmp_path: Path) -> None:
    async with stored(tmp_path) as made:
        await made.task("plain")
        await made.task("cut", finish_reason="length")
        await made.task("lane", variant="version:3")
        await made.task("empty", "")
        await made.task("other model", request={"model": "another"})
        await made.task("same", "production's", request={"messages": [{"role": "user", "content": "about plain"}]})
        call = completion("c", "", [tool_call("look", {"for": "it"}, "drawn by lot")])
        await made.task("called", call, request={"tools": [{"type": "function", "function": {"name": "look"}}]})
        manifest, rows = await _exported(made, tmp_path / "sets", {"sources": [{"production": {"models": ["prod"]}}]})
    assert _texts(rows["train"]) == ["production's", ""]
    [function] = rows["train"][1].answer["tool_calls"]
    assert function["function"] == {"name": "look", "arguments": '{"for": "it"}'}
    assert rows["train"][1].tools == [{"type": "function", "function": {"name": "look"}}]
    assert manifest.dropped == {"answer not whole": 1, "empty answer": 1, "another model": 1, "duplicate": 1}
    assert manifest.counts.rows == {"train": 2, "held_out": 0}


async def test_filters_by_reward_feedback_label_time_and_tenant(tmp_path: Path) -> None:
    async with stored(tmp_path) as made:
        await made.task("right", "42", metadata={"reference": "42"}, labels=["vip"])
        await made.task("wrong", "41", metadata={"reference": "42"}, thumbs=1.0)
        await made.task("disliked", "x", thumbs=0.0)
        await made.task("theirs", "y", tenant="acme")

        async def texts(wanted: Mapping[str, Any], **more: Any) -> list[Any]:
            _, rows = await _exported(made, tmp_path / "sets", {"sources": [{"production": wanted}], **more})
            return _texts(rows["train"])

        assert await texts({"min_reward": 1.0}) == ["42"]
        assert await texts({"max_reward": 0.5}) == ["41"]
        assert await texts({"liked": True}) == ["41"]
        assert await texts({"liked": False}) == ["x"]
        assert await texts({"labels": ["vip"]}) == ["42"]
        assert await texts({"since": "1970-01-12T13:46:43Z"}) == ["x", "y"]  # the third second behind NOW
        assert await texts({}, tenants=["acme"]) == ["y"]
        kto = {"kind": "kto", "sources": [{"production": {}}]}
        _, rows = await _exported(made, tmp_path / "sets", kto)
        judged = [(row.answer["content"], row.good) for row in rows["train"]]
    assert judged == [("42", True), ("41", True), ("x", False)]


async def test_a_reference_is_that_of_the_last_answer_of_a_task_alone(tmp_path: Path) -> None:
    async with stored(tmp_path) as made:
        await made.task("a", "let me see", [("42", 1.0)], metadata={"reference": "42"}, then="42")
        _, rows = await _exported(made, tmp_path / "sets", {"sources": [{"production": {}}]})
        assert [(row.answer["content"], row.provenance.rewards) for row in rows["train"]] == [
            ("let me see", (None,)),
            ("42", (1.0,)),
        ]
        wanted = {"kind": "preference", "pairs": {"from": ["production_vs_policy"]}}
        manifest, _ = await _exported(made, tmp_path / "sets", wanted)
        assert manifest.dropped == {"production's answer has no reward": 1}


async def test_a_call_of_a_tool_before_the_last_answer_is_scored_by_all_that_do_not_compare_with_that(
    tmp_path: Path,
) -> None:
    look = {"name": "look", "arguments": {"for": "it"}}
    call = completion("c", "", [tool_call("look", {"for": "it"}, "drawn by lot")])
    request = {"tools": [{"type": "function", "function": {"name": "look"}}]}
    references = {"reference": "42", "tool_calls": [look], "steps": 2}
    async with stored(tmp_path) as made:
        await made.task("a", call, request=request, metadata=references, then="42")
        await made.task("b", call, request=request, metadata={**references, "reference": None}, then="42")

        async def scored(*calculators: str | dict[str, Any]) -> list[tuple[Any, set[str]]]:
            production = {"sources": [{"production": {}}]}
            _, rows = await _exported(made, tmp_path / "sets", production, rewards={"calculators": calculators})
            kept = [row.provenance for row in rows["train"]]
            return [(one.rewards[0], {key for key in one.breakdown if "." not in key}) for one in kept]

        tools = ("format", "tool_calls", "timing", "efficiency")
        assert (await scored(*tools))[0] == (1.0, set(tools))
        (first, parts), *_ = await scored("agent")
        assert (first, parts) == (1.0, {"agent"})
        assert await scored("exact_match") == [(None, set()), (1.0, {"exact_match"}), (None, set()), (None, set())]
        both = await scored("exact_match", "tool_calls")
        assert both[0] == (1.0, {"tool_calls"})
        assert [reward for reward, _ in both[2:]] == [None, None], "its reference is missing, and not optional"
        await made.task("c", call, request=request, metadata={"steps": 1}, then="42")
        assert [reward for reward, _ in await scored("efficiency")][4:] == [0.5, 0.5], "the second step is one too many"


async def test_the_best_runs_of_each_group_are_taught(tmp_path: Path) -> None:
    async with stored(tmp_path) as made:
        await made.task("one", runs=[("bad", 0.1), ("best", 0.9), ("good", 0.8)])
        await made.task("two", runs=[("weak", 0.2), ("weaker", 0.1)])
        await made.replay("agent", [(["first", "second"], 1.0), (["first", "third"], 0.0)])
        wanted = {"sources": [{"policy": {"best_of_group": 1, "min_reward": 0.5}}]}
        manifest, rows = await _exported(made, tmp_path / "sets", wanted)
    assert sorted(_texts(rows["train"])) == ["best", "first", "second"]
    by_text = {row.answer["content"]: row for row in rows["train"]}
    assert len(by_text["second"].prompt) == 3, "the conversation up to the second answer"
    best = by_text["best"].provenance
    assert (best.models, best.rewards, best.msg_ids) == (("version:3",), (0.9,), ("policy-one-1",))
    assert manifest.dropped == {"not the best of its group": 4, "reward below min_reward": 1}


async def test_pairs_of_runs_of_production_and_of_what_users_said(tmp_path: Path) -> None:
    async with stored(tmp_path) as made:
        known = {"reference": "42"}
        await made.task("a", "41", [("42", 1.0), ("40", 0.0), ("42", 1.0)], metadata=known)
        await made.task("liked", "42", [("39", 0.0)], metadata=known, thumbs=1.0)
        await made.task("close", "1", [("2", 0.5), ("3", 0.45)])
        await made.replay("agent", [(["same", "good"], 1.0), (["same", "bad"], 0.0)])

        async def pairs(*origins: str) -> list[tuple[Any, Any]]:
            wanted = {"kind": "preference", "pairs": {"from": list(origins), "min_margin": 0.2}}
            _, rows = await _exported(made, tmp_path / "sets", wanted)
            return sorted((row.answer["content"], (row.rejected or {})["content"]) for row in rows["train"])

        assert await pairs("runs") == [("42", "40"), ("good", "bad")]
        assert await pairs("production_vs_policy") == [("42", "39"), ("42", "41")]
        assert await pairs("thumbs") == [("42", "39")]


async def test_a_pair_with_production_has_the_rewards_that_it_was_chosen_by(tmp_path: Path) -> None:
    async with stored(tmp_path) as made:  # the store's rewards of the runs are of other calculators
        await made.task("a", "41", [("42", 0.3)], metadata={"reference": "42"})
        await made.task("b", "42", [("39", 0.7)], metadata={"reference": "42"}, thumbs=1.0)
        for source, pairs in (("production_vs_policy", 2), ("thumbs", 1)):
            wanted = {"kind": "preference", "pairs": {"from": [source], "min_margin": 0.2}}
            manifest, rows = await _exported(made, tmp_path / "sets", wanted)
            assert [row.provenance.rewards for row in rows["train"]] == [(1.0, 0.0)] * pairs
            assert [row.provenance.breakdown["exact_match"] for row in rows["train"]] == [1.0] * pairs
            assert manifest.counts.rejected_rewards is not None
            assert manifest.counts.rejected_rewards.most == 0.0


async def test_answers_that_the_policy_cannot_be_asked_for_make_no_pair(tmp_path: Path) -> None:
    async with stored(tmp_path) as made:
        question = {"messages": [{"role": "user", "content": "?"}]}
        await made.task("liked", "yes", session="s", request=question, thumbs=1.0, problem="history_unseen")
        await made.task("disliked", "no", session="s", request=question, thumbs=0.0)
        await made.task("again", "sure", session="s", request=question, thumbs=1.0)
        wanted = {"kind": "preference", "pairs": {"from": ["thumbs"], "min_margin": 0.2}}
        manifest, rows = await _exported(made, tmp_path / "sets", wanted)
        assert [(row.answer["content"], (row.rejected or {})["content"]) for row in rows["train"]] == [("sure", "no")]
        assert manifest.dropped == {"policy cannot be asked: history_unseen": 1}


async def test_thoughts_are_taught_if_the_policy_had_them(tmp_path: Path) -> None:
    def thinking(answer: str, thought: str, name: str = "reasoning_content") -> dict[str, Any]:
        return {"role": "assistant", "content": answer, name: thought}

    async with stored(tmp_path) as made:
        await made.replay("agent", [([thinking("first", "hm"), thinking("good", "so", "reasoning")], 1.0)])
        asked = {
            "messages": [{"role": "user", "content": "?"}, thinking("a", "theirs"), {"role": "user", "content": "!"}]
        }
        answer = completion("p", "")
        answer["choices"][0]["message"] = thinking("b", "theirs too")
        await made.task("of production", answer, request=asked)

        wanted = {"sources": [{"policy": {}}]}
        _, rows = await _exported(made, tmp_path / "sets", wanted)
        one, two = rows["train"]
        assert [one.answer["reasoning_content"], two.answer["reasoning_content"]] == ["hm", "so"]
        assert two.prompt[1]["reasoning_content"] == "hm", "as the agent sent it"
        manifest, rows = await _exported(made, tmp_path / "sets", {**wanted, "format": "openai"})
        assert (rows["train"], manifest.dropped) == ([], {"format_cannot_say:reasoning": 2})

        _, rows = await _exported(made, tmp_path / "sets", {"sources": [{"production": {}}]})
        [row] = [row for row in rows["train"] if row.answer["content"] == "b"]
        assert "theirs" not in json.dumps([*row.prompt, row.answer])


async def test_a_pair_of_runs_has_the_thoughts_of_both_and_one_with_production_none(tmp_path: Path) -> None:
    def thinking(text: str) -> dict[str, Any]:
        return {"role": "assistant", "content": text, "reasoning_content": f"is it {text}?"}

    async with stored(tmp_path) as made:
        await made.replay("agent", [([thinking("42")], 1.0), ([thinking("41")], 0.0)])
        known = completion("k", "")
        known["choices"][0]["message"] = thinking("41")
        await made.task("a", known, [(thinking("42"), 0.0)], metadata={"reference": "42"})

        async def thoughts(source: str) -> list[list[Any]]:
            wanted = {"kind": "preference", "pairs": {"from": [source], "min_margin": 0.2}}
            _, rows = await _exported(made, tmp_path / "sets", wanted)
            return [
                [each.get("reasoning_content") for each in (row.answer, row.rejected or {})] for row in rows["train"]
            ]

        assert await thoughts("runs") == [["is it 42?", "is it 41?"]]
        assert await thoughts("production_vs_policy") == [[None, None]]


async def test_a_row_has_the_tools_that_the_model_was_shown(tmp_path: Path) -> None:
    def function(name: str) -> dict[str, Any]:
        return {"type": "function", "function": {"name": name}}

    def among(*names: str) -> dict[str, Any]:
        allowed = {"mode": "auto", "tools": [function(name) for name in names]}
        return {"type": "allowed_tools", "allowed_tools": allowed}

    tools = [function("look"), function("take")]
    choices: list[tuple[Any, list[str]]] = [
        ("auto", ["look", "take"]),
        ("required", ["look", "take"]),
        ("none", []),
        (function("take"), ["take"]),
        (among("look"), ["look"]),
    ]
    async with stored(tmp_path) as made:
        for place, (choice, _) in enumerate(choices):
            await made.task(f"{place}", request={"tools": tools, "tool_choice": choice})
        for name, choice in (("other", function("fly")), ("others", among("fly")), ("custom", {"type": "custom"})):
            await made.task(name, request={"tools": tools, "tool_choice": choice})
        await made.task("template", request={"chat_template_kwargs": {"enable_thinking": False}})
        await made.task("empty", request={"chat_template_kwargs": {}})
        manifest, rows = await _exported(made, tmp_path / "sets", {"sources": [{"production": {}}]})
    shown = [[tool["function"]["name"] for tool in row.tools] for row in rows["train"]]
    assert shown == [*(names for _, names in choices), []]
    assert manifest.dropped == {"tool_choice": 3, "chat_template_kwargs": 1}


async def test_names_of_tool_calls_that_servers_draw_make_no_difference(tmp_path: Path) -> None:
    def asked(drawn: str, city: str = "Rome") -> dict[str, Any]:
        function = {"name": "weather", "arguments": json.dumps({"city": city})}
        called = {"role": "assistant", "tool_calls": [{"id": drawn, "type": "function", "function": function}]}
        result = {"role": "tool", "content": "sunny", "tool_call_id": drawn}
        return {"messages": [{"role": "user", "content": "?"}, called, result, called, result]}

    async with stored(tmp_path) as made:
        await made.task("a", "Sunny.", request=asked("call_Jq3"))
        await made.task("b", "Sunny.", request=asked("call_9xZ"))
        await made.task("c", "Sunny.", request=asked("call_9xZ", "Oslo"))
        manifest, rows = await _exported(made, tmp_path / "sets", {"sources": [{"production": {}}]})
        assert manifest.dropped == {"duplicate": 1}
        one, _ = rows["train"]
        names = [message.get("tool_call_id") or message["tool_calls"][0]["id"] for message in one.prompt[1:]]
        assert names == ["call_0", "call_0", "call_1", "call_1"]

        def steps(drawn: str, said: str) -> list[Any]:
            function = {"name": "weather", "arguments": "{}"}
            call = {"role": "assistant", "tool_calls": [{"id": drawn, "type": "function", "function": function}]}
            return [(call, {"role": "tool", "content": "rain", "tool_call_id": drawn}), said]

        await made.replay("agent", [(steps("x1", "good"), 1.0), (steps("y2", "bad"), 0.0)])
        _, rows = await _exported(
            made, tmp_path / "sets", {"kind": "preference", "pairs": {"from": ["runs"], "min_margin": 0.2}}
        )
        assert [(row.answer["content"], (row.rejected or {})["content"]) for row in rows["train"]] == [("good", "bad")]


async def test_a_run_that_was_cut_leaves_its_place_in_a_pair_to_the_next(tmp_path: Path) -> None:
    async with stored(tmp_path) as made:
        cut = completion("cut", "on and on and")
        cut["choices"][0]["finish_reason"] = "length"
        await made.replay("t", [(["good"], 1.0), ([cut], 0.0), (["bad"], 0.1)])
        await made.replay("all cut", [(["good"], 1.0), ([cut], 0.0)])
        wanted = {"kind": "preference", "pairs": {"from": ["runs"], "min_margin": 0.2, "per_group": 1}}
        manifest, rows = await _exported(made, tmp_path / "sets", wanted)
        assert [(row.answer["content"], (row.rejected or {})["content"]) for row in rows["train"]] == [("good", "bad")]
        assert manifest.dropped == {"answer not whole": 1}


async def test_held_out_sessions_are_the_same_ones_each_time_and_stay_whole(tmp_path: Path) -> None:
    async with stored(tmp_path) as made:
        for number in range(60):
            await made.task(f"task {number}", f"answer {number}", session=f"session {number // 3}")
        wanted = {"sources": [{"production": {}}], "held_out": {"share": 0.3}}
        manifest, rows = await _exported(made, tmp_path / "sets", wanted)
        held = {row.provenance.session for row in rows["held_out"]}
        assert 0 < len(held) < 20
        assert not held & {row.provenance.session for row in rows["train"]}
        assert manifest.about["held_out"]["kept_from_reinforcement_learning"] is False
        again, _ = await _exported(made, tmp_path / "sets", wanted)
        assert again.digest == manifest.digest
        by_sidecar = {"sources": [{"production": {}}]}
        with pytest.raises(ConfigError, match=r"dataset.held_out.share: expected at least 0.4"):
            await _exported(made, tmp_path / "sets", wanted, datasets={"held_out": 0.4})
        same, _ = await _exported(made, tmp_path / "sets", by_sidecar, datasets={"held_out": 0.3})
        assert same.counts.rows == manifest.counts.rows
        assert same.about["held_out"]["kept_from_reinforcement_learning"] is True


async def test_a_deletion_reaches_data_sets_and_an_export_that_was_reading(tmp_path: Path) -> None:
    directory = tmp_path / "sets"
    async with stored(tmp_path) as made:
        await made.task("one", "first", session="s")
        await made.task("two", "second", session="t")
        _, rows = await _exported(made, directory, {"sources": [{"production": {}}]})
        assert _texts(rows["train"]) == ["first", "second"]
        assert erasure.erase(directory, erasure.deletion("session_id", "s", NOW + 100)).rows == {"data": 1}
        assert _texts(list(folder.read_rows(directory / "data", "train"))) == ["second"]
        later = erasure.deletion("session_id", "t", NOW - 100)
        assert erasure.erase(directory, later).rows == {}, "its task began after the deletion"
        # here the store still has both, as an export has that read them before they were deleted
        erasure.erase(directory, erasure.deletion("task_id", "two", NOW + 100))
        manifest, rows = await _exported(made, directory, {"sources": [{"production": {}}]})
        assert rows == {"train": [], "held_out": []}
        assert manifest.counts.rows["train"] == 0
    elsewhere = tmp_path / "copy"
    async with stored(tmp_path) as made:
        await _exported(made, elsewhere, {"sources": [{"production": {}}]})
    assert erasure.apply_notes(elsewhere, directory / erasure.NOTES).rows == {"data": 2}
    torn = directory / "data" / "train.provenance.jsonl"
    torn.write_text("no JSON\n")
    (directory / "other").mkdir()  # no data set
    applied = erasure.erase(directory, erasure.deletion("task_id", "one", 9e9))
    assert list(applied.failed) == ["data"], "one that cannot be read is named, and stops nothing"
    (directory / erasure.NOTES).write_text('{"kind": "task_id"}\n')
    with pytest.raises(erasure.NotesError, match=r"erased.jsonl, line 1: expected a deletion"):
        erasure.apply_notes(directory)


async def test_a_store_that_is_not_there_or_of_another_release_is_refused(tmp_path: Path) -> None:
    nothing = Stored(f"sqlite+aiosqlite:///{tmp_path / 'none.db'}")
    with pytest.raises(ConfigError, match=r"store.url: expected a store, found no file"):
        await _exported(nothing, tmp_path / "sets", {"sources": [{"production": {}}]})
    assert folder.list_folders(tmp_path / "sets") == []
    assert not (tmp_path / "none.db").exists()


async def test_the_latest_note_of_a_deletion_counts_whatever_order_they_stand_in(tmp_path: Path) -> None:
    async with stored(tmp_path) as made:
        await made.task("one", "first", session="s")
        await _exported(made, tmp_path / "sets", {"sources": [{"production": {}}]})
    earlier = tmp_path / "erased-elsewhere.jsonl"
    for path, at in ((tmp_path / "sets" / erasure.NOTES, NOW + 100), (earlier, NOW - 100)):
        path.write_text(json.dumps(asdict(erasure.deletion("session_id", "s", at))) + "\n")
    assert erasure.apply_notes(tmp_path / "sets", earlier).rows == {"data": 1}
