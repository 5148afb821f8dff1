"""Requests to endpoints of the user: where they may go, how they are signed, how much of an answer is read."""
