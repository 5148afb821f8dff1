"""What stands on stderr when the service and its libraries log."""

from __future__ import annotations

import json
import logging
import os
import pty
import subprocess
import sys
from typing import Any

import pytest

from slipstream.logs import mask


def logged(program: str, *, level: str = "info", form: str = "json") -> str:
    """stderr of a fresh interpreter: logging is set up once a process."""
    setup = (
        "import logging, warnings, structlog\n"
        "from slipstream import logs\n"
        f"logs.configure({level!r}, {form!r})\n"
        "log = structlog.get_logger('slipstream.here')\n"
    )
    run = subprocess.run([sys.executable, "-c", setup + program], capture_output=True, text=True, check=True)
    assert run.stdout == ""
    return run.stderr


def lines(program: str, **options: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in logged(program, **options).splitlines()]


def test_a_line_is_one_json_object_with_time_level_logger_and_the_ids_of_the_work() -> None:
    [line] = lines(
        "with structlog.contextvars.bound_contextvars(task_id='task-1', run_id=0):\n"
        "    log.info('run scored', reward=0.5, parts=('a', 'ü'))\n"
    )
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "run scored",
        "level": "info",
        "logger": "slipstream.here",
        "reward": 0.5,
        "parts": ["a", "ü"],
        "task_id": "task-1",
        "run_id": 0,
    }


def test_libraries_and_warnings_go_through_the_same_form_from_warning_up() -> None:
    found = lines(
        "for name in ('uvicorn.error', 'sqlalchemy.engine', 'asyncio', 'aiohttp.client', 'httpx'):\n"
        "    logging.getLogger(name).info('SELECT body FROM calls')\n"
        "    logging.getLogger(name).warning('%s of %s', 1, name)\n"
        "warnings.warn('old thing', DeprecationWarning)\n"
        "logging.getLogger('slipstream.plain').debug('shown')\n",
        level="debug",
    )
    names = ["uvicorn.error", "sqlalchemy.engine", "asyncio", "aiohttp.client", "httpx"]
    assert [line["event"] for line in found[:5]] == [f"1 of {name}" for name in names]
    assert [line["logger"] for line in found] == [*names, "py.warnings", "slipstream.plain"]
    assert "old thing" in found[5]["event"]


def test_what_is_below_the_level_is_not_shown() -> None:
    program = "log.info('a')\nlog.warning('b')\nlogging.getLogger('slipstream').info('c')\nlog.error('d')\n"
    assert [line["event"] for line in lines(program, level="warning")] == ["b", "d"]


@pytest.mark.parametrize("form", ["json", "console"])
def test_an_exception_shows_its_traceback_without_local_variables_or_secrets(form: str) -> None:
    text = logged(
        "def call(body):\n"
        "    raise ValueError('refused: Bearer abcdefgh12345678')\n"
        "try:\n"
        "    call('the ' + 'body')\n"
        "except ValueError:\n"
        "    log.exception('call failed')\n"
        "    logging.getLogger('uvicorn.error').exception('again')\n",
        form=form,
    )
    assert text.count("Traceback (most recent call last)") == 2
    assert text.count("ValueError: refused: [redacted:api_key]") == 2
    assert "abcdefgh" not in text
    assert "the body" not in text


def test_the_console_form_is_coloured_on_a_terminal_only() -> None:
    assert "\x1b[" not in logged("log.info('plain')", form="console")
    terminal, end = pty.openpty()
    program = (
        "import structlog\n"
        "from slipstream import logs\n"
        "logs.configure('info', 'console')\n"
        "structlog.get_logger('slipstream.here').info('bright')\n"
    )
    subprocess.run([sys.executable, "-c", program], stderr=end, check=True, env={**os.environ, "TERM": "xterm"})
    os.close(end)
    text = os.read(terminal, 65536).decode()
    os.close(terminal)
    assert "bright" in text
    assert "\x1b[" in text


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("authorization", "Basic abc", "***"),
        ("api_key", "k", "***"),
        ("X-Api-Key", "k", "***"),
        ("hub_token", "t", "***"),
        ("client_secret", b"s", "***"),
        ("headers", {"Authorization": "Bearer x", "accept": "*/*"}, {"Authorization": "***", "accept": "*/*"}),
        ("arguments", ["--key", "sk-proj-0123456789abcdef"], ["--key", "[redacted:api_key]"]),
        ("error", ValueError("got Bearer abcdefgh12345678"), "ValueError('got [redacted:api_key]')"),
        ("url", "postgresql+asyncpg://user:pass@db:5432/s", "postgresql+asyncpg://user:***@db:5432/s"),
        ("reward", float("nan"), "nan"),
        ("prompt_tokens", 12, 12),
        ("token", 12, 12),
        ("tokens", [1, 2], [1, 2]),
        ("event", "the bearer of basic news about sk-8 tokens", "the bearer of basic news about sk-8 tokens"),
        ("event", "listening on http://127.0.0.1:8100", "listening on http://127.0.0.1:8100"),
    ],
)
def test_secrets_are_masked_wherever_they_hide_and_the_rest_stays(name: str, value: object, shown: object) -> None:
    assert mask(logging.getLogger(), "info", {name: value}) == {name: shown}


def test_an_id_with_control_characters_commands_no_terminal() -> None:
    said = logged(r"log.info('first\nsecond', task_id='t\x1b[2J', session_id='s\n[error] lost')", form="console")
    assert len(said.splitlines()) == 1
    assert said.rstrip("\n").isprintable()
    assert r"task_id=t\x1b[2J" in said
