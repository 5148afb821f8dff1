"""`slipstream` with little room for lines of its log and little patience for what hangs, so that faults reach both."""

from __future__ import annotations

from slipstream import cli, output
from slipstream.serve import app, beating, prefork

output._IN_SOCKET = output._IN_RELAY = 2**13
beating.BEAT = 0.2
prefork.LOOK = 1.0
app._TRAINING_PATIENCE = 12  # its start must not take longer, on a machine that others use too

if __name__ == "__main__":
    cli.main()
