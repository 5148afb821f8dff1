"""From a call of an agent to a task that runs again: chosen, with its inputs copied, once production has answered."""

from __future__ import annotations

import contextvars
import sys
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

from slipstream_client.side_effects.recording import Recording
from slipstream_client.training.calls import Call
from slipstream_client.training.replays import Replays
from slipstream_client.training.selection import Candidate, Selection
from slipstream_client.training.streams import has_yet_to_run
from slipstream_client.training.tally import Tally
from slipstream_client.training.tasks import Arguments, Inputs, Task


def choose(
    selection: Selection,
    candidate: Candidate,
    agent: Callable[..., Any],
    inputs: Inputs,
    replays: Replays,
    tally: Tally,
) -> Chosen | None:
    """Decide about a call that begins. None: it does not run again. Raises what the strategy raises."""
    certain = bool(selection.select(candidate))
    if certain:
        tally.add("selected")
    elif not getattr(selection, "at_end", False):
        return None
    snapshot: Arguments | None = None
    problem: Exception | None = None
    try:
        args, kwargs = inputs(*candidate.args, **candidate.kwargs)
        snapshot = tuple(args), dict(kwargs)
    except Exception as error:  # noqa: BLE001 - whatever cannot be copied
        problem = error
    return Chosen(
        None if certain else selection, candidate, agent, inputs, snapshot, problem, _variables(),
        replays, tally, Recording() if snapshot is not None else None,
    )  # fmt: skip


@dataclass(frozen=True)
class Chosen:
    """A call that runs again, or that may, while production works on it.

    Attributes:
        selection: is asked once more at the end; None where it has chosen already.
        snapshot: the inputs as they were; None where they could not be copied, because of `problem`.
        variables: the caller's context variables.
        recording: takes what its guarded tools return.
    """

    selection: Selection | None
    candidate: Candidate
    agent: Callable[..., Any]
    inputs: Inputs
    snapshot: Arguments | None
    problem: Exception | None
    variables: contextvars.Context
    replays: Replays
    tally: Tally
    recording: Recording | None

    def returned(self, call: Call, output: Any) -> None:
        """Production has answered. Raises nothing."""
        try:
            if has_yet_to_run(output):
                self.failed("not_ended")
            elif self._is_chosen(call):
                self._offer(call, output)
        except Exception as error:  # noqa: BLE001 - the user's call goes on
            self.tally.dropped("internal", "%r", error, error=error)

    def failed(self, reason: str) -> None:
        """Production has no answer."""
        if self.selection is None:
            self.tally.dropped(reason, reason)

    def _is_chosen(self, call: Call) -> bool:
        if self.selection is None:
            return True
        chosen = bool(self.selection.select(replace(self.candidate, labels=call.labels, metadata=call.metadata)))
        if chosen:
            self.tally.add("selected")
        return chosen

    def _offer(self, call: Call, output: Any) -> None:
        snapshot, inputs = self.snapshot, self.inputs
        if snapshot is None:
            why = "%r: its inputs cannot be copied, see `inputs` of `TrainingRunner.agent`: %r"
            self.tally.dropped("not_copied", why, self.agent, self.problem)
            return
        args, kwargs = snapshot
        reason = self.replays.offer(
            Task(
                agent=self.agent,
                inputs=lambda: inputs(*args, **kwargs),
                snapshot=snapshot,
                variables=self.variables,
                task_id=call.task_id,
                session_id=call.session_id,
                labels=call.labels,
                metadata=dict(call.metadata),
                output=_copied(output),
                recording=self.recording,
            )
        )
        if reason is not None:
            self.tally.dropped(reason, reason)


def _variables() -> contextvars.Context:
    """The caller's context variables, without the callbacks that LangChain hands on by one of them.

    They are production's, such as a stream of tokens to the user, and would be told of the replays too.
    """
    variables = contextvars.copy_context()
    handed_on = getattr(sys.modules.get("langchain_core.runnables.config"), "var_child_runnable_config", None)
    if handed_on is not None:
        variables.run(handed_on.set, None)
    return variables


def _copied(output: Any) -> Any:
    """The caller may change what it was given; where it cannot be copied, the reward function sees that."""
    try:
        return deepcopy(output)
    except Exception:  # noqa: BLE001 - whatever cannot be copied
        return output
