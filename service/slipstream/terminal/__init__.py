"""Output of commands for people: the table of `slipstream status`, and lines about long waits."""
