"""The table of the clients, in Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from matrix.client import Client
from matrix.trial import LATE, STREAMS, Grouping, Outcome

REGION = "clients"
"""Of the page that the table is written into."""


def markdown(outcomes: Sequence[tuple[Client, Outcome]]) -> str:
    """The table, a line for each client."""
    lates = ", ".join(map(str, LATE))
    lines = [
        "| client | version | dialect | what must be set | calls of a request | run "
        f"| of {STREAMS} streams, at {lates} ms |",
        "|---|---|---|---|---|---|---|",
    ]
    for client, outcome in outcomes:
        streams = ", ".join(str(outcome.streams[late]) for late in LATE) if outcome.streams else "not streamed"
        calls = sum(grouping.calls for grouping in outcome.groupings.values())
        run = "all" if outcome.run == calls else f"{outcome.run} of {calls}"
        dialect = f"{client.dialect} (default)" if client.is_default else client.dialect
        cells = [client.title, outcome.version, dialect, client.needs, _grouped(outcome.groupings), run, streams]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _grouped(groupings: dict[str, Grouping]) -> str:
    """One phrase where both modes group alike."""
    phrases = {mode: _phrase(grouping) for mode, grouping in groupings.items()}
    if len(set(phrases.values())) == 1:
        return next(iter(phrases.values()))
    return "; ".join(f"{mode}: {phrase}" for mode, phrase in phrases.items())


def _phrase(grouping: Grouping) -> str:
    return f"{grouping.calls} in {_count(grouping.tasks, 'task')}, {_count(grouping.sessions, 'session')}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
