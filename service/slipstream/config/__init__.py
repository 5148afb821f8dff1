"""The sidecar's configuration: `units` for values, `settings` for what can be set, `source` for where it is read.

Nothing is imported here: strategies and calculators use `units` for their own settings, and `settings` uses theirs.
"""
