"""The tables. Times are Unix seconds; states are written as words and their transitions are listed here.

    task   open ─▶ complete                      and, once complete, undecided ─▶ decided
    group  running ─▶ ready ─▶ committing ─▶ delivered
              │         │ ▲─────────┼──────▶ rerun      the Explorer lost it: a new group takes its place
              │         │           └──────▶ lost       a client ran it, so that nothing can
              └─────────┴──────▶ dropped                no run or a single one left, or its data is past retention
    run    pending ─▶ running ─▶ answered ─▶ scored
              ▲          │           └─────▶ failed
              └──────────┴─ the sidecar or the Explorer went away
           open ─▶ answered | scored | failed       of an agent replay: its agent makes the calls; a webhook's begins
                                                    pending
    commit sending ─▶ asked ─▶ delivered | failed | lost       asked: from here on it may have been carried out

    facade group  open ─▶ ready ─▶ committing ─▶ delivered
                    │       │ ▲───────┘└───────▶ lost      the Explorer lost it: repaired, or not to be had again
                    └───────┴─▶ dropped                    one run where several are compared, or past retention

A scored run goes back to `answered` (and its group to `running`) when feedback or a mark arrives before delivery; so
does one that could not be scored, out of a dropped group too.

Indexes cost each captured call, so there are few: of a task its id, its session (whose last answer feedback means), the
time (what retention deletes, what is newest) and, until it is decided, that it is; of a call its place in its task, its
msg_id and its segment, as of a replay's call; of a segment its parent. All of them rise with time, so that a batch of
calls shares pages however large the store is; `msg_ids` says how that of the msg_ids does. Runs and groups come with a
call of the policy, which costs more than any index of them.

What can quote a user is in sealed columns, which are encrypted where the store has a key. Ids, states, times, numbers
and labels are not: the store is searched by them.

A module holds the tables of one concern.
"""

# Any of them brings all, for they refer to each other, and `Base.metadata` is to know them all.
from slipstream.store.tables import (  # noqa: F401 - there to be defined
    audit,
    capture,
    commits,
    evaluations,
    experiments,
    facade,
    feedback,
    outbox,
    page_sessions,
    preferences,
    privacy,
    rollouts,
    runs,
    segments,
    serving,
    sidecars,
    versions,
)
