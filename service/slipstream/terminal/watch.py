"""`slipstream status --watch`: the status of a sidecar until Ctrl-C, through its restarts."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.segment import SegmentLines
from rich.text import Text

from slipstream.terminal.inert import inert, json_text
from slipstream.terminal.screen import console
from slipstream.terminal.sidecar_http import SidecarAway
from slipstream.terminal.sidecar_http import client as open_client
from slipstream.terminal.spans import span
from slipstream.terminal.status import ask_status
from slipstream.terminal.table import rows, table

Status = Mapping[str, Any]

_LONGEST = 400
"""Characters of what is found wrong, in a line."""


class _View(Protocol):
    """A place that looks are shown at."""

    def show(self, status: Status, away: float | None) -> None:
        """Show a status.

        Args:
            away: seconds that the sidecar was away before it; None where it was not.
        """

    def show_away(self, error: str, since: float) -> None:
        """Show that no sidecar answers, since this moment in Unix seconds."""


def watch(url: str, key: str | None, every: float, *, as_json: bool) -> None:
    """Show the status again after `every` seconds, until Ctrl-C: on a terminal as a table that is drawn anew in its
    place, elsewhere as a line for each thing that has changed; with `as_json` as a line a look.

    A sidecar that is away is waited for, and that is said.

    Raises:
        SlipstreamError: the sidecar does not take the key, or another server answers.
    """
    since: float | None = None
    try:
        with open_client(url, key) as client, _view(url, as_json=as_json) as view:
            while True:
                try:
                    status = ask_status(client)
                except SidecarAway as error:
                    since = since or time.time()
                    view.show_away(str(error), since)
                else:
                    view.show(status, None if since is None else time.time() - since)
                    since = None
                time.sleep(every)
    except KeyboardInterrupt:
        return


@contextmanager
def _view(url: str, *, as_json: bool) -> Iterator[_View]:
    screen = console()
    if as_json:
        yield _JsonLines()
    elif not sys.stdout.isatty() or screen.is_dumb_terminal:  # FORCE_COLOR has rich take a pipe for a terminal
        yield _ChangedLines(url)
    else:
        # the cursor, and what the terminal showed before, come back at the end
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        with Live(console=screen, screen=True, auto_refresh=False) as live:
            view = _Drawn(screen, live, url)
            view.draw(f"waiting for {url}")
            with suppress(KeyboardInterrupt):
                yield view
        screen.print(view.shown)


class _Drawn:
    """A table on the terminal's other screen, written over the one before, so that it does not flicker."""

    def __init__(self, screen: Console, live: Live, url: str) -> None:
        self._screen, self._live, self._url = screen, live, url
        self._back = Text()
        self.shown: RenderableType = ""

    def show(self, status: Status, away: float | None) -> None:
        if away is not None:
            self._back = Text(_back(away, time.time()), style="yellow")
        self.draw(Group(*[self._back] * bool(self._back), table(status, self._url)))

    def show_away(self, error: str, since: float) -> None:
        self.draw(Text(f"{error}\nwaited for since {_clock(since)}", style="yellow"))

    def draw(self, shown: RenderableType) -> None:
        self.shown = shown
        lines = self._screen.render_lines(shown, pad=False)
        room = self._screen.height
        if len(lines) > room:
            note = Text(f"… {len(lines) - room + 1} more lines; `slipstream status` shows them", style="dim")
            shown = Group(SegmentLines(lines[: room - 1], new_lines=True), note)
        self._live.update(shown, refresh=True)


class _ChangedLines:
    """A line for each thing that is new or different."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._told: dict[str, str] | None = None
        self._away = False

    def show(self, status: Status, away: float | None) -> None:
        self._away = False
        now = time.time()
        if away is not None:
            self._print(_back(away, now))
        told = dict(_told(status))
        before = self._told
        if before is None:
            before = {}
            self._print(f"slipstream {inert(status['slipstream'])} at {self._url}")
        for name, value in told.items():
            if before.get(name) != value:
                self._print(f"{name}: {value}")
        for name in before:
            if name not in told:
                self._print(f"{name}: no longer")
        self._told = told

    def show_away(self, error: str, since: float) -> None:
        if not self._away:
            self._print(error)
        self._away = True

    @staticmethod
    def _print(line: str) -> None:
        print(_clock(time.time()), line, flush=True)


class _JsonLines:
    """GET /status, a line a look; stderr has what is said of a sidecar that is away."""

    def __init__(self) -> None:
        self._away = False

    def show(self, status: Status, away: float | None) -> None:
        if away is not None:
            print(f"slipstream: {_back(away, time.time())}", file=sys.stderr, flush=True)
        self._away = False
        print(json_text(status), flush=True)

    def show_away(self, error: str, since: float) -> None:
        if not self._away:
            print(f"slipstream: {error}", file=sys.stderr, flush=True)
        self._away = True


def _told(status: Status) -> Iterator[tuple[str, str]]:
    """Name and value of all that a line may tell, without times that pass."""
    for problem in status.get("problems") or ():
        yield (
            f"{problem['severity']}: {inert(problem['code'])} at {inert(problem['where'], _LONGEST)}",
            inert(problem["fix"], _LONGEST),
        )
    yield from ((name, inert(value, _LONGEST)) for name, value in rows(status, None))
    for row in status.get("rewards") or ():
        yield f"rewards of version {row['version']}", f"{row['runs']} runs, mean {row['mean']:.3f}"


def _back(away: float, now: float) -> str:
    return f"the sidecar answers again since {_clock(now)}, after {span(away)}"


def _clock(at: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at))
