"""From the proxy's tap to tasks and calls in the store, off the hot path.

`writer.CaptureWriter` writes exchanges in batches at once, as `redacted.ExchangeRedactor` makes them. The Recorder
reads them when there is CPU time, which `throttle.RecorderThrottle` says: `completion.read_call` makes one call out of
an exchange, `retries.Retries` recognises what was captured before, `conversations.Conversations` finds the task and the
session of a call, and `prefixes.Prefixes` knows what of its request is stored already.
"""
