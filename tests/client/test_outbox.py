"""What the outbox does with requests that the sidecar does not take at once."""

from __future__ import annotations

import logging
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from ports import free_port

import slipstream_client as slipstream
from slipstream_client import outbox
from slipstream_client.outbox import Outbox
from slipstream_client.service import post_feedback


class Scripted:
    """A sidecar that answers with these statuses, one a request, and then with 202; 0 hangs up instead. Its errors
    have `code`, if there is one."""

    def __init__(self) -> None:
        self.statuses: list[int] = []
        self.code = ""
        self.bodies: list[bytes] = []
        scripted = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                scripted.bodies.append(self.rfile.read(int(self.headers["content-length"])))
                status = scripted.statuses.pop(0) if scripted.statuses else 202
                if status == 0:
                    self.close_connection = True
                    return
                body = b'{"id": "f", "state": "applied"}'
                if status >= 400:
                    body = b'{"error": {"message": "no", "code": "%b"}}' % scripted.code.encode()
                self.send_response(status)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    @property
    def said(self) -> list[str]:
        return [body.decode().split('"')[3] for body in self.bodies]


@contextmanager
def serving() -> Iterator[Scripted]:
    scripted = Scripted()
    with scripted.server as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield scripted
        server.shutdown()
        thread.join()


@pytest.fixture
def sidecar() -> Iterator[Scripted]:
    with serving() as scripted:
        slipstream.configure(scripted.url)
        yield scripted


@pytest.fixture
def nowhere() -> str:
    """The address of a sidecar that is stopped."""
    return f"http://127.0.0.1:{free_port()}"


@pytest.mark.parametrize("status", [0, 408, 429, 500, 502, 503])
def test_what_did_not_arrive_is_sent_again_in_order(sidecar: Scripted, status: int) -> None:
    sidecar.statuses = [status, status]
    slipstream.feedback(task_id="a", thumbs="up")
    slipstream.feedback(task_id="b", thumbs="up")
    assert slipstream.flush(10)
    assert sidecar.said == ["a", "a", "a", "b"]
    assert slipstream.outbox_counts().sent == 2


def test_what_the_sidecar_fails_at_does_not_hold_up_the_rest(sidecar: Scripted) -> None:
    sidecar.statuses = [500] * outbox.ATTEMPTS
    slipstream.feedback(task_id="a", thumbs="up")
    slipstream.feedback(task_id="b", thumbs="up")
    assert slipstream.flush(10)
    assert sidecar.said == ["a"] * outbox.ATTEMPTS + ["b"]
    assert (slipstream.outbox_counts().sent, slipstream.outbox_counts().dropped) == (1, 1)


