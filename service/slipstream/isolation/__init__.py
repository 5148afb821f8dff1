"""Processes for everything that interprets content, and for code of the user's own: they have a deadline, a limit of
memory, and can be killed.

A pattern or a schema that comes with a request can hold Python's lock for ever, inside one C function. Neither a thread
nor a signal bounds that. Killing a process does.
"""

from slipstream.isolation.failures import NotFinished, Raised
from slipstream.isolation.pool import Isolation, Pool

__all__ = ["Isolation", "NotFinished", "Pool", "Raised"]
