"""The supervisor on real processes: small Python programs as children, watched through what they print."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from authorities import Authority
from full_pipe import full_pipe
from ports import free_port

from slipstream.local import guard
from slipstream.local.supervisor import Restarts

SUPERVISE = """
import asyncio, json, sys
from slipstream.local import supervisor
supervisor.FIRST = 0.2
from slipstream.local.supervisor import Child, ChildFailed, Restarts, supervise
from slipstream.output import STDOUT, relayed
spec = json.loads(sys.argv[1])
children = [Child(**{**fields, "finished": lambda done=fields.get("finished"): done}) for fields in spec["children"]]
try:
    with relayed(STDOUT):
        asyncio.run(supervise(children, restarts=Restarts(**spec["restarts"]), out=sys.stdout))
except ChildFailed as error:
    sys.exit(f"FAILED {error}")
"""

# Says that it is up, and on SIGTERM that it goes.
POLITE = """
import os, signal, sys, time
def leave(*_):
    print("bye", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
print("up", os.getpid(), flush=True)
while True:
    time.sleep(60)
"""
STUBBORN = """
import os, signal, time
signal.signal(signal.SIGTERM, lambda *_: print("no", flush=True))
print("up", os.getpid(), flush=True)
while True:
    time.sleep(60)
"""
# A server whose port opens only after the file appears, and which answers 503 to the first question; with two more
# arguments it speaks TLS.
SERVER = """
import http.server, os, ssl, sys, time
class Health(http.server.BaseHTTPRequestHandler):
    asked = 0
    def do_GET(self):
        Health.asked += 1
        self.send_response(200 if Health.asked > 1 else 503)
        self.end_headers()
        print("asked", Health.asked, flush=True)
    def log_message(self, *_):
        pass
print("up", os.getpid(), flush=True)
while not os.path.exists(sys.argv[2]):
    time.sleep(0.01)
server = http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Health)
if sys.argv[3:]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*sys.argv[3:])
    server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
