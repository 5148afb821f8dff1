"""The lane as the training side sees it: which model and which version it serves."""

from __future__ import annotations

from dataclasses import dataclass

from slipstream.errors import ExplorerError
from slipstream.explorer.calls import ExplorerCalls, counter
from slipstream.memory.parsing import ParseMemory
from slipstream.settings.serving import Lane

_WITHIN = 2.0
"""Seconds for a question to the lane: users wait for its answers, so one that is slower than this is not ready."""

_ROOT = "/v1"


@dataclass(frozen=True, slots=True)
class LaneState:
    """The lane's last answers.

    Attributes:
        model: name of its model; None where it did not answer.
        step: version by its own count, the same in all of its engines; None where it tells none.
        error: why no user may go there.
    """

    model: str | None = None
    step: int | None = None
    error: str | None = None


class LaneClient(ExplorerCalls):
    """Asks the lane. It never gets what a caller sent."""

    def __init__(self, settings: Lane, parsing: ParseMemory) -> None:
        root = settings.base_url.removesuffix(_ROOT)
        super().__init__(root, parsing, connect_timeout=settings.connect_timeout, longest=_WITHIN)
        self._models = settings.base_url[len(root) :] + "/models"
        self._model = settings.model

    async def state(self, *, with_step: bool) -> LaneState:
        """Ask now.

        Args:
            with_step: its version is wanted, so that a lane that tells none is not ready.
        """
        try:
            model = await self._listed()
            if self._model is not None:
                model = self._model
        except ExplorerError as error:
            return LaneState(error=str(error))
        if model is None:
            return LaneState(error=f"{self._models} names no model")
        try:
            step = await self._step()
        except ExplorerError as error:
            return LaneState(model, error=str(error) if with_step else None)
        return LaneState(model, step, "/metrics tells no model_version" if step is None and with_step else None)

    async def _listed(self) -> str | None:
        models = (await self._call("GET", self._models, _WITHIN)).get("data")
        first = models[0] if isinstance(models, list) and models else None
        name = first.get("id") if isinstance(first, dict) else None
        return name if isinstance(name, str) and len(name) <= 1024 else None

    async def _step(self) -> int | None:
        """Return the version; None while its engines serve several, and where it tells none."""
        body = await self._call("GET", "/metrics", _WITHIN)
        try:
            steps = {counter(body, name) for name in body if name.endswith("/model_version")}
        except (TypeError, ValueError, OverflowError):
            return None
        return steps.pop() if len(steps) == 1 else None
