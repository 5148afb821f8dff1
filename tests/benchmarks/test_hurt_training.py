"""The benchmark that hurts the training side: it counts what agents would notice, and its ways strike."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest
from bench.steady import Asked, Steady, open_loop
from hurt_training.__main__ import Row, main
from hurt_training.ways import WAYS

GOOD = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok"
ANSWERS = {
    b"good": GOOD,
    b"refused": GOOD.replace(b"200 OK", b"503 Service Unavailable"),
    b"broken": GOOD[:-1],
    b"changed": GOOD.replace(b"ok", b"no"),
}


@pytest.fixture
def port() -> Iterator[int]:
    """A server that answers as the path says, once a connection."""

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection:
                if request := connection.recv(4096):
                    connection.sendall(ANSWERS[request.split()[1].lstrip(b"/")])

    with socket.create_server(("127.0.0.1", 0)) as server:
        (serving := threading.Thread(target=serve)).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        serving.join()


def test_what_an_agent_would_notice_is_counted(port: int) -> None:
    def ask(number: int) -> Asked:
        what = list(ANSWERS)[number % len(ANSWERS)]
        return b"GET /%s HTTP/1.1\r\n\r\n" % what, b"ok"

    steady = open_loop(port, 100, 0.2, ask)
    assert steady.asked == 20
    assert (steady.refused, steady.broken, steady.changed, len(steady.taken)) == (5, 5, 5, 5)
    assert steady.failed == 15


def test_a_row_says_what_was_done_and_what_it_cost() -> None:
    quiet, hurt = (Steady([ms / 1000] * 10, 10) for ms in (2.0, 3.5))
    row = Row(WAYS[0], [quiet], [hurt])
    assert "it never struck" in row.line()
    row.struck.update(["killed", "killed"])
    assert row.line() == f"| {WAYS[0].name} | killed 2 times | 10 | 0 | 0 | 0 | 2.0 | 3.5 | +1.5 |"


@pytest.mark.slow
def test_agents_notice_neither_a_kill_nor_a_hold(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--requests", "200", "--rounds", "1", "--only", "kill -9"]) == 0
    assert main(["--requests", "200", "--rounds", "1", "--only", "SIGSTOP"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("| 200 | 0 | 0 | 0 |") == 2, printed
