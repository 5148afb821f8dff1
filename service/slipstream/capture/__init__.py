"""From what passed through the proxy to calls, tasks and sessions, off the hot path.

`completion.read_call` makes one call out of one exchange, `retries.Retries` recognises what was captured before, and
`conversations.Conversations` says which task and session a call belongs to. None of them does any I/O.
"""
