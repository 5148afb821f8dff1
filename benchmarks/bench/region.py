"""The region of a page that a measurement writes: between two lines that name it. All around it stays as it is."""

from __future__ import annotations

from pathlib import Path


def unwritable(page: Path, name: str) -> str | None:
    """Why nothing can be written there, or None."""
    if not page.is_file():
        return f"{page} is no file"
    begin, end = _lines(name)
    text = page.read_text()
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        return f"{page} needs one line {begin} and after it one line {end}"
    return None


def write(page: Path, name: str, text: str) -> None:
    """Put the text into the region, in the place of what is there."""
    begin, end = _lines(name)
    before, _, rest = page.read_text().partition(begin)
    after = rest.partition(end)[2]
    page.write_text(f"{before}{begin}\n\n{text}\n\n{end}{after}")


def _lines(name: str) -> tuple[str, str]:
    return f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
