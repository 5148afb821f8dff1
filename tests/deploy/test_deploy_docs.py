"""docs/deploy.md and the README of the rewards: variables, commands, and the copy of the store that is taught."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shlex
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from composed import ROOT, compose_program
from loops import RunLoop
from scripted import ScriptedExplorer
from serving import until

PAGE = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
BESIDE = (ROOT / "deploy" / "compose" / "rewards" / "README.md").read_text(encoding="utf-8")
SHELL = re.findall(r"^ *```sh\n(.*?)^ *```$", PAGE, re.MULTILINE | re.DOTALL)
STORE = "/var/lib/slipstream"


def commands() -> list[list[str]]:
    """Each `docker compose` command of the shell blocks and sentences, as words."""
    lines = [line.strip() for block in SHELL for line in block.replace("\\\n", " ").splitlines()]
    lines += re.findall(r"`(docker compose [^`]+)`", f"{PAGE} {BESIDE}".replace("\n", " "))
    return [shlex.split(line, comments=True) for line in lines if line.startswith("docker compose")]


def test_every_option_of_a_compose_command_is_one() -> None:
    found = commands()
    assert len(found) > 15
    helps: dict[str, str] = {}
    for words in found:
        values = iter(words[2:])
        subcommand = ""
        for word in values:
            if word in ("-f", "--profile"):
                next(values)
            else:
                subcommand = word
                break
        if subcommand not in helps:
            done = subprocess.run(
                [compose_program(), subcommand, "--help"], capture_output=True, text=True, check=False
            )
            assert f"compose {subcommand}" in done.stdout, words
            helps[subcommand] = done.stdout
        for word in values:
            if subcommand in ("run", "exec") and not word.startswith("-") and "=" not in word and "/" not in word:
                break  # the service; what follows is its own program's
            if word.startswith("-"):
                assert re.search(rf"(?<![\w-]){re.escape(word.partition('=')[0])}\b", helps[subcommand]), words


def told_to_run() -> list[tuple[str, list[str]]]:
    """The service, and the words for its own program, of each `run` and `exec` that keeps its entrypoint."""
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    found = []
    for words in commands():
        if {"run", "exec"} & set(words) and "--entrypoint" not in words:
            [at] = [number for number, word in enumerate(words) if word in services]
            found.append((words[at], words[at + 1 :]))
    return found


def test_what_is_stopped_and_started_are_services() -> None:
    services = set(yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"])
    found = [words[3:] for words in commands() if words[2] in ("stop", "start", "restart")]
    assert found
    assert all(services.issuperset(names) for names in found), found


def test_the_rollback_of_the_page_is_a_command_with_the_files_of_its_service(tmp_path: Path) -> None:
    [(service, words)] = [(service, words) for service, words in told_to_run() if words[:1] == ["rollback"]]
    mounts = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"][service]["volumes"]
    for mount in mounts:
        if mount.startswith("./"):
            host, inside, *_ = mount.split(":")
            words = [word.replace(inside, str(ROOT / host)) for word in words]
    run = subprocess.run(
        [sys.executable, "-m", "slipstream", *words],
        env={"CHECKPOINT_ROOT_DIR": str(tmp_path), "MODEL_PATH": "/models/smollm2"},
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert run.returncode == 2
    assert run.stderr == f"slipstream: {tmp_path}/slipstream/policy: expected the directory of a job, found nothing\n"


def test_every_variable_has_its_row_and_its_default() -> None:
    files = [ROOT / "docker-compose.yml", *(ROOT / "deploy" / "compose").glob("*.yml")]
    used = {name for file in files for name in re.findall(r"\$\{([A-Z_0-9]+)", file.read_text())}
    table = PAGE.partition("## Variables")[2].partition("## Sizing")[0]
    rows = [line for line in table.splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`([A-Z][A-Z_0-9]+)`", row.split("|")[1])}
    gpus = {f"{who}_GPU_{number}" for who in ("EXPLORER", "TRAINER") for number in (1, 2)}  # "to"
    assert used == named | gpus
    compose = (ROOT / "docker-compose.yml").read_text()
    for row in rows:
        names, defaults = (re.findall(r"`([^`]+)`", cell) for cell in row.split("|")[1:3])
        if len(names) == len(defaults) and " to " not in row.split("|")[1]:
            for name, default in zip(names, defaults, strict=True):
                for given in re.findall(rf"\$\{{{name}:-([^}}]*)\}}", compose):
                    assert given == default, name


@pytest.mark.slow
async def test_a_sidecar_goes_on_with_the_copy_and_nothing_is_trained_on_twice(
    run_loop: RunLoop, tmp_path: Path
) -> None:
    """The copy is older than what the Explorer knows: as after a restore in the page's order."""
    [backup] = [words for _, words in told_to_run() if words[:2] == ["slipstream", "backup"]]
    [restore] = [words for _, words in told_to_run() if words[0] == "restore"]
    explorer = ScriptedExplorer()
    async with run_loop(explorer) as loop:
        for number in range(5):
            await loop.chat(f"hello {number}")
        await until(lambda: loop.ready(5))
        await _run(backup[1:], tmp_path)
        assert (await loop.commit())["experiences"] == 5
    _delete_store(tmp_path)
    await _run(restore, tmp_path)
    async with run_loop(explorer) as restored:
        assert await restored.ready(5), "as it was when the copy was taken"
        assert (await restored.commit())["run_again"] == 5
        await until(lambda: restored.ready(5))
        assert (await restored.commit())["experiences"] == 5
    trained = [experience["msg_id"] for experience in explorer.trained]
    assert len(trained) == len(set(trained)) == 10


