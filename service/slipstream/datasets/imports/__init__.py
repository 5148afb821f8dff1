"""Conversations of other programs' files, read into the chat form, and sent to a sidecar.

A reader for each format (`openai_chat.py`, ...) yields whole conversations, and what it refuses by file, line and
field. `upload.py` sends them to `POST /imports`, `cases.py` writes cases of an evaluation instead.
"""