"""


class Supervised:
    """A supervisor in a process of its own, and the lines that it prints."""

    def __init__(self, children: list[dict[str, Any]], restarts: dict[str, Any]) -> None:
        spec = json.dumps({"children": children, "restarts": restarts})
        self.process = subprocess.Popen(
            [sys.executable, "-c", SUPERVISE, spec], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.lines: list[str] = []
        self._coming: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self._coming.put(line.rstrip("\n"))

    def until(self, *expected: str, within: float = 60.0) -> list[str]:
        """The next lines that contain these texts, which may come in any order."""
        found: dict[str, str] = {}
        deadline = time.monotonic() + within
        while len(found) < len(expected):
            try:
                line = self._coming.get(timeout=max(deadline - time.monotonic(), 0.001))
            except queue.Empty:
                raise AssertionError(f"not all of {expected} in\n" + "\n".join(self.lines)) from None
            self.lines.append(line)
            found.update({text: line for text in expected if text in line and text not in found})
        return [found[text] for text in expected]

    def end(self) -> int:
        code = self.process.wait(timeout=60)
        self._reader.join(timeout=60)
        while not self._coming.empty():
            self.lines.append(self._coming.get())
        return code

    def position(self, expected: str) -> int:
        return next(at for at, line in enumerate(self.lines) if expected in line)


@pytest.fixture
def start() -> Iterator[Callable[..., Supervised]]:
    running: list[Supervised] = []
    hangup = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whoever runs the tests may ignore it, and a child inherits

    def _start(*children: dict[str, Any], **restarts: Any) -> Supervised:
        running.append(Supervised(list(children), {"delay": 0.05, "longest": 0.1, **restarts}))
        return running[-1]

    yield _start
    signal.signal(signal.SIGHUP, hangup)
    for supervised in running:
        supervised.process.terminate()
        supervised.end()
        assert supervised.process.stdout
        supervised.process.stdout.close()


def child(name: str, program: str, *arguments: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "command": [sys.executable, "-uc", program, *arguments], **fields}


def gone(pid: int, within: float = 60.0) -> bool:
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        try:
            status = Path(f"/proc/{pid}/stat").read_text()
        except FileNotFoundError:
            return True
        if status.rpartition(")")[2].split()[0] == "Z":  # dead; whoever inherited it has yet to notice
            return True
        time.sleep(0.02)
    return False


def pids_in(lines: list[str]) -> list[int]:
    return [int(line.split()[-1]) for line in lines]


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_children_start_in_order_each_after_the_one_before_is_ready(
    start: Callable[..., Supervised], tmp_path: Path, scheme: str
) -> None:
    port, go = free_port(), tmp_path / "go"
    tls = Authority(trustme.CA(), tmp_path).issue() if scheme == "https" else {}
    ready_url = f"{scheme}://127.0.0.1:{port}/health"
    server = child("server", SERVER, str(port), str(go), *tls.values(), ready_url=ready_url)
    supervised = start(server, child("second", POLITE))
    supervised.until("server | up")
    [waited_for] = supervised.until("is waited for")
    said = f"slipstream: server is waited for until {ready_url} answers, since "
    assert waited_for.startswith(said)
    go.touch()
    supervised.until("server | asked 2")
    supervised.until("second | up")
    assert not any("second" in line for line in supervised.lines[: supervised.position("asked 2")])


@pytest.mark.sampled(1)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_stops_the_last_started_first_and_one_at_a_time(
    start: Callable[..., Supervised], number: signal.Signals
) -> None:
    supervised = start(child("explorer", POLITE), child("trainer", POLITE), child("sidecar", POLITE))
    supervised.until("explorer | up", "trainer  | up", "sidecar  | up")
    supervised.process.send_signal(number)
    assert supervised.end() == 0
    goodbyes = [line for line in supervised.lines if "bye" in line]
    assert goodbyes == ["sidecar  | bye", "trainer  | bye", "explorer | bye"]


def test_a_child_that_is_killed_is_started_again_and_the_others_stay(start: Callable[..., Supervised]) -> None:
    supervised = start(child("first", POLITE), child("second", POLITE))
    first, second = pids_in(supervised.until("first  | up", "second | up"))
    os.kill(second, signal.SIGKILL)
    supervised.until("second was killed by signal 9; started again in 0.05 s")
    assert pids_in(supervised.until("second | up")) != [second]
    assert not gone(first, within=0.0)


def test_a_child_that_keeps_failing_stops_everything_and_shows_its_last_lines(start: Callable[..., Supervised]) -> None:
    supervised = start(
        child("explorer", POLITE),
        child("trainer", "import sys; print('no such model'); sys.exit(3)"),
        attempts=3,
    )
    [explorer] = pids_in(supervised.until("explorer | up"))
    assert supervised.end() == 1
    text = "\n".join(supervised.lines)
    assert "FAILED trainer ended with exit code 3, 3 times in a row; its last lines:\n  no such model" in text
    assert text.count("trainer  | no such model") == 3
    assert "started again in 0.05 s" in text
    assert "started again in 0.1 s" in text
    assert gone(explorer)


@pytest.mark.slow
def test_a_child_that_is_not_vital_is_tried_on_and_the_others_stay(start: Callable[..., Supervised]) -> None:
    supervised = start(
        child("sidecar", POLITE),
        child("trainer", "import sys; print('disk full'); sys.exit(1)", vital=False),
        attempts=2,
    )
    [sidecar] = pids_in(supervised.until("sidecar | up"))
    for _ in range(5):
        supervised.until("trainer | disk full")
    assert not gone(sidecar, within=0.0)


@pytest.mark.slow
def test_one_that_is_not_vital_and_was_never_ready_stops_everything(start: Callable[..., Supervised]) -> None:
    never = f"http://127.0.0.1:{free_port()}/health"
    failing = child("explorer", "import time; time.sleep(60)", vital=False, ready_url=never, ready_within=0.2)
    supervised = start(failing, attempts=2)
    assert supervised.end() == 1
    assert "FAILED explorer was not ready within 0.2 s, 2 times in a row" in "\n".join(supervised.lines)


@pytest.mark.slow
def test_a_child_that_settles_between_failures_is_not_given_up(start: Callable[..., Supervised]) -> None:
    supervised = start(child("flaky", "import sys; print('run'); sys.exit(1)"), attempts=2, settled=0.0)
    for _ in range(4):
        supervised.until("flaky | run")


@pytest.mark.slow
def test_a_child_that_is_not_ready_in_time_counts_as_failed(start: Callable[..., Supervised]) -> None:
    url = f"http://127.0.0.1:{free_port()}/health"
    supervised = start(child("slow", POLITE, ready_url=url, ready_within=0.5), attempts=2)
    assert supervised.end() == 1
    assert supervised.position("slow was not ready within 0.5 s; started again") > supervised.position("slow stopping")
    assert supervised.position("FAILED slow was not ready within 0.5 s, 2 times in a row")


def test_a_program_that_does_not_exist_stops_everything(start: Callable[..., Supervised]) -> None:
    supervised = start(child("first", POLITE), {"name": "second", "command": ["no-such-program"]})
    assert supervised.end() == 1
    assert supervised.position("FAILED second cannot be started: ")
    assert supervised.position("first stopping")


def test_an_exit_with_0_is_the_end_of_a_child_only_when_its_work_is_finished(start: Callable[..., Supervised]) -> None:
    supervised = start(
        child("idle", "print('nothing to do')", finished=False),
        child("worker", "print('worked')", finished=True),
        attempts=1,
    )
    supervised.until("worker has finished its work")
    for _ in range(3):
        supervised.until("idle   | nothing to do")
    supervised.process.terminate()
    assert supervised.end() == 0
    assert sum("worker | worked" in line for line in supervised.lines) == 1


def test_the_supervisor_ends_when_all_work_is_finished(start: Callable[..., Supervised]) -> None:
    assert start(child("worker", "print('worked')", finished=True)).end() == 0


@pytest.mark.slow
def test_a_child_that_will_not_end_is_killed_after_its_grace(start: Callable[..., Supervised]) -> None:
    supervised = start(child("stubborn", STUBBORN, grace=3))
    [pid] = pids_in(supervised.until("stubborn | up"))
    supervised.process.terminate()
    assert supervised.end() == 0
    assert supervised.position("stubborn | no") < supervised.position("still there after 3 s: killed")
    assert gone(pid, within=0.1)


def test_nothing_is_left_of_a_child_that_had_children_of_its_own(start: Callable[..., Supervised]) -> None:
    family = f"import subprocess, sys; subprocess.run([sys.executable, '-uc', {STUBBORN!r}])"
    supervised = start(child("family", family))
    [grandchild] = pids_in(supervised.until("family | up"))
    supervised.process.terminate()
    assert supervised.end() == 0
    assert gone(grandchild)


def test_no_child_outlives_a_supervisor_that_is_killed(start: Callable[..., Supervised]) -> None:
    supervised = start(child("polite", POLITE), child("another", POLITE))
    pids = pids_in(supervised.until("polite  | up", "another | up"))
    supervised.process.kill()
    assert all(gone(pid) for pid in pids)
    assert supervised.end() == -signal.SIGKILL


@pytest.mark.slow
def test_a_lost_guard_costs_no_child_its_keeper(start: Callable[..., Supervised]) -> None:
    supervised = start(child("polite", POLITE))
    [pid] = pids_in(supervised.until("polite | up"))
    os.kill(guard_of(supervised.process.pid), signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)
    supervised.until("started again")
    [again] = pids_in(supervised.until("polite | up"))
    supervised.process.terminate()
    assert supervised.end() == 0
    assert gone(again)
    assert not any("Traceback" in line for line in supervised.lines)


def guard_of(supervisor: int) -> int:
    children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
    return next(int(pid) for pid in children if b"slipstream.local.guard" in Path(f"/proc/{pid}/cmdline").read_bytes())


@pytest.mark.slow
def test_a_supervisor_that_was_told_to_outlive_its_terminal_does(start: Callable[..., Supervised]) -> None:
    previous = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as `nohup` leaves it to the program that it starts
    try:
        supervised = start(child("polite", POLITE))
    finally:
        signal.signal(signal.SIGHUP, previous)
    [pid] = pids_in(supervised.until("polite | up"))
    supervised.process.send_signal(signal.SIGHUP)
    os.kill(pid, signal.SIGKILL)
    supervised.until("started again")
    supervised.until("polite | up")


def test_the_guard_kills_what_does_not_end_and_leaves_what_it_was_told_to_forget() -> None:
    stubborn, spared = (
        subprocess.Popen([sys.executable, "-uc", STUBBORN], stdout=subprocess.PIPE, process_group=0) for _ in range(2)
    )
    try:
        assert stubborn.stdout
        stubborn.stdout.readline()
        guard.main([f"+{stubborn.pid}\n", f"+{spared.pid}\n", f"-{spared.pid}\n"], grace=0.2)
        assert stubborn.wait(timeout=10) == -signal.SIGKILL
        assert spared.poll() is None
    finally:
        for process in (stubborn, spared):
            process.kill()
            process.communicate()


def test_output_comes_through_whole_and_prefixed(start: Callable[..., Supervised]) -> None:
    program = """
