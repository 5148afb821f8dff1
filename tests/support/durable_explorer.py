"""The scripted Explorer as a process that can be killed: like Trinity's, it finds its recorded chats again.

    python durable_explorer.py PORT JOURNAL

The journal has a line of JSON for each chat that was recorded, each that was consumed by its first reward, and each
commit with what it took: what had effect. The queue and the counters are in memory, as in Trinity.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import uvicorn
from scripted import ScriptedExplorer
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response


class DurableExplorer(ScriptedExplorer):
    """A scripted Explorer that goes on from its journal.

    Attributes:
        name: makes its answers' ids others than those of an earlier life.
    """

    def __init__(self, journal: Path) -> None:
        super().__init__(journal)
        self.name = f"{os.getpid()}.{time.monotonic_ns()}"
        for event in journal_of(journal):
            if event["event"] == "recorded":
                self.recorded.add(event["msg_id"])
                self.choices[event["msg_id"]] = 1
            elif event["event"] == "consumed":
                self.recorded.discard(event["msg_id"])

    def reply(self, msg_id: str, body: dict[str, Any]) -> dict[str, Any]:
        return super().reply(f"{self.name}-{msg_id}", body)

    async def _feedback(self, request: Request) -> Response:
        try:
            body = await request.json()
        except (ClientDisconnect, ValueError):  # cut, or garbled: Trinity says 500
            return Response(status_code=500)
        for msg_id in set(body["msg_ids"]) & self.recorded:
            self._write({"event": "consumed", "msg_id": msg_id, "reward": body["reward"]})
        return await super()._feedback(request)

    async def _chat(self, request: Request) -> Response:
        try:
            await request.json()
        except (ClientDisconnect, ValueError):
            return JSONResponse({"error": {"message": "no JSON"}}, 400)
        return await super()._chat(request)


def journal_of(path: Path) -> list[dict[str, Any]]:
    """What a journal says, in order; a last line that a kill cut is not there."""
    if not path.exists():
        return []
    lines = path.read_bytes().split(b"\n")
    return [json.loads(line) for line in lines[:-1]]


if __name__ == "__main__":
    explorer = DurableExplorer(Path(sys.argv[2]))
    uvicorn.run(explorer.app(), host="127.0.0.1", port=int(sys.argv[1]), log_level="error")
