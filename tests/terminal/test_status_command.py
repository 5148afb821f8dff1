"""`slipstream status`: what a running sidecar says of itself, in a terminal."""

from __future__ import annotations

import asyncio
import io
import json
import re
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from commands import slipstream
from loops import Loop, RunLoop
from rich.console import Console
from serving import serving, until
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from slipstream.access.keys import as_hash, new_key
from slipstream.terminal.table import table


async def shown(*arguments: str, cwd: Path | None = None, **environment: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr."""
    with pytest.MonkeyPatch.context() as patch:
        if cwd is not None:
            patch.chdir(cwd)
        for name, value in environment.items():
            patch.setenv(name, value)
        return await slipstream("status", *arguments)


async def committed(loop: Loop) -> None:
    await loop.chat("hello")
    await until(lambda: loop.ready(2))
    await loop.commit()


async def test_it_shows_what_is_selected_run_rewarded_and_committed(run_loop: RunLoop, tmp_path: Path) -> None:
    async with run_loop(runs={"repeat_time": 2}) as loop:
        await committed(loop)
        code, out, err = await shown("--url", loop.url)
        assert (code, err) == (0, "")
        rows = {line[:16].strip(): line[16:].strip() for line in out.splitlines()}
        assert out.startswith("no problems")
        assert rows["Explorer"] == "up"
        assert re.match(r"\d requests, 0 failed, 0 refused, \d captured", rows["last minute"])
        assert rows["selected"] == "sampling 1"
        assert rows["not selected"] == "none"
        assert rows["runs"] == "scored 2"
        assert rows["last commit"].startswith("delivered, 2 experiences in 1 groups, ")
        [rewards] = [line for line in out.splitlines() if "0.500" in line]
        assert [cell.strip() for cell in rewards.strip("│").split("│")] == ["0", "2", "0.500", "0.500", "0.500"]
        code, out, _ = await shown("--url", f"{loop.url}/", "--json")
        assert code == 0
        assert json.loads(out)["rewards"] == [{"version": 0, "runs": 2, "mean": 0.5, "min": 0.5, "max": 0.5}]


async def test_it_shows_problems_with_their_fix_and_asks_the_address_of_the_file(
    run_loop: RunLoop, tmp_path: Path
) -> None:
    async with run_loop(selection={"explicit_mark": {}}) as loop:
        for number in range(5):
            await loop.chat(f"question {number}")

        async def told() -> bool:
            return bool((await loop.status())["problems"])

        await until(told)
        (tmp_path / "sidecar.yaml").write_text(f"listen: {loop.url.removeprefix('http://')}")
        code, out, _ = await shown(cwd=tmp_path)
    assert code == 0
    assert out.startswith("warning: live.nothing_selected at selection\n  found: none of 5 tasks; the commonest reason")
    assert "  fix: Look up the reason in docs/selection.md, and change `selection`.\n" in out


async def test_a_key_is_taken_from_the_environment_and_a_refusal_is_in_the_sidecars_words(run_loop: RunLoop) -> None:
    key, other, old = new_key(), new_key(), new_key()
    keys = [
        {"name": "operator", "roles": ["metrics"], "hash": as_hash(key)},
        {"name": "agent", "roles": ["proxy"], "hash": as_hash(other)},
        {"name": "former", "roles": ["metrics"], "hash": as_hash(old), "expires": "2025-01-31T00:00:00Z"},
    ]
    hint = "; give a key with the role viewer, operator, metrics or admin by --key or SLIPSTREAM_API_KEY\n"
    async with run_loop(access={"keys": keys}) as loop:
        for given, said, hinted in (
            ("", "slipstream: this sidecar asks for a key of its own, slp_...", True),
            (
                other,
                "slipstream: this needs a key with the role metrics or viewer or operator or admin; this one (agent)",
                True,
            ),
            (old, "slipstream: this key (former) expired at 2025-01-31T00:00:00Z; ask the operator", False),
            (new_key(), "slipstream: this key is not valid here: mistyped, taken out, or of another sidecar.\n", False),
        ):
            code, out, err = await shown("--url", loop.url, SLIPSTREAM_API_KEY=given)
            assert (code, out) == (2, "")
            assert err.startswith(said)
            assert err.endswith(hint) is hinted
        code, _, err = await slipstream("kill", "--url", loop.url, "--key", old)
        assert (code, err.startswith("slipstream: this key (former) expired")) == (2, True)
        assert (await shown("--url", loop.url, SLIPSTREAM_API_KEY=key))[0] == 0


async def test_what_the_proxy_says_while_the_training_side_is_away_is_said_in_its_words() -> None:
    async def away(request: Request) -> JSONResponse:
        error = {"message": "Slipstream: the training side cannot be reached", "code": "upstream_unreachable"}
        return JSONResponse({"error": error}, 502)

    async with serving(Starlette(routes=[Route("/{path:path}", away, methods=["GET", "POST"])])) as url:
        for command in (("status",), ("kill",)):
            code, out, err = await slipstream(*command, "--url", url)
            assert (code, out) == (2, "")
            assert err.endswith(": 502 the training side cannot be reached\n"), err


async def test_where_no_sidecar_answers_it_says_so(tmp_path: Path) -> None:
    code, out, err = await shown("--url", "http://127.0.0.1:9", cwd=tmp_path)
    assert (code, out) == (2, "")
    assert err.startswith("slipstream: no sidecar answers at http://127.0.0.1:9 (ConnectError ")


@pytest.mark.slow
async def test_watching_goes_on_until_it_is_told_to_end(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "slipstream", "status", "--url", loop.url, "--watch", "--every", "0.1", "--json"),
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        lines = [json.loads(await process.stdout.readline()) for _ in range(2)]
        process.send_signal(signal.SIGINT)
        await process.communicate()
        assert process.returncode == 0
        assert [line["problems"] for line in lines] == [[], []]


def test_what_others_wrote_is_no_command_for_the_terminal() -> None:
    run = {"group_id": "t.0", "run_id": 0, "reason": "\x1b]0;owned\x07\x1b[2J\nnext " + "x" * 10_000}
    text = io.StringIO()
    Console(file=text, width=200, force_terminal=True).print(
        table({"slipstream": "1", "failed_runs": [run]}, "http://x")
    )
    said = text.getvalue().partition("runs that failed last")[2]
    assert "t.0 run 0: \\x1b]0;owned\\x07\\x1b[2J\\nnext" in said
    assert "\x07" not in said
    assert "\x1b[2J" not in said
    assert said.count("x") < 400


@pytest.mark.parametrize(
    ("policy", "line"),
    [
        ({"version": 4, "rolled_back_from": None}, "policy version  4"),
        ({"version": 4, "rolled_back_from": 6}, "policy version  4, rolled back from 6"),
        ({"version": None, "rolled_back_from": None}, "policy version  not known"),
    ],
)
def test_a_rollback_stands_beside_the_version(policy: dict[str, Any], line: str) -> None:
    screen = io.StringIO()
    Console(file=screen, width=200).print(table({"slipstream": "1", "policy": policy}, "http://x"))
    assert line in [row.rstrip() for row in screen.getvalue().splitlines()]
