"""From what passed through the proxy to calls, tasks and sessions, off the hot path.

The Intake writes what is to be kept of an exchange, as `kept.Keeper` says, at once. The Recorder reads it when there is
time, as `turns.Turns` says: `completion.read_call` makes one call out of it, `retries.Retries` recognises what was
captured before, and `conversations.Conversations` says which task and session the call belongs to.
"""
