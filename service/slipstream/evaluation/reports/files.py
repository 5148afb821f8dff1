"""The files of a report: `report.json`, `report.md` and `report.html` in one folder."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from slipstream.evaluation.reports.document import FILE, Report
from slipstream.evaluation.reports.html import html
from slipstream.evaluation.reports.markdown import markdown
from slipstream.evaluation.reports.names import ReportError


def prepare(folder: Path) -> None:
    """Make the folder of a report, before anything is asked.

    Raises:
        ReportError: it cannot be made, or nothing can be written there.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ReportError(
            f"--report: expected a folder that can be written, found {folder}; {error.strerror}"
        ) from error


def write(report: Report, folder: Path) -> None:
    """Write a report; each of its files is whole at any time.

    Raises:
        ReportError: it cannot be written.
    """
    texts = {"report.md": markdown(report), "report.html": html(report), FILE: report.model_dump_json(indent=1) + "\n"}
    try:
        for name, text in texts.items():
            partial = folder / f".{name}.{os.getpid()}.partial"
            try:
                partial.write_bytes(text.encode("utf-8", "backslashreplace"))
                partial.replace(folder / name)
            finally:
                partial.unlink(missing_ok=True)
    except OSError as error:
        raise ReportError(f"--report: {folder} cannot be written; {error.strerror}") from error
