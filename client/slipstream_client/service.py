"""The sidecar's own endpoints: each written once, as a request and what to make of its answer, and two senders."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Generic, TypeVar
from urllib.parse import quote, urlencode

import httpx

from slipstream_client.config import Settings, settings
from slipstream_client.context import Replay
from slipstream_client.errors import SidecarAway, SidecarRefused, SlipstreamError

T = TypeVar("T")

_NO_KEY = "set SLIPSTREAM_API_KEY, or configure(api_key=...), to one of the sidecar's access.keys"
_WRONG_KEY = "the key is SLIPSTREAM_API_KEY's, or that of configure(api_key=...)"

_NOT_CARRIED_OUT = ("store_failed", "connect", "connect_timeout")
"""Codes of the sidecar's 5xx that say that nothing was stored, or that the training side was not reached."""


@dataclass(frozen=True)
class Request(Generic[T]):
    """One request to the sidecar.

    Attributes:
        path: below the sidecar's address.
        body: sent as JSON; None for none.
        read: makes a value of the answer's JSON.
        timeout: seconds; None for those of `configure`.
    """

    method: str
    path: str
    body: Mapping[str, Any] | None
    read: Callable[[Any], T]
    timeout: float | None = None


@dataclass(frozen=True)
class RunGroup:
    """Runs of one task that were opened together."""

    task_id: str
    group_id: str
    runs: tuple[Replay, ...]


@dataclass(frozen=True)
class RunEnd:
    """Result of the end of a run.

    Attributes:
        state: `scored`, `answered` (the sidecar's calculators will score it) or `failed` (dropped).
        msg_ids: of the policy's answers, in the order in which the calls began.
        policy_version: the model's version that gave them; None without answers.
    """

    state: str
    msg_ids: tuple[str, ...]
    policy_version: int | None


@dataclass(frozen=True)
class RunState(RunEnd):
    """A run, whether it has ended or not; then it is `open`.

    Attributes:
        error: why it is dropped; None for any other.
    """

    error: str | None


@dataclass(frozen=True)
class Committed:
    """Content of a commit that was delivered.

    Attributes:
        commit: its number; None where nothing was ready.
        run_again: groups that the Explorer had lost, and that are run again.
        lost: groups that it had lost, and that cannot be run again.
    """

    commit: int | None
    groups: int
    experiences: int
    run_again: int
    lost: int


def open_runs(
    task_id: str,
    runs: int,
    *,
    labels: Sequence[str] = (),
    metadata: Mapping[str, Any] | None = None,
    session_id: str | None = None,
) -> Request[RunGroup]:
    """Open a group of so many runs of a task. Refused with 409 `already_open` where the task has one."""
    body = {"runs": runs, "labels": list(labels), "metadata": dict(metadata or {}), "session_id": session_id}

    def read(answer: Any) -> RunGroup:
        opened = tuple(Replay(answer["task_id"], run["run_id"]) for run in answer["runs"])
        return RunGroup(answer["task_id"], answer["group_id"], opened)

    return Request("POST", f"/runs/{quote(task_id, safe='')}", body, read)


def finish_run(
    replay: Replay,
    *,
    reward: float | None = None,
    breakdown: Mapping[str, float] | None = None,
    error: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    side_effects: Sequence[Mapping[str, str]] = (),
) -> Request[RunEnd]:
    """End a run: with its reward, with an `error` that drops it, or with neither to have the sidecar score it.

    Refused with 409 `run_closed` where it has ended.
    """
    body = {
        "reward": reward,
        "breakdown": dict(breakdown or {}),
        "error": error,
        "metadata": dict(metadata or {}),
        "side_effects": [dict(effect) for effect in side_effects],
    }

    def read(answer: Any) -> RunEnd:
        return RunEnd(answer["state"], tuple(answer["msg_ids"]), answer["policy_version"])

    return Request("POST", f"/runs/{quote(replay.task_id, safe='')}/{replay.run_id}/finish", body, read)


def get_run(replay: Replay) -> Request[RunState]:
    """A run as it is at the moment."""

    def read(answer: Any) -> RunState:
        (run,) = (run for run in answer["runs"] if run["run_id"] == replay.run_id)
        return RunState(run["state"], tuple(run["msg_ids"]), run["policy_version"], run["error"])

    return Request("GET", f"/runs/{quote(replay.task_id, safe='')}", None, read)


def post_feedback(body: Mapping[str, Any]) -> Request[str]:
    """Store a feedback; its answer is the receipt's id."""
    return Request("POST", "/feedback", body, lambda answer: str(answer["id"]))


def post_mark(body: Mapping[str, Any]) -> Request[str]:
    """Store a mark; its answer says `applied` or `waiting`."""
    return Request("POST", "/marks", body, lambda answer: str(answer["state"]))