import sys
sys.stdout.write("one\\ntwo\\rthree\\n\\nno line end")
sys.stdout.flush()
sys.stderr.write("\\n" + "x" * 200_000 + "\\n")
sys.stderr.buffer.write(b"\\xff bad bytes")
"""
    supervised = start(child("writer", program, finished=True))
    assert supervised.end() == 0
    written = [line.removeprefix("writer | ") for line in supervised.lines if line.startswith("writer | ")]
    assert written[:4] == ["one", "two", "three", "no line end"]
    assert "".join(written[4:-1]) == "x" * 200_000
    assert written[-1] == "\ufffd bad bytes"


@pytest.mark.slow
def test_a_terminal_without_a_character_does_not_stop_a_child(
    start: Callable[..., Supervised], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    program = """
import sys
for _ in range(3):
    sys.stdout.buffer.write("caf\\u00e9\\n".encode() * 20_000)  # more than a pipe holds
sys.stdout.buffer.write(b"end\\n")
"""
    supervised = start(child("writer", program, finished=True))
    supervised.until("caf\\xe9", "writer | end")
    assert supervised.end() == 0


@pytest.mark.slow
def test_the_supervisor_ends_when_nobody_reads_its_output(tmp_path: Path) -> None:
    spec = json.dumps({"children": [child("chatty", "while True: print('line')")], "restarts": {}})
    process = subprocess.Popen(
        [sys.executable, "-c", SUPERVISE, spec], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout
    process.stdout.readline()
    process.stdout.close()
    process.wait(timeout=60)


@pytest.mark.slow
def test_a_reader_that_stalls_keeps_no_child_from_being_started_again(tmp_path: Path) -> None:
    program = f"""
import tempfile
print(*["line" * 20] * 80_000, sep="\\n")  # more than waits for a reader
tempfile.mkstemp(dir={str(tmp_path)!r})
raise SystemExit(1)
"""
    spec = json.dumps({"children": [child("chatty", program, vital=False)], "restarts": {"delay": 0.05}})
    with full_pipe() as (_, writer):
        process = subprocess.Popen([sys.executable, "-c", SUPERVISE, spec], stdout=writer, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while len(list(tmp_path.iterdir())) < 2:
            assert time.monotonic() < deadline, "it was not started again"
            time.sleep(0.05)
        process.terminate()
        assert process.wait(timeout=60) == 0


def test_a_child_that_fails_for_days_is_still_started_again() -> None:
    assert [Restarts().wait(failures) for failures in (0, 1, 2, 5, 6, 5000)] == [1, 1, 2, 16, 30, 30]
