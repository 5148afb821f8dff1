"""The sidecar's checks of its own deployment while it runs: `problems` in `GET /status`, and `slipstream_problems`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from slipstream.doctor import live_callers, live_receivers, live_results, live_training, uncaptured
from slipstream.doctor.findings import Finding, Problem
from slipstream.doctor.moment import Moment
from slipstream.terminal.spans import span

RECENT = 3600.0
"""Seconds for which what was lost is told: an alert must have time to be seen."""
STALE = 900.0
"""Seconds after which a version should have come, or engines be together: longer than a step or a reload takes."""
_AWAY = 10.0
"""Seconds that the Explorer may be away before it is a problem: a lost packet is none. Alerts wait longer."""
_DAY = 86400.0
_DROPPED_LATELY = 600.0

EXPLORER_AWAY = Problem(
    "live.explorer_away",
    "error",
    why="No run is answered and nothing is committed. Production is unharmed, and nothing is lost.",
    fix="Look into the Explorer's log, and restart it; compare `explorer.base_url` with its address.",
)
BREAKER_OPEN = Problem(
    "live.breaker_open",
    "warning",
    why="Chats with the policy failed five times in a row: runs wait.",
    fix="See the newest of `failed_runs` and the Explorer's log: mostly an engine that is out, or no memory.",
)
WEBHOOK_AWAY = Problem(
    "live.webhook_away",
    "warning",
    why="The endpoint that runs agents again failed five times in a row: runs wait, and one at a time finds out "
    "whether it is back.",
    fix="Start the endpoint, or look into its log; or correct `runs.webhook.url`.",
)
ENGINES_APART = Problem(
    "live.engines_apart",
    "error",
    why="An engine that failed to load a version stays at its old one until the Explorer is restarted: part of the "
    "answers come from an old policy.",
    fix="Look for the failed load in the Explorer's log, then restart the Explorer.",
)
NOT_CONSUMING = Problem(
    "live.trainer_does_not_consume",
    "error",
    why="More than two batches were delivered, and no new version came: the Trainer ended (after a quiet night with "
    "exit code 0), hangs, or reads another table, or the Explorer does not take its versions.",
    fix="Restart the Trainer, under a restart policy that restarts it after exit code 0 too; then `slipstream doctor` "
    "on its machine.",
)
LEFTOVERS = Problem(
    "live.leftovers_wait",
    "warning",
    why="The Trainer takes exactly a batch at a time. What is left over waits for more traffic, and grows stale.",
    fix="More traffic (docs/selection.md), or a smaller `buffer.train_batch_size` of the Trainer.",
)
COMMITS_LOST = Problem(
    "live.commits_lost",
    "warning",
    why="The Explorer restarted or failed before it had handed on what it was told. The sidecar's groups are run "
    "again, which is work done twice; those of the facade and of clients' replays are lost.",
    fix="Look for the reason in the Explorer's log: memory, disk, or the database of the buffer.",
)
GROUPS_DROPPED = Problem(
    "live.groups_dropped",
    "warning",
    why="The Explorer lost these groups `runs.max_attempts` times, or knew only a part of one, or they were replays of "
    "a client, which cannot be run again: they are not trained on.",
    fix="Look for the reason in the Explorer's log; it must keep its history (the database beside the buffer).",
)
FACADE_LOST = Problem(
    "live.facade_feedback_lost",
    "warning",
    why="Rewards that clients of the facade gave were not trained on. They cannot be run again, as the sidecar's own "
    "can.",
    fix="See `facade.failed_groups`: an Explorer that restarted, a group of which one run came, or a group that "
    "waited past `capture.retention`.",
)
CAPTURE_DROPS = Problem(
    "live.capture_drops",
    "warning",
    why="Calls come faster than the store takes them. Production is unharmed; these calls are not captured.",
    fix="A faster disk, a lower `capture.rate`, or a larger `capture.queue` for short peaks.",
)
RUNS_QUEUE_FULL = Problem(
    "live.runs_queue_full",
    "warning",
    why="More is selected than the policy answers: further calls get no run.",
    fix="Select less (docs/selection.md), or raise `runs.concurrency` (and the Explorer's engines).",
)
STORE_FULL = Problem(
    "live.store_full",
    "warning",
    why="The store has reached `limits.store_bytes`: nothing new is captured until something is deleted. Production is "
    "unharmed.",
    fix="A larger `limits.store_bytes` where the disk has room, or a shorter `capture.retention`.",
)
STORE_BEHIND = Problem(
    "live.store_behind",
    "warning",
    why="Calls come faster than the store takes them: selection and runs lag behind, and soon calls are not captured. "
    "Production is unharmed.",
    fix="A faster disk or database, a lower `capture.rate`, or fewer programs beside the sidecar.",
)
QUARANTINED = Problem(
    "live.quarantined",
    "error",
    why="The training side died three times while it worked on these, so that it does not touch them any more. "
    "Production is unharmed, and all others go on.",
    fix="`slipstream quarantine list`, and look for what ended the process: memory (`kill -9` by the system) or a "
    "crash in the log. Then `slipstream quarantine retry` or `drop`.",
)

PROBLEMS = (
    EXPLORER_AWAY, BREAKER_OPEN, WEBHOOK_AWAY, ENGINES_APART, NOT_CONSUMING, LEFTOVERS, COMMITS_LOST, GROUPS_DROPPED,
    FACADE_LOST, CAPTURE_DROPS, RUNS_QUEUE_FULL, STORE_FULL, STORE_BEHIND, QUARANTINED, *live_results.PROBLEMS,
    *live_training.PROBLEMS, *uncaptured.PROBLEMS, *live_callers.PROBLEMS, *live_receivers.PROBLEMS,
)  # fmt: skip


def problems(moment: Moment) -> list[Finding]:
    """Return the problems of a moment."""
    return [finding for check in _CHECKS for finding in check(moment)]


def _explorer(moment: Moment) -> Iterator[Finding]:
    where = moment.settings.explorer.base_url
    away = moment.now - moment.explorer_since if moment.explorer_up is False and moment.explorer_since else 0.0
    if away >= _AWAY:
        yield EXPLORER_AWAY.at(where, f"away for {span(away)}: {moment.explorer_error}")
    elif moment.breaker != "closed":
        yield BREAKER_OPEN.at(where, f"the circuit breaker is {moment.breaker}")
    if moment.webhook != "closed":
        found = f"the circuit breaker is {moment.webhook}; the last try: {moment.webhook_error}"
        yield WEBHOOK_AWAY.at("runs.webhook.url", found)
    if moment.explorer_up and moment.apart_since is not None and (seconds := moment.now - moment.apart_since) >= STALE:
        low, high = moment.versions
        yield ENGINES_APART.at(where, f"versions {low} and {high} for {span(seconds)}")


def _trainer(moment: Moment) -> Iterator[Finding]:
    health, served, given = moment.health, moment.health.served, moment.settings.explorer.train_batch_size
    batch = f"a batch is {given}" if given else f"a batch of {moment.batch} is assumed (explorer.train_batch_size)"
    if served is not None and moment.now - served.seen_at >= STALE:
        since = served.experiences_since
        if since >= 2 * moment.batch and health.untrained >= moment.batch:
            found = f"{since} experiences were delivered since version {served.version} appeared "
            found += f"{span(moment.now - served.seen_at)} ago, {health.untrained} of them more than "
            yield NOT_CONSUMING.at("the Trainer", f"{found}{span(STALE)} ago; {batch}")
            return
    last, left = health.last_delivery, health.delivered % moment.batch
    if given and left and last is not None and moment.now - last >= _DAY:
        found = f"about {left} experiences; {batch}, and the last commit was {span(moment.now - last)} ago"
        yield LEFTOVERS.at("the Trainer", found)


def _lost(moment: Moment) -> Iterator[Finding]:
    health, when = moment.health, f"in the last {span(RECENT)}"
    if health.commits_lost:
        yield COMMITS_LOST.at("the Explorer", f"commits lost {when}: {health.commits_lost}")
    if health.groups_dropped:
        yield GROUPS_DROPPED.at("the Explorer", f"groups given up {when}: {health.groups_dropped}")
    if any(health.quarantined.values()):
        found = ", ".join(f"{kind}s: {rows}" for kind, rows in health.quarantined.items() if rows)
        yield QUARANTINED.at("the training side", found)
    if health.facade_lost:
        yield FACADE_LOST.at(
            "the facade", f"groups lost {when}: {health.facade_lost}; the newest because: {health.facade_reason}"
        )


def _queues(moment: Moment) -> Iterator[Finding]:
    if moment.dropped_at is not None and moment.now - moment.dropped_at < _DROPPED_LATELY:
        yield CAPTURE_DROPS.at("capture.queue", f"the last one was dropped {span(moment.now - moment.dropped_at)} ago")
    if moment.store_full:
        yield STORE_FULL.at("limits.store_bytes", f"{moment.settings.limits.store_bytes} bytes are in use")
    if moment.waiting > (limit := moment.settings.capture.queue) // 2:
        found = f"{moment.waiting} exchanges wait to be stored; capture.queue is {limit}"
        yield STORE_BEHIND.at("store.url", found)
    waiting, settings = moment.health.runs_pending, moment.settings.runs
    if waiting + settings.repeat_time > settings.queue:
        yield RUNS_QUEUE_FULL.at("runs.queue", f"{waiting} runs wait, and {settings.queue} may")


def _uncaptured(moment: Moment) -> Iterator[Finding]:
    if moment.settings.capture.rate > 0:
        yield from uncaptured.findings(moment.outcomes)


_CHECKS: tuple[Callable[[Moment], Iterator[Finding]], ...] = (
    _explorer, _trainer, _lost, _queues,
    live_results.selected, live_results.runs, live_results.groups, live_results.committed,
    live_training.weights, live_training.versions, live_training.judges, _uncaptured,
    live_callers.keys, live_callers.feedback, live_receivers.receivers,
)  # fmt: skip
