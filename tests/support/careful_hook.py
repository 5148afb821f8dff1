"""A redaction hook that fails. It imports nothing: its process loads this module, and the tests wait for that."""

from __future__ import annotations

MARKER = "3f2c77-otter"


def careful(text: str) -> str:
    """Redacts a name, and fails where it does not know what to do."""
    if "unknown" in text:
        raise ValueError(text)
    return text.replace(MARKER, "[redacted:animal]")


REDACT = {"redact": [{"python": f"{__name__}:careful"}]}
"""The `capture` section that has it."""
