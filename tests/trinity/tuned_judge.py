"""A module beside the script, which holds its judge."""

from __future__ import annotations

from typing import Any

import slipstream_client as slipstream


async def judge(task: dict[str, Any], response: Any) -> slipstream.JudgeOutput:
    """The engine promises what its answer is worth."""
    return slipstream.JudgeOutput(reward=float(response.removeprefix("worth")), metrics={"length": len(response)})
