"""Requests of shadow runs, stored as what the call that they repeat has not.

All runs of a call have its messages, without thoughts, and its tools. So each holds the names of the fields that it
took from the call, and those of its own: the policy's model name and how the answer is to come. A run of an earlier
release holds its whole request, which names no field of the call, or took the messages as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slipstream.dialects.thoughts import without_thoughts
from slipstream.store.bodies import pack

_OF_CALL, _SAID = "of_call", "said_in_call"
"""The keys of the names, as they are in the call, and of messages without thoughts. No field of a request has these."""


def packed(request: Mapping[str, Any], call: Mapping[str, Any]) -> bytes:
    """A run's request as it is stored.

    Args:
        call: the request of the call, whose values the run's request has.
    """
    taken = [name for name, value in request.items() if name in call and call[name] is value]
    said = [name for name in ("messages",) if name not in taken and request[name] == without_thoughts(call[name])]
    own = {name: value for name, value in request.items() if name not in taken and name not in said}
    return pack({_OF_CALL: taken, **({_SAID: said} if said else {}), **own})


def completed(own: Mapping[str, Any], call: Mapping[str, Any]) -> dict[str, Any]:
    """The request of a run; the values that it took from the call are the call's own.

    Args:
        own: what is stored of it.
        call: the request of the call.
    """
    taken = {name: call[name] for name in own.get(_OF_CALL, ())}
    taken |= {name: without_thoughts(call[name]) for name in own.get(_SAID, ())}
    return taken | {name: value for name, value in own.items() if name not in (_OF_CALL, _SAID)}
