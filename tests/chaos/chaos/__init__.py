"""Breaks a running system on purpose, on a seeded schedule, and checks from the outside that nothing was lost.

`schedule` says what happens when, `world` runs the parts as processes, `faults` break them, `agents` use them and
remember what they were told, `invariants` compare that with what is left, `report` counts.
"""
