"""A wait that lasts says what is waited for, and since when."""

from __future__ import annotations

import re
import threading

import pytest

from slipstream.terminal import waiting as module
from slipstream.terminal.waiting import waiting
from slipstream_client.tuner import waiting as tuners
from slipstream_client.tuner.waiting import Wait


def test_a_long_wait_is_told_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST", 0.01)
    monkeypatch.setattr(module, "AGAIN", 0.01)
    told, twice = [], threading.Event()

    class Stderr:
        def write(self, text: str) -> None:
            told.append(text)
            if "".join(told).count("\n") >= 2:
                twice.set()

        def flush(self) -> None: ...

    monkeypatch.setattr("sys.stderr", Stderr())
    with waiting("pip to download a model"):
        assert twice.wait(30)
    line = r"slipstream: waiting for pip to download a model, since \d\d:\d\d:\d\d \(\d+ s\)\n"
    assert re.fullmatch(f"(?:{line}){{2,}}", "".join(told))


def test_a_short_wait_is_not_told(capsys: pytest.CaptureFixture[str]) -> None:
    with waiting("nothing"):
        pass
    wait = Wait("nothing")
    wait.goes_on()
    assert capsys.readouterr().err == ""


def test_the_tuner_tells_what_it_waits_for(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(tuners, "FIRST", 0.0)
    wait = Wait("http://explorer/metrics to answer")
    wait.goes_on("ConnectError")
    wait.goes_on("ConnectError")
    said = capsys.readouterr().err
    assert re.fullmatch(
        r"tune: waiting for http://explorer/metrics to answer, since \d\d:\d\d:\d\d \(0 s\): ConnectError\n", said
    )
