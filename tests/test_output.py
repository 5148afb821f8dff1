"""stderr is read slowly, late, or not at all: what becomes of lines and of the program that writes them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import Any

import pytest
from full_pipe import full_pipe

SETUP = (
    "import os, signal, sys, structlog\n"
    "from slipstream import logs, output\n"
    "from slipstream.output import STDOUT, Output, relayed\n"
    "logs.configure('info', 'json')\n"
    "log = structlog.get_logger('slipstream.here')\n"
)


def run(program: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
    """Run a fresh interpreter until its end."""
    return subprocess.run([sys.executable, "-c", SETUP + program], check=False, timeout=60, **options)


def lines(text: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines() if line]


def test_lines_come_whole_and_in_order_whoever_writes_them() -> None:
    done = run(
        "with relayed():\n"
        "    for number in range(3000):\n"
        "        log.info('line', number=number)\n"
        "    log.info('long', text='x' * 100_000)\n"
        "    print('printed', number, file=sys.stderr)\n"
        "    os.write(2, b'raw\\n')\n"
        "    os.system('echo from a program >&2')\n"
        "log.info('afterwards')\n",
        capture_output=True,
    )
    said = done.stderr.splitlines()
    assert [json.loads(line)["number"] for line in said[:3000]] == list(range(3000))
    assert len(json.loads(said[3000])["text"]) == 100_000
    assert said[3001:-1] == [b"printed 2999", b"raw", b"from a program"]
    assert json.loads(said[-1])["event"] == "afterwards"


def test_what_a_process_said_before_it_was_killed_is_written() -> None:
    done = run(
        "with relayed():\n    log.info('last words')\n    os.kill(os.getpid(), signal.SIGKILL)\n", capture_output=True
    )
    assert done.returncode == -signal.SIGKILL
    assert [line["event"] for line in lines(done.stderr)] == ["last words"]


@pytest.mark.slow
def test_a_pipe_that_is_never_read_holds_up_neither_lines_nor_the_end() -> None:
    with full_pipe() as (reader, writer):
        done = run(
            "with relayed() as out:\n"
            "    for number in range(200_000):\n"
            "        print('x' * 100, file=sys.stderr)\n"
            "    os.write(1, b'went on, %d' % (out.dropped > 0))\n",
            stdout=subprocess.PIPE,
            stderr=writer,
        )
        assert (done.returncode, done.stdout) == (0, b"went on, 1")
        os.close(writer)
        assert set(os.read(reader, 2**20)) == {ord("\n")}


def test_what_was_dropped_is_said_once_the_pipe_is_read_again() -> None:
    with full_pipe() as (reader, writer):
        process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                SETUP + "output._IN_SOCKET = output._IN_RELAY = 2**13\n"
                "with relayed() as out:\n"
                "    for number in range(500):\n"
                "        log.info('line', number=number)\n"
                "    print('written', flush=True)\n"
                "    input()\n"
                "    print(out.dropped)\n",
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=writer,
        )
        os.close(writer)
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"written\n"
        read = b""
        while b"log_lines_dropped" not in read or not read.endswith(b"\n"):
            read += os.read(reader, 65536)
        process.stdin.write(b"\n")
        process.stdin.close()
        dropped = int(process.stdout.read())
        process.stdout.close()
        assert process.wait(60) == 0
        *first, said = lines(read)
        numbers = [line["number"] for line in first]
        assert numbers == sorted(set(numbers)), "in order"
        assert 0 < dropped == 500 - len(first) == said["lines"]


@pytest.mark.parametrize("descriptor", [1, 2])
def test_a_reader_that_has_gone_ends_output_and_not_the_log(descriptor: int) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = run(
        f"with relayed({descriptor}):\n"
        f"    for number in range(10 ** 6):\n"
        f"        print('x' * 100, file=(sys.stdout, sys.stderr)[{descriptor - 1}], flush=True)\n"
        f"        if {descriptor} == 2 and number == 1000:\n"
        "            break\n",
        **{"stdout": writer, "stderr": subprocess.PIPE} if descriptor == 1 else {"stderr": writer},
    )
    os.close(writer)
    assert done.returncode == (1 if descriptor == 1 else 0)
    if descriptor == 1:
        assert b"BrokenPipeError" in done.stderr


def test_a_command_without_stderr_and_stdout_runs() -> None:
    command = f"{sys.executable} -m slipstream --version >&- 2>&-"
    assert subprocess.run(["sh", "-c", command], timeout=60, check=False).returncode == 0
