"""Imported conversations in the store: whole, once, redacted, never trained on by accident, and erased like others."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from commands import slipstream
from loops import Loop, RunLoop
from serving import until
from shared_by_tenants import RunShared
from stores import ON_BOTH_STORES, stored_rows

from slipstream.datasets.imports import openai_chat
from slipstream.datasets.imports.conversation import Conversation, ImportedCall, ImportedTask, Options, Place
from slipstream.datasets.imports.files import open_records
from slipstream.datasets.imports.upload import Choices, Outcome, upload
from slipstream.evaluation.cases import read_cases
from slipstream.store import heldout
from slipstream.store.database import Database
from slipstream.terminal.sidecar_http import SidecarAway
from slipstream.terminal.sidecar_http import client as open_client

DONE = {"state": "imported", "calls": 1, "feedback": 0, "field": None, "reason": None}
FILES = Path(__file__).parent / "files"
LANGFUSE = (str(FILES / "langfuse_api.json"), str(FILES / "langfuse_scores.json"))
ROWS = "SELECT count(*) FROM "


async def imported(loop: Loop, *words: str) -> tuple[int, str, str]:
    code, out, err = await slipstream("dataset", "import", *words, "--url", loop.url)
    return code, out, "".join(line for line in err.splitlines(True) if not line.startswith("{"))  # no logs


async def tasks(loop: Loop, **filters: str) -> list[dict[str, Any]]:
    """The tasks, whole, by the ids that they had where they came from."""
    listed = (await loop.client.get("/tasks", params={"limit": "200", **filters})).json()["tasks"]
    found = [await loop.task(each["task_id"]) for each in listed]
    whole = [each for each in found if each is not None]
    return sorted(whole, key=lambda task: str(task["metadata"].get("import", {}).get("id")))


def one(session: str | None = None, said: str = "hello", answer: str = "hi", **fields: Any) -> dict[str, Any]:
    """A conversation of one call, as `POST /imports` takes it."""
    request = {"model": "m", "messages": [{"role": "user", "content": said}]}
    call = {"request": request, "answer": {"role": "assistant", "content": answer}, **fields}
    return {"tasks": [{"calls": [call]}]} | ({} if session is None else {"session_id": session})


async def posted(loop: Loop, *conversations: dict[str, Any], **fields: Any) -> list[dict[str, Any]]:
    response = await loop.client.post("/imports", json={"source": "test", "conversations": conversations, **fields})
    assert response.status_code == 200, response.text
    results: list[dict[str, Any]] = response.json()["results"]
    return results


@ON_BOTH_STORES
async def test_an_export_becomes_a_session_with_tasks_calls_and_feedback_once(
    run_loop: RunLoop, store_url: str
) -> None:
    async with run_loop() as loop:
        code, out, err = await imported(loop, *LANGFUSE, "--format", "langfuse", "--label", "spring")
        assert (code, err) == (0, "")
        assert "imported 1 conversations with 3 calls and 2 judgements" in out
        first, second = await tasks(loop, session_id="visit-1", label="imported:langfuse")
        assert sorted(first["labels"]) == ["imported", "imported:langfuse", "spring"]
        assert (first["selected"], first["reason"]) == (False, "imported")
        origin = first["metadata"]["import"]
        assert origin == {
            "file": "langfuse_api.json", "line": origin["line"], "id": "t-1", "at": "2026-03-01T12:00:01+00:00",
        }  # fmt: skip
        assert len(first["calls"]) == 2
        assert [entry["reward"] for entry in first["feedback"]] == [0.75], "of the trace: its last answer's"
        assert [(entry["thumbs"], entry["source"]) for entry in second["feedback"]] == [("down", "langfuse: helpful")]

        before = await stored_rows(store_url, ROWS + "calls")
        code, out, _ = await imported(loop, *LANGFUSE, "--format", "langfuse", "--label", "spring")
        assert code == 0
        assert "imported 0 conversations with 0 calls and 0 judgements; 1 were there already" in out
        assert await stored_rows(store_url, ROWS + "calls") == before
        assert await stored_rows(store_url, ROWS + "feedback") == [(2,)]
        assert await stored_rows(store_url, ROWS + "groups") == [(0,)], "though each captured task is selected"
        audit = (await loop.client.get("/audit", params={"action": "import"})).json()["entries"]
        assert [entry["names"] for entry in audit] == [["visit-1"]]


async def test_what_grew_since_an_import_is_added_to_its_task(run_loop: RunLoop, tmp_path: Path) -> None:
    page = json.loads((FILES / "langfuse_api.json").read_text())["data"]
    some = tmp_path / "some.jsonl"
    some.write_text("".join(json.dumps(each) + "\n" for each in page if each["id"] == "o-1"))
    async with run_loop() as loop:
        assert (await imported(loop, str(some), "--format", "langfuse"))[0] == 0
        [task] = await tasks(loop)
        assert task["state"] == "open", "it ended with a tool call"
        code, out, _ = await imported(loop, LANGFUSE[0], "--format", "langfuse")
        assert code == 0
        assert "imported 1 conversations with 2 calls" in out
        grown, _ = await tasks(loop)
        assert grown["task_id"] == task["task_id"]
        assert (grown["state"], len(grown["calls"]), grown["selected"]) == ("complete", 2, False)


async def test_a_conversation_that_grew_is_stored_as_it_was_said(run_loop: RunLoop) -> None:
    turns = [[{"role": "user", "content": f"q{n}"}, {"role": "assistant", "content": f"a{n}"}] for n in range(5)]
    first = [{"role": "system", "content": "s"}, turns[0][0], turns[0][1], turns[1][0]]
    tasks_ = [{"id": "0", "calls": [{"request": {"messages": first}, "answer": turns[1][1]}]}]
    for n in (2, 3, 4):
        call = {"request": {"messages": [turns[n][0]]}, "answer": turns[n][1], "goes_on": True}
        tasks_.append({"id": str(n), "calls": [call]})
    async with run_loop() as loop:
        grown = [await posted(loop, {"id": "c", "session_id": "s", "tasks": tasks_[:some]}) for some in (2, 4)]
        assert [result["calls"] for [result] in grown] == [2, 2]
        longest = max(await tasks(loop, session_id="s"), key=lambda task: len(task["conversation"]))
        assert longest["conversation"] == [first[0], *(each for turn in turns[:4] for each in turn), turns[4][0]]


async def test_each_format_comes_into_the_store(run_loop: RunLoop, tmp_path: Path) -> None:
    chat = tmp_path / "chat.jsonl"
    turns = [{"role": role, "content": f"{role} {n}"} for n in range(30) for role in ("user", "assistant")]
    chat.write_text(json.dumps({"messages": turns}) + "\n" + json.dumps({"messages": turns}) + "\n")
    pairs = tmp_path / "pairs.jsonl"
    outputs = {name: [{"role": "assistant", "content": name}] for name in ("preferred_output", "non_preferred_output")}
    pairs.write_text(json.dumps({"input": {"messages": turns[:1]}, **outputs}) + "\n")
    async with run_loop() as loop:
        for file, format_, said in (
            (chat, "openai-chat", "imported 1 conversations with 30 calls and 0 judgements; 1 were there already"),
            (pairs, "openai-preference", "imported 1 conversations with 2 calls and 2 judgements"),
            (FILES / "phoenix_frame.jsonl", "phoenix", "imported 2 conversations with 5 calls"),
            (FILES / "otel_messages.jsonl", "otel", "imported 3 conversations with 5 calls"),
        ):
            code, out, err = await imported(loop, str(file), "--format", format_)
            assert (code, err) == (0, ""), format_
            assert said in out
        judged = await tasks(loop, label="imported:openai-preference")
        said = {task["calls"][0]["answer"]["content"]: task["feedback"][0]["thumbs"] for task in judged}
        assert said == {"preferred_output": "up", "non_preferred_output": "down"}
        assert len({task["session_id"] for task in judged}) == 1


@pytest.mark.slow
async def test_a_long_conversation_is_stored_as_it_was_said(run_loop: RunLoop, store_url: str, tmp_path: Path) -> None:
    turns = [{"role": role, "content": f"{role} {n}"} for n in range(40) for role in ("user", "assistant")]
    file = tmp_path / "chat.jsonl"
    file.write_text(json.dumps({"messages": turns, "session": "long"}) + "\n")
    async with run_loop() as loop:
        assert (await imported(loop, str(file), "--format", "openai-chat", "--session-field", "session"))[0] == 0
        seen = [[*task["conversation"], task["calls"][0]["answer"]] for task in await tasks(loop, session_id="long")]
        assert sorted(seen, key=len) == [turns[: 2 * n] for n in range(1, 41)]
        [(size,)] = await stored_rows(store_url, "SELECT sum(length(body)) FROM segments")
        assert size < 60 * 200, "each message once"


async def test_secrets_do_not_come_in_and_leave_no_hash(run_loop: RunLoop, store_url: str) -> None:
    secret = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCD"
    async with run_loop(capture={"redact": ["api_key"]}) as loop:
        [first] = await posted(loop, one("s", f"my key is {secret}"))
        assert first["state"] == "imported"
        [task] = await tasks(loop)
        shown = json.dumps(await loop.task(task["task_id"]))
        assert secret not in shown
        assert "[redacted:" in shown
        [again] = await posted(loop, one("s", "my key is sk-proj-" + "z1" * 22))
        assert again["state"] == "known", "the ids say nothing of what was taken out"


async def test_an_erased_session_is_gone_and_does_not_come_back(run_loop: RunLoop, store_url: str) -> None:
    async with run_loop() as loop:
        assert (await imported(loop, *LANGFUSE, "--format", "langfuse"))[0] == 0
        erased = (await loop.client.delete("/data", params={"session_id": "visit-1"})).json()
        assert (erased["deleted"]["tasks"], erased["deleted"]["calls"], erased["deleted"]["feedback"]) == (2, 3, 2)
        for table in ("tasks", "calls", "segments", "feedback", "feedback_targets"):
            assert await stored_rows(store_url, ROWS + table) == [(0,)], table
        code, out, _ = await imported(loop, *LANGFUSE, "--format", "langfuse")
        assert code == 0
        assert "imported 0 conversations" in out
        assert "1 were deleted before" in out
        assert await stored_rows(store_url, ROWS + "tasks") == [(0,)]
        [later] = await posted(loop, {**one("visit-1"), "at": erased["erased_at"] + 1})
        assert later["state"] == "imported", "its user went on after the deletion"


async def test_imports_are_trained_on_only_where_that_is_said(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        [result] = await posted(loop, one("s"))
        assert result == DONE
        assert (await posted(loop, one("t"), select=True))[0]["state"] == "imported"
        await until(lambda: loop.explorer.chats)
        [plain] = await tasks(loop, session_id="s")
        assert plain["reason"] == "imported"
        [selected] = await tasks(loop, session_id="t")
        assert selected["selected"] is True


@pytest.mark.slow
async def test_imports_are_no_held_out_sessions_of_live_traffic(run_loop: RunLoop, store_url: str) -> None:
    async with run_loop(selection={"sampling": {"rate": 0.0}}) as loop:
        await loop.chat("live", {"x-slipstream-session-id": "live", "x-slipstream-task-id": "live"})
        await until(lambda: loop.task("live"))
        await posted(loop, one("s"))
    database = Database(store_url)
    await database.open()
    async with database.read() as session:
        assert [call.session for call in await heldout.newest(session, "suite", 10)] == ["live"]
    await database.close()


async def test_one_that_cannot_be_captured_is_refused_whole_and_alone(run_loop: RunLoop, store_url: str) -> None:
    async with run_loop(capture={"max_body": "2KiB"}) as loop:
        good, long_ = one("s"), one("s", "x" * 4000)
        both = {"session_id": "s", "tasks": [*good["tasks"], *long_["tasks"]]}
        refused, stored = await posted(loop, both, one("t"))
        assert (refused["state"], refused["field"]) == ("refused", "tasks[1].calls[0]")
        assert refused["reason"] == "it cannot be captured: too_large"
        assert stored["state"] == "imported"
        assert await stored_rows(store_url, "SELECT session_id FROM tasks") == [("t",)]


WRONG: tuple[tuple[dict[str, Any], str], ...] = (
    ({"source": "A b"}, "source"),
    ({"labels": ["a,b"]}, "labels"),
    ({"conversations": []}, "conversations"),
    ({"conversations": [{"tasks": []}]}, "tasks"),
    ({"conversations": [one(feedback={"score": 2})]}, "score"),
    ({"conversations": [one(feedback={"score": 1, "thumbs": "up"})]}, "score, thumbs"),
    ({"conversations": [{"tasks": [{"calls": one()["tasks"][0]["calls"] * 501}] * 2}]}, "at most 1000 calls"),
)


async def test_a_wrong_body_is_refused_with_its_field(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        for fields, named in WRONG:
            response = await loop.client.post("/imports", json={"source": "test", "conversations": [one()], **fields})
            assert response.status_code == 422, named
            assert named in response.json()["error"]["message"]


async def test_a_conversation_that_no_request_holds_is_refused_and_the_others_come_in(
    run_loop: RunLoop, tmp_path: Path
) -> None:
    file = tmp_path / "chat.jsonl"
    said = ["a", "b" * 1200 * 1024, "c"]
    turns = [[{"role": "user", "content": text}, {"role": "assistant", "content": "hi"}] for text in said]
    file.write_text("".join(json.dumps({"messages": messages}) + "\n" for messages in turns) + "{}\n")
    async with run_loop() as loop:
        code, out, err = await imported(loop, str(file), "--format", "openai-chat")
        assert code == 1
        assert "imported 2 conversations" in out
        assert "2 refused" in out
        assert "chat.jsonl: line 2: the sidecar does not take it: " in err
        assert "limits.control_body" in err
        assert "chat.jsonl: line 4: messages: expected a list of messages, found none" in err


async def test_scores_of_another_range_and_of_several_names(run_loop: RunLoop, tmp_path: Path) -> None:
    row = {
        "id": "o",
        "traceId": "t",
        "type": "GENERATION",
        "input": "hello",
        "output": "hi",
        "scores": {"stars": [5], "x": [1]},
    }
    file = tmp_path / "page.jsonl"
    file.write_text(json.dumps(row) + "\n")
    async with run_loop() as loop:
        words = (str(file), "--format", "langfuse")
        code, out, _ = await imported(loop, *words)
        assert code == 0
        assert "2 judgements were left out: several names (stars, x); --score NAME takes one" in out
        code, out, err = await imported(loop, *words, "--score", "stars")
        assert "page.jsonl: line 1: stars: expected a score from 0 to 1 (--score-range), found 5" in err
        code, out, _ = await imported(loop, *words, "--score", "stars", "--score-range", "1:5")
        assert code == 0
        assert "with 0 calls and 1 judgements" in out, "feedback that comes later is added to what is there"
        code, _, err = await imported(loop, *words, "--score-range", "5:1")
        assert code == 2


async def test_only_an_admin_of_the_tenant_imports(run_shared: RunShared) -> None:
    async with run_shared() as shared:
        body = {"source": "test", "conversations": [one("s")]}
        statuses = {}
        for key in shared.keys:
            statuses[key] = (await shared.ask(key, "POST", "/imports", json=body)).status_code
        assert set(statuses.values()) == {200, 403}
        assert all(status == 403 for key, status in statuses.items() if "admin" not in key)


async def test_an_import_that_was_killed_is_repeated(run_loop: RunLoop, store_url: str, tmp_path: Path) -> None:
    file = tmp_path / "chat.jsonl"
    turns = [[{"role": "user", "content": f"question {n}"}, {"role": "assistant", "content": "hi"}] for n in range(250)]
    file.write_text("".join(json.dumps({"messages": messages}) + "\n" for messages in turns))

    def killed(outcome: Outcome) -> None:
        raise KeyboardInterrupt

    def begin(url: str) -> None:
        with open_records(file) as records, open_client(url, None) as client:
            upload(openai_chat.read([records], Options()), Choices("openai-chat"), client, print, killed)

    async with run_loop() as loop:
        with pytest.raises(KeyboardInterrupt):
            await asyncio.to_thread(begin, loop.url)
        assert await stored_rows(store_url, ROWS + "calls") == [(200,)]
        code, out, _ = await imported(loop, str(file), "--format", "openai-chat")
        assert code == 0
        assert "imported 50 conversations with 50 calls and 0 judgements; 200 were there already" in out


def test_a_sidecar_that_is_away_for_a_moment_is_asked_again() -> None:
    answers = [httpx.Response(503), httpx.ConnectError("refused"), httpx.Response(200, json={"results": [DONE]})]
    paused: list[float] = []

    def answer(request: httpx.Request) -> httpx.Response:
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    call = ImportedCall("", {"messages": [{"role": "user", "content": "q"}]}, {"role": "assistant"}, Place("f", 1))
    read = [Conversation("c", [ImportedTask("t", [call])], Place("f", 1))]
    with httpx.Client(transport=httpx.MockTransport(answer), base_url="http://sidecar") as client:
        outcome = upload(read, Choices("test"), client, print, lambda outcome: None, paused.append)
        assert outcome.conversations == {"imported": 1}
        assert paused == [2.0, 4.0]
        answers += [httpx.Response(502)] * 6
        with pytest.raises(SidecarAway):
            upload(read, Choices("test"), client, print, lambda outcome: None, paused.append)


async def test_cases_of_an_evaluation_are_written_instead(tmp_path: Path) -> None:
    output = tmp_path / "cases.jsonl"
    words = (*LANGFUSE, "--format", "langfuse", "--as", "cases", "--output", str(output))
    code, out, err = await slipstream("dataset", "import", *words)
    assert (code, err) == (0, "")
    assert f"wrote 2 cases to {output}" in out, "the answer that somebody disliked is no reference"
    first, second = read_cases(output)
    assert first.metadata["tool_calls"][0]["function"]["name"] == "get_weather"
    assert first.request["tools"]
    assert second.metadata["reference"] == "It rains in Paris."
    assert {first.session, second.session} == {"visit-1"}


@pytest.mark.slow
async def test_data_sets_are_made_of_imported_preferences(run_loop: RunLoop, store_url: str, tmp_path: Path) -> None:
    file = tmp_path / "pairs.jsonl"
    file.write_text("".join(json.dumps({
        "input": {"messages": [{"role": "user", "content": f"question {n}"}]},
        "preferred_output": [{"role": "assistant", "content": f"good {n}"}],
        "non_preferred_output": [{"role": "assistant", "content": f"bad {n}"}],
    }) + "\n" for n in range(30)))  # fmt: skip
    async with run_loop() as loop:
        assert (await imported(loop, str(file), "--format", "openai-preference"))[0] == 0
    settings = {"store": {"url": store_url}, "production": {"base_url": "http://127.0.0.1:9/v1"}}
    (tmp_path / "sidecar.yaml").write_text(json.dumps(settings | {"explorer": {"base_url": "http://127.0.0.1:9"}}))

    async def exported(**dataset: Any) -> list[dict[str, Any]]:
        (tmp_path / "data.yaml").write_text(json.dumps({"dataset": dataset}))
        words = ("--config", "sidecar.yaml", "--data", "data.yaml", "--directory", "out")
        files = [word if word.startswith("--") else str(tmp_path / word) for word in words]
        code, out, err = await slipstream("dataset", "export", *files)
        assert code == 0, (out, err)
        text = (tmp_path / "out" / dataset["name"] / "train.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines()]

    pairs = await exported(name="pairs", kind="preference", pairs={"from": ["thumbs"]}, held_out={"share": 0})
    assert sorted((row["chosen"][0]["content"], row["rejected"][0]["content"]) for row in pairs) == sorted(
        (f"good {n}", f"bad {n}") for n in range(30)
    )
    liked = {"production": {"labels": ["imported:openai-preference"], "liked": True}}
    rows = await exported(name="liked", sources=[liked], held_out={"share": 0})
    assert {row["completion"][0]["content"] for row in rows} == {f"good {n}" for n in range(30)}
