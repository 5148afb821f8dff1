"""Users' requests that a serving lane answers: the page that says which, and what such a request must be.

It knows no process, no store and no connection: both halves of the sidecar read it.
"""
