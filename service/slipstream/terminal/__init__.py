"""What commands write to a terminal for people: the table of `slipstream status`, and lines about long waits."""
