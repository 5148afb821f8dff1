"""`slipstream status --watch` through a restart of the sidecar: on a terminal, into a pipe, and as JSON."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import signal
import struct
import sys
import termios
from fcntl import ioctl
from pathlib import Path

import pytest
from commands import slipstream
from loops import Loop, RunLoop
from ports import free_port
from serving import serving, until
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from slipstream.terminal.table import rows


def address_of(loop: Loop) -> Starlette:
    """What stands at the address that is watched: it can go away and come back, and the port stays."""

    async def status(request: Request) -> Response:
        answer = await loop.client.get("/status")
        return Response(answer.content, answer.status_code, media_type="application/json")

    return Starlette(routes=[Route("/status", status)])


async def started(
    url: str, *options: str, cwd: Path, stdout: int = asyncio.subprocess.PIPE
) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "slipstream", "status", "--watch", "--every", "0.1", "--url", url, *options),
        stdout=stdout,
        stderr=asyncio.subprocess.PIPE,
        cwd=cwd,
        env=os.environ | {"TERM": "xterm-256color", "FORCE_COLOR": "1", "PYTHONUNBUFFERED": "1"},
    )


async def line_with(stream: asyncio.StreamReader, text: str) -> str:
    """The first line with it."""
    async with asyncio.timeout(30):
        async for line in stream:
            if text in line.decode():
                return line.decode()
    raise AssertionError(f"{text} is in no line")


class Screen:
    """A terminal of 100 columns and 20 lines, and all that is written to it."""

    def __init__(self) -> None:
        self._master, self.slave = pty.openpty()
        ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 20, 100, 0, 0))
        self.written = ""
        self._more = asyncio.Event()
        asyncio.get_running_loop().add_reader(self._master, self._read)

    def _read(self) -> None:
        try:
            self.written += os.read(self._master, 65536).decode(errors="replace")
        except OSError:  # the other end is closed
            asyncio.get_running_loop().remove_reader(self._master)
        self._more.set()

    async def shows(self, text: str) -> None:
        """Return once it is written, after all that was seen before."""
        begin = len(self.written)
        async with asyncio.timeout(30):
            while text not in self.written[begin:]:
                self._more.clear()
                await self._more.wait()


@pytest.mark.slow
async def test_it_goes_on_through_a_restart_and_says_so(run_loop: RunLoop, tmp_path: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    screen = Screen()
    async with run_loop() as loop:
        async with serving(address_of(loop), port):
            piped = await started(url, cwd=tmp_path)
            lines = await started(url, "--json", cwd=tmp_path)
            drawn = await started(url, cwd=tmp_path, stdout=screen.slave)
            assert piped.stdout
            assert lines.stdout
            assert lines.stderr
            first = await line_with(piped.stdout, "slipstream")
            assert re.fullmatch(rf"\d\d:\d\d:\d\d slipstream [\w.]+ at {url}\n", first)
            await line_with(piped.stdout, " runs: none")
            await loop.chat("hello")
            assert re.fullmatch(r"\d\d:\d\d:\d\d runs: scored 1\n", await line_with(piped.stdout, " runs: scored"))
            assert json.loads(await lines.stdout.readline())["problems"] == []
            await screen.shows("rewards of the newest runs")
        await line_with(piped.stdout, f"no sidecar answers at {url} ")
        await line_with(lines.stderr, f"slipstream: no sidecar answers at {url} ")
        await screen.shows("waited for since")
        async with serving(address_of(loop), port):
            await line_with(piped.stdout, "the sidecar answers again since ")
            await line_with(lines.stderr, "slipstream: the sidecar answers again since ")
            assert json.loads(await lines.stdout.readline())
            await screen.shows("the sidecar answers again since ")
            for process in (piped, lines):
                process.send_signal(signal.SIGINT)
                out, err = await process.communicate()
                assert process.returncode == 0
                assert b"Traceback" not in err
                assert b"\x1b" not in out
            drawn.send_signal(signal.SIGTERM)
            await drawn.wait()
            assert drawn.returncode == 0
    await until(lambda: "rewards of the newest runs" in screen.written.partition("\x1b[?1049l")[2])
    frames = screen.written.partition("\x1b[?1049l")[0]
    assert frames.count("\x1b[?1049h") == 1, "what the terminal showed before is kept"
    assert not re.search(r"\x1b\[[0-3]?[JK]", frames.partition("\x1b[H")[2]), "nothing is erased before it is drawn"
    assert "\x1b[?25h" in screen.written, "the cursor is back"


def test_lines_have_no_times_that_pass() -> None:
    status = {
        "policy": {"version": 4, "changed_at": 1.0},
        "next_commit": {"in_seconds": 5.0, "experiences_ready": 2, "min_experiences": 1},
        "last_commit": {"state": "delivered", "experiences": 2, "groups": 1, "ended_at": 3.0},
    }
    for now, said in ((None, []), (11.0, ["10 s ago", "in 5 s", "8 s ago"])):
        told = " ".join(value for _, value in rows(status, now))
        assert re.findall(r"\d+ s ago|in \d+ s", told) == said


@pytest.mark.parametrize("status", [401, 404])
async def test_a_refusal_is_not_waited_out(status: int) -> None:
    async def refuse(request: Request) -> Response:
        return Response("\x1b[2J no", status)

    async with serving(Starlette(routes=[Route("/status", refuse)])) as url:
        code, out, err = await slipstream("status", "--watch", "--url", url)
    assert (code, out) == (2, "")
    assert "\x1b" not in err
