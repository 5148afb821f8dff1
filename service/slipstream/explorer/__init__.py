"""The Explorer, as the sidecar speaks to it: by the HTTP and the traps that Trinity has.

`http` sends requests over kept connections, `calls` reads the answers, `client` asks the policy, `handover` hands
rewards over to one process of it and no other, and `history` repairs what such a process has lost.
"""