def get_next_pair(annotator: str | None, kind: str | None) -> Request[dict[str, Any] | None]:
    """Ask for the next pair of an annotator; its answer is None if there is none."""
    query = urlencode({name: value for name, value in (("annotator", annotator), ("kind", kind)) if value is not None})
    return Request("GET", f"/preferences/next?{query}", None, lambda answer: answer["pair"])


def post_preference(body: Mapping[str, Any]) -> Request[str]:
    """Store a judgement; its answer is the choice that is stored."""
    return Request("POST", "/preferences", body, lambda answer: str(answer["choice"]))


def post_experiment(body: Mapping[str, Any]) -> Request[dict[str, Any]]:
    """Start an experiment; its answer is that."""
    return Request("POST", "/experiments", body, dict)


def get_experiment(number: int) -> Request[dict[str, Any]]:
    """An experiment with its report."""
    return Request("GET", f"/experiments/{number}", None, dict)


def post_experiment_stop(number: int, body: Mapping[str, Any]) -> Request[dict[str, Any]]:
    """End an experiment, and say who answers the users; its answer is the experiment."""
    return Request("POST", f"/experiments/{number}/stop", body, dict)


def post_commit(timeout: float) -> Request[Committed]:
    """Deliver now what the commit timer would deliver."""

    def read(answer: Any) -> Committed:
        return Committed(**{name: answer[name] for name in Committed.__dataclass_fields__})

    return Request("POST", "/commit", {}, read, timeout)


class Service:
    """Sends requests to the sidecar, by the settings of `configure` at that moment: a key may be replaced meanwhile."""

    def __init__(self) -> None:
        self._clients: dict[bool, httpx.Client] = {}

    def send(self, request: Request[T]) -> T:
        """Send it once and read its answer.

        Raises:
            SidecarAway: no answer, or a 5xx, 408 or 429.
            SidecarRefused: a 4xx.
            SlipstreamError: an answer that is not the sidecar's.
        """
        at = settings()
        if at.is_https not in self._clients:
            self._clients[at.is_https] = httpx.Client(verify=at.is_https)
        try:
            response = self._clients[at.is_https].request(**_arguments(request, at))
        except httpx.HTTPError as error:
            raise _away(error, at) from error
        return _answer(request, response, at)

    def close(self) -> None:
        for client in self._clients.values():
            client.close()

    def __enter__(self) -> Service:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class AsyncService:
    """The asynchronous twin of `Service`; for one event loop."""

    def __init__(self) -> None:
        self._clients: dict[bool, httpx.AsyncClient] = {}

    async def send(self, request: Request[T]) -> T:
        at = settings()
        if at.is_https not in self._clients:
            self._clients[at.is_https] = httpx.AsyncClient(verify=at.is_https)
        try:
            response = await self._clients[at.is_https].request(**_arguments(request, at))
        except httpx.HTTPError as error:
            raise _away(error, at) from error
        return _answer(request, response, at)

    async def aclose(self) -> None:
        for client in self._clients.values():
            await client.aclose()

    async def __aenter__(self) -> AsyncService:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.aclose()


def _arguments(request: Request[Any], at: Settings) -> dict[str, Any]:
    return {
        "method": request.method,
        "url": at.url + request.path,
        "headers": at.own_headers,
        "json": request.body,
        "timeout": request.timeout or at.timeout,
    }


def _away(error: httpx.HTTPError, at: Settings) -> SidecarAway:
    unsent = isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol))
    why = str(error) or type(error).__name__
    return SidecarAway(f"the sidecar at {at.url} did not answer: {why}", received=not unsent)


def _answer(request: Request[T], response: httpx.Response, at: Settings) -> T:
    what = f"{request.method} {at.url}{request.path}"
    status = response.status_code
    try:
        content = response.json()
    except ValueError:
        content = None
    if status >= 400:
        error = content.get("error") if isinstance(content, dict) else None
        error = error if isinstance(error, dict) else {}
        message = f"{what}: {status} {error.get('message') or response.reason_phrase}"
        if status in (401, 403):
            message += f" ({_WRONG_KEY if at.api_key else _NO_KEY})"
        code = error.get("code")
        if status >= 500 or status in (408, 429):
            raise SidecarAway(message, status=status, received=status >= 500 and code not in _NOT_CARRIED_OUT)
        raise SidecarRefused(message, status=status, code=code, param=error.get("param"))
    try:
        return request.read(content)
    except (LookupError, TypeError, ValueError) as wrong:
        raise SlipstreamError(f"{what}: {status} with an answer that is not the sidecar's") from wrong
