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
"""Keys that no field of a request has: of the names, and one that is there if the messages are the call's without
thoughts."""


def packed(request: Mapping[str, Any], call: Mapping[str, Any]) -> bytes:
    """A run's request as it is stored.

    Args:
        call: the request of the call, whose values the run's request has.
    """
    taken = [name for name, value in request.items() if name in call and call[name] is value]
    own = {name: value for name, value in request.items() if name not in taken}
    if "messages" in own and own["messages"] == without_thoughts(call["messages"]):
        del own["messages"]
        own[_SAID] = True
    return pack({_OF_CALL: taken, **own})


def completed(own: Mapping[str, Any], call: Mapping[str, Any]) -> dict[str, Any]:
    """The request of a run; the values that it took from the call are the call's own.

    Args:
        own: what is stored of it.
        call: the request of the call.
    """
    taken = {name: call[name] for name in own.get(_OF_CALL, ())}
    if _SAID in own:
        taken["messages"] = without_thoughts(call["messages"])
    return taken | {name: value for name, value in own.items() if name not in (_OF_CALL, _SAID)}
