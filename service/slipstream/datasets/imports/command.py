"""`slipstream dataset import`: files read, sent or written as cases, and what was refused."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from slipstream.datasets.imports.cases import cases
from slipstream.datasets.imports.conversation import Conversation, Options, Refused, Skipped
from slipstream.datasets.imports.files import open_records
from slipstream.datasets.imports.formats import READERS, Format
from slipstream.datasets.imports.upload import Choices, Outcome, upload
from slipstream.errors import SlipstreamError
from slipstream.jsontext import to_json
from slipstream.terminal.inert import inert
from slipstream.terminal.sidecar_http import client as open_client

_EVERY = 2.0
"""Seconds between two lines of progress."""


def import_sessions(
    files: Sequence[Path], options: Options, choices: Choices, url: str, key: str | None, tenant: str | None
) -> bool:
    """Import the conversations of files into the store of a sidecar, and print what became of them.

    Returns:
        False if something was refused; each is named on standard error.

    Raises:
        SlipstreamError: a file cannot be read, or the sidecar cannot be reached or does not take the key.
    """
    with _reading(files, Format(choices.source), options) as read, open_client(url, key, tenant) as client:
        outcome = upload(read, choices, client, _tell, _Progress())
    counts = outcome.conversations
    print(
        f"imported {counts['imported']:,} conversations with {outcome.calls:,} calls and {outcome.feedback:,} "
        f"judgements; {counts['known']:,} were there already, {counts['erased']:,} were deleted before, "
        f"{counts['refused']:,} refused, {outcome.skipped:,} records are no calls of a model"
    )
    if outcome.names:
        names = ", ".join(inert(name, 60) for name in sorted(outcome.names)[:10])
        print(f"{outcome.left_out:,} judgements were left out: several names ({names}); --score NAME takes one")
    return outcome.whole


def write_cases(files: Sequence[Path], format_: Format, options: Options, output: Path) -> bool:
    """Write the conversations of files as cases of an evaluation.

    Returns:
        False if something was refused; each is named on standard error.

    Raises:
        SlipstreamError: a file cannot be read or written.
    """
    written = refused = 0
    partial = output.with_name(f".{output.name}.partial")
    try:
        with _reading(files, format_, options) as read, partial.open("wb") as file:
            for each in cases(read, options.score):
                if isinstance(each, Refused):
                    refused += 1
                    _tell(each)
                elif not isinstance(each, Skipped):
                    file.write(to_json(each) + b"\n")
                    written += 1
        partial.replace(output)
    except OSError as error:
        raise SlipstreamError(f"{output}: expected a file that can be written; {error.strerror}") from error
    finally:
        partial.unlink(missing_ok=True)
    print(f"wrote {written:,} cases to {output}; {refused:,} refused")
    return refused == 0


@contextmanager
def _reading(
    files: Sequence[Path], format_: Format, options: Options
) -> Iterator[Iterator[Conversation | Refused | Skipped]]:
    with ExitStack() as opened:
        yield READERS[format_]([opened.enter_context(open_records(path)) for path in files], options)


def _tell(refused: Refused) -> None:
    print(inert(str(refused), 1000), file=sys.stderr)


class _Progress:
    """Lines of progress, where a person looks."""

    def __init__(self) -> None:
        self._at = time.monotonic()

    def __call__(self, outcome: Outcome) -> None:
        now = time.monotonic()
        if sys.stderr.isatty() and now - self._at >= _EVERY:
            self._at = now
            print(f"{outcome.conversations.total():,} conversations, {outcome.calls:,} calls stored", file=sys.stderr)
