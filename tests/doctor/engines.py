"""An Explorer whose engines serve different versions, on a host with a clock of its own."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from email.utils import formatdate

from scripted import ScriptedExplorer
from starlette.requests import Request
from starlette.responses import JSONResponse, Response


class ExplorerWithEngines(ScriptedExplorer):
    """
    Attributes:
        other_versions: what the engines serve that come after the first.
        clock: seconds by which it is ahead.
        asked: called whenever its metrics are asked for.
    """

    def __init__(self) -> None:
        super().__init__()
        self.other_versions: list[int] = []
        self.clock = 0.0
        self.asked: Callable[[], None] = lambda: None

    async def _metrics(self, request: Request) -> Response:
        self.asked()
        response = await super()._metrics(request)
        others = {f"rollout/model_{number}/model_version": each for number, each in enumerate(self.other_versions, 1)}
        date = {"date": formatdate(time.time() + self.clock, usegmt=True)}
        return JSONResponse({**json.loads(response.body), **others}, response.status_code, date)