def _delete_store(folder: Path) -> None:
    for left in folder.glob("slipstream.db*"):
        left.unlink()


async def _run(words: list[str], folder: Path) -> None:
    """Run a command of the page, with the store and the configuration in this folder."""
    config = {
        "store": {"url": f"sqlite+aiosqlite:///{folder}/slipstream.db"},
        "production": {"base_url": "http://127.0.0.1:9/v1"},
    }
    (folder / "sidecar.yaml").write_text(yaml.safe_dump(config))
    here = [re.sub(rf"({STORE}|/etc/slipstream)/", f"{folder}/", word) for word in words]
    done = await asyncio.create_subprocess_exec(sys.executable, "-m", "slipstream", *here)
    assert await done.wait() == 0


ROWS = "(1, 1, '{old}'), (2, 0, '{old}'), (3, 1, '{new}'), (4, 0, '{new}')"
LEFT = {"exp_buffer": [2, 3, 4], "proxy_history": [3, 4]}
"""What waits for the Trainer stays for ever, what may get a reward for a week."""


def tables_of_trinity(timestamp: str) -> str:
    """Statements that make Trinity's tables (`buffer/schema/sql_schema.py` of 0.6.0), with old rows and new ones."""
    now = datetime.now(UTC).replace(tzinfo=None, microsecond=0)
    rows = ROWS.format(old=now - timedelta(days=7, minutes=1), new=now - timedelta(days=6, hours=23))
    return "".join(
        f"CREATE TABLE {name} (id INTEGER PRIMARY KEY, consumed INTEGER, timestamp {timestamp});"
        f"CREATE TABLE {name}_blob (id INTEGER PRIMARY KEY);"
        f"INSERT INTO {name} (id, consumed, timestamp) VALUES {rows};"
        f"INSERT INTO {name}_blob VALUES (1), (2), (3), (4);"
        for name in LEFT
    )


def test_what_can_go_of_trinitys_tables_goes_from_sqlite() -> None:
    script_of = r"^sqlite3 \S+/(?!embedded_)(\w+)\.db\" <<'EOF'\n(?:\.[^\n]*\n)*(.*?)^EOF$"
    scripts = re.findall(script_of, PAGE, re.MULTILINE | re.DOTALL)
    assert [name for name, _ in scripts] == list(LEFT)
    for name, script in scripts:
        with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
            connection.executescript(tables_of_trinity("DATETIME"))
            connection.executescript(script)
            for table in (name, f"{name}_blob"):
                assert [row[0] for row in connection.execute(f"SELECT id FROM {table} ORDER BY id")] == LEFT[name]


async def test_and_from_postgresql(empty_postgres: Callable[[], str]) -> None:
    import asyncpg

    [script] = re.findall(r"psql -U slipstream slipstream <<'EOF'\n(BEGIN;.*?)^EOF$", PAGE, re.MULTILINE | re.DOTALL)
    connection = await asyncpg.connect(empty_postgres().replace("+asyncpg", ""), server_settings={"timezone": "UTC"})
    try:
        await connection.execute(tables_of_trinity("TIMESTAMP"))
        await connection.execute(script)
        for name, left in LEFT.items():
            for table in (name, f"{name}_blob"):
                assert [row["id"] for row in await connection.fetch(f"SELECT id FROM {table} ORDER BY id")] == left
    finally:
        await connection.close()
