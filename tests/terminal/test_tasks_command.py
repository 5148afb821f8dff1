"""`slipstream tasks` against a running sidecar."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest
from commands import slipstream
from loops import RunLoop
from rich.cells import cell_len
from serving import until

from slipstream.errors import SlipstreamError
from slipstream.terminal.time_options import seconds_of


def ids(out: str) -> list[str]:
    """The first column of a table, without its head."""
    rows = [line.strip("│").split("│")[0].strip() for line in out.splitlines() if line.startswith("│")]
    return [cell for cell in rows if cell]


async def test_tasks_are_listed_filtered_and_paged(run_loop: RunLoop) -> None:
    async with run_loop(selection={"sampling": {"rate": 1.0}}) as loop:
        for number in range(3):
            mark = {"x-slipstream-mark": "vip"} if number == 1 else {}
            task = {"x-slipstream-task-id": f"order-{number}", "x-slipstream-session-id": f"chat-{number}"}
            await loop.chat("hello", {**task, **mark})
        await until(lambda: loop.ready(3))
        at = ("--url", loop.url)

        code, out, err = await slipstream("tasks", *at)
        assert (code, err) == (0, "")
        assert ids(out) == ["order-2", "order-1", "order-0"]
        assert "│ chat-1  │ complete │ yes: sampling │" in out

        for words, found in (
            (("--label", "vip"), ["order-1"]),
            (("--session", "chat-2", "--state", "complete", "--selected"), ["order-2"]),
            (("--since", "1h", "--until", "2126-01-01", "--all"), ["order-2", "order-1", "order-0"]),
            (("--not-selected",), []),
            (("--state", "open"), []),
            (("--until", "1h"), []),
        ):
            code, out, err = await slipstream("tasks", *at, *words)
            assert (code, err) == (0, ""), words
            assert ids(out) == found, words
            assert bool(found) or out == "no task is like that\n"

        code, out, err = await slipstream("tasks", *at, "--limit", "2")
        assert ids(out) == ["order-2", "order-1"]
        assert err.startswith("slipstream: there is more: --cursor ")
        assert ids((await slipstream("tasks", *at, "--cursor", err.split()[-1]))[1]) == ["order-0"]
        code, out, err = await slipstream("tasks", *at, "--json")
        assert [json.loads(line) for line in out.splitlines()] == (await loop.client.get("/tasks")).json()["tasks"]

        code, out, err = await slipstream("tasks", *at, "--cursor", "nowhere")
        assert (code, out) == (2, "")
        assert err == "slipstream: cursor: expected `next` of the page before, as it was given; found another text\n"


@pytest.mark.slow
async def test_a_narrow_terminal_and_a_pipe_have_whole_rows(run_loop: RunLoop) -> None:
    name = "order-" + 50 * "7"
    async with run_loop() as loop:
        await loop.chat("hello", {"x-slipstream-task-id": name})
        await until(lambda: loop.ready(1))
        _, narrow, _ = await slipstream("tasks", "--url", loop.url, columns=60)
        assert {cell_len(line) for line in narrow.splitlines() if line[:1] in "┏┃┡│└"} == {60}
        assert "".join(ids(narrow)) == name
        assert "from 100 columns on" in narrow
        _, piped, _ = await slipstream("tasks", "--url", loop.url, columns=None)
        assert [line for line in piped.splitlines() if name in line]


@pytest.mark.slow
async def test_a_reader_that_ends_early_is_no_error(run_loop: RunLoop, tmp_path: Path) -> None:
    async with run_loop() as loop:
        for number in range(3):
            await loop.chat("hello", {"x-slipstream-task-id": f"order-{number}"})
        await until(lambda: loop.ready(3))
        for options in (
            "tasks",
            "tasks --json",
            "show order-1",
            "show order-1 --json",
            "status --watch",
            "status --watch --json",
        ):
            reader, writer = os.pipe()
            os.close(reader)
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "slipstream", *options.split(), "--url", loop.url),
                stdout=writer,
                stderr=asyncio.subprocess.PIPE,
                cwd=tmp_path,
            )
            os.close(writer)
            _, err = await process.communicate()
            assert (process.returncode, err.decode()) == (1, ""), options


def test_moments_are_given_as_ages_times_and_seconds() -> None:
    now = 1_795_160_000.0
    for text, found in (
        ("2h", now - 7200),
        ("90s", now - 90),
        (" 7d ", now - 604_800),
        ("1795160050.5", 1_795_160_050.5),
        ("2026-11-20T06:13:20Z", 1_795_155_200.0),
        ("2026-11-20 06:13:20+01:00", 1_795_151_600.0),
        (None, None),
    ):
        assert seconds_of(text, "--since", now) == found, text
    for wrong in ("soon", "", "nan", "inf", "-2h", "2026-13-01", "\x1b[2J"):
        with pytest.raises(SlipstreamError, match=r"^--since: expected an age such as 2h .*; found '"):
            seconds_of(wrong, "--since", now)
