"""`slipstream tune`: the user's script, run as Python would run it, or read for the YAML of Trinity-RFT."""

from __future__ import annotations

import importlib.util
import os
import runpy
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from slipstream.errors import SlipstreamError


def run_script(script: Path, arguments: Sequence[str], to_trinity: Path | None) -> None:
    """Run a script that calls `slipstream_client.tune()`.

    Args:
        to_trinity: with it, `tune()` writes this file, and there the script ends, without any training.

    Raises:
        SlipstreamError: there is no such script, it does not call `tune()`, or `tune()` says what is wrong with what
            it was given; or the client is not installed.
        SystemExit: the script's own.
        Exception: likewise.
    """
    if importlib.util.find_spec("slipstream_client") is None:
        raise SlipstreamError("this command needs the client: pip install 'slipstream-sidecar-client[tuner]'")
    from slipstream_client.tuner.errors import TunerError
    from slipstream_client.tuner.trinity import TO_TRINITY

    if not script.is_file():
        raise SlipstreamError(f"there is no script {script}")
    before = _identity(to_trinity)
    if to_trinity is not None:
        os.environ[TO_TRINITY] = str(to_trinity.absolute())
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, str(script.parent.absolute()))  # as `python SCRIPT` does
    try:
        runpy.run_path(str(script), run_name="__main__")
    except SystemExit as ended:
        if to_trinity is None or ended.code or _identity(to_trinity) == before:
            raise
    except (TunerError, ValueError) as error:
        if not _is_the_tuner_s(error):
            raise
        raise SlipstreamError(str(error)) from error
    if to_trinity is None:
        return
    if _identity(to_trinity) == before:
        raise SlipstreamError(f"{script} did not call tune(): {to_trinity} was not written")
    print(f"{to_trinity} is written. Where the GPUs are: ray start --head && trinity run --config {to_trinity}")


def _is_the_tuner_s(error: Exception) -> bool:
    """Return whether the tuner raised the error, with a message for users, and not the script, whose author wants to
    see the line."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return str(frame.f_globals.get("__name__")).startswith("slipstream_client.tuner.")


def _identity(path: Path | None) -> tuple[int, int] | None:
    """Another one for every file that is put in a file's place."""
    if path is None or not path.exists():
        return None
    status = path.stat()
    return status.st_ino, status.st_mtime_ns