@pytest.mark.parametrize("status", [0, 500, 503])
def test_feedback_on_a_sessions_last_answer_is_not_said_twice(
    sidecar: Scripted, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    """It may have arrived, and by now the session's last answer may be another one."""
    sidecar.statuses = [status]
    slipstream.feedback(session_id="a", thumbs="up")
    slipstream.feedback(session_id="b", thumbs="up")
    assert slipstream.flush(10)
    assert sidecar.said == ["a", "b"]
    assert slipstream.outbox_counts().dropped == 1
    assert "feedback by session_id is dropped" in caplog.text


@pytest.mark.parametrize(("status", "code"), [(429, "feedback_rate"), (503, "store_failed"), (502, "connect")])
def test_feedback_on_a_sessions_last_answer_is_sent_again_where_nothing_was_stored(
    sidecar: Scripted, status: int, code: str
) -> None:
    sidecar.statuses, sidecar.code = [status], code
    slipstream.feedback(session_id="a", thumbs="up")
    assert slipstream.flush(10)
    assert sidecar.said == ["a", "a"]
    assert slipstream.outbox_counts().sent == 1


def test_everything_arrives_once_the_sidecar_is_back(nowhere: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "slipstream_client")
    slipstream.configure(nowhere)
    for number in range(20):
        slipstream.feedback(task_id=f"task-{number}", thumbs="up")
    assert not slipstream.flush(0.05)
    warned = time.monotonic() + 30
    while not caplog.records:
        assert time.monotonic() < warned, "it does not say that the sidecar is away"
        time.sleep(0.01)
    with serving() as scripted:
        slipstream.configure(scripted.url)
        assert slipstream.flush(10)
    assert scripted.said == [f"task-{number}" for number in range(20)]
    assert [record.levelname for record in caplog.records if record.name == "slipstream_client"] == ["WARNING", "INFO"]


def test_the_oldest_goes_where_too_much_waits(nowhere: str, caplog: pytest.LogCaptureFixture) -> None:
    slipstream.configure(nowhere)
    with bounded(most=10) as box:
        for number in range(50):
            box.put(post_feedback({"task_id": str(number)}))
        counts = box.counts()
    assert counts.waiting in (10, 11)  # and the one that is being sent
    assert counts.waiting + counts.dropped == 50

    with bounded(most_bytes=1000) as box:
        for _ in range(50):
            box.put(post_feedback({"comment": "x" * 100}))
        before = box.counts()
        box.put(post_feedback({"comment": "x" * 2000}))  # goes alone
        counts = box.counts()
    assert 500 < counts.waiting_bytes <= 1000
    assert (counts.waiting, counts.dropped) == (before.waiting, before.dropped + 1)
    assert counts.waiting + counts.dropped == 51
    lines = [record.getMessage() for record in caplog.records if "dropped" in record.getMessage()]
    assert len(lines) == 3  # each of the two said it once, and the second that one was too long
    assert "it is longer than the 1000 bytes kept" in lines[-1]


def test_feedback_after_the_end_is_dropped_and_the_log_says_so(nowhere: str) -> None:
    program = (
        "import atexit\n"
        "def late():\n"
        "    for _ in range(2):\n"
        "        slipstream.feedback(task_id='a', thumbs='up')\n"
        "    print(slipstream.outbox_counts().dropped)\n"
        "atexit.register(late)\n"
        "import slipstream_client as slipstream\n"
        f"slipstream.configure({nowhere!r})\n"
        "slipstream.feedback\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout) == (0, "2\n")
    assert ended.stderr.count("the program ends") == 1


@contextmanager
def bounded(**bounds: int) -> Iterator[Outbox]:
    box = Outbox(**bounds)
    try:
        yield box
    finally:
        box.close(0)


def test_an_address_that_is_none_does_not_break_the_agent(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("SLIPSTREAM_URL", "nonsense")
    for _ in range(3):
        slipstream.feedback(task_id="a", thumbs="up")
    assert slipstream.flush(10)
    assert slipstream.outbox_counts().dropped == 3
    [line] = [record.getMessage() for record in caplog.records if record.name == "slipstream_client"]
    assert "SLIPSTREAM_URL: expected the sidecar's address" in line


def test_an_interpreter_without_threads_left_does_not_break_the_agent(
    sidecar: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        slipstream.feedback(task_id="a", thumbs="up")
    slipstream.feedback(task_id="b", thumbs="up")
    assert slipstream.flush(10)
    assert sidecar.said == ["a", "b"]


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_worker_sends_its_own_and_nothing_of_its_parents(sidecar: Scripted, nowhere: str) -> None:
    """As gunicorn's workers do where the application was loaded, and called, before they were forked."""
    slipstream.feedback(task_id="warm", thumbs="up")
    assert slipstream.flush(10)
    slipstream.configure(nowhere)
    slipstream.feedback(task_id="waits in the parent", thumbs="up")

    def worker() -> None:
        slipstream.configure(sidecar.url)
        slipstream.feedback(task_id="child", thumbs="up")
        assert slipstream.flush(10)
        os._exit(0)

    child = multiprocessing.get_context("fork").Process(target=worker)
    child.start()
    child.join(20)
    assert child.exitcode == 0
    assert sidecar.said == ["warm", "child"]
    slipstream.configure(sidecar.url)
    assert slipstream.flush(10)
    assert sidecar.said == ["warm", "child", "waits in the parent"]


def test_the_end_of_a_program_waits_for_what_is_left(sidecar: Scripted) -> None:
    code = "import slipstream_client as s; s.feedback(task_id='last words', thumbs='up')"
    environment = {**os.environ, "SLIPSTREAM_URL": sidecar.url}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=30)
    assert sidecar.said == ["last words"]


@pytest.mark.slow
def test_the_end_of_a_program_does_not_wait_for_a_sidecar_that_is_gone(nowhere: str) -> None:
    code = "import slipstream_client as s; s.feedback(task_id='a', thumbs='up')"
    environment = {**os.environ, "SLIPSTREAM_URL": nowhere}
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, check=True, timeout=30, capture_output=True, text=True
    )
    assert time.monotonic() - began < outbox.AT_EXIT + 10
    assert "1 of the marks and feedback did not reach the sidecar" in done.stderr
