"""The facade: Trinity's HTTP under `/explorer/`, in front of the Explorer, with what a client of Trinity lacks there.

Rewards are checked and stored before they are acknowledged, groups go out whole and in one commit, truncated answers
are never fed back, an Explorer that reloads is waited for, and a key can be asked for. `docs/facade.md` tells clients.
"""
