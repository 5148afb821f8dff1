"""Checks of the running services: whether they match the files, and whether they make progress."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from slipstream.doctor.files import BUFFER, Files
from slipstream.doctor.findings import Finding, Problem
from slipstream.doctor.machine import Machine
from slipstream.doctor.services import STALE, Services

_CLOCK = 30.0
_KEYS = {field.name for field in fields(Finding)}
_BACKLOG = 10
"""Batches that may wait while the Trainer is at work."""

PRODUCTION_AWAY = Problem(
    "running.production_unreachable",
    "error",
    why="The model that answers users cannot be reached from here: every call of an agent ends in a 502.",
    fix="Correct `production.base_url`, or the name service, route, firewall or HTTP proxy on the way.",
)
ENDPOINT_AWAY = Problem(
    "running.endpoint_unreachable",
    "warning",
    why="Nothing can be connected to there. Without the webhook of replays runs wait; without a judge or a webhook "
    "that scores, they fail for want of a reward. Events for a receiver wait for a day.",
    fix="Start the service, or correct its address; the doctor must run where the sidecar runs.",
)
IN_CLEAR = Problem(
    "running.asked_in_clear",
    "warning",
    why="Conversations, and the keys beside them, cross the internet without TLS: whoever is on the way reads them, "
    "and can change what is answered.",
    fix="An address with https://, or a tunnel.",
)
EXPLORER_AWAY = Problem(
    "running.explorer_unreachable",
    "warning",
    why="While the Explorer is away no run is answered and nothing is committed. Production is unharmed, and nothing "
    "is lost.",
    fix="Start the Explorer; if it runs, compare `explorer.base_url` with its address, and let the doctor run where "
    "the sidecar runs.",
)
SIDECAR_AWAY = Problem(
    "running.sidecar_unreachable",
    "warning",
    why="Agents that use it as `base_url` get no answer, and nothing is captured.",
    fix="Start the sidecar; if it runs elsewhere, let the doctor run there.",
)
WRONG_MODEL = Problem(
    "running.model_differs",
    "error",
    why="The Explorer serves another model than the one that the files (and so the Trainer) start from.",
    fix="Restart the Explorer with these files. A sidecar with `explorer.model` set needs exactly the name that is "
    "served.",
)
ENGINES_APART = Problem(
    "running.engines_apart",
    "error",
    why="An engine that failed to load a version stays at its old one, or out, until the Explorer is restarted: part "
    "of the answers come from an old policy.",
    fix="Look for the failed load in the Explorer's log, then restart the Explorer.",
)
NOT_FOLLOWING = Problem(
    "running.explorer_does_not_follow",
    "error",
    why="The Trainer has published a version that the Explorer does not serve: what is learned is not used, and new "
    "experiences are of an old policy.",
    fix="Look into the Explorer's log: a failed load, or `min_running_model_num` that is not below the engines at "
    "work. Then restart the Explorer.",
)
OTHER_DIRECTORY = Problem(
    "running.checkpoint_directory_not_shared",
    "error",
    why="The Explorer makes the job's directory at its start, and takes its versions from there. What it made or "
    "serves is not here, so it has another directory under the same name: versions that are written here never "
    "reach it.",
    fix="Mount the same filesystem at the same path for Explorer, Trainer and wherever the doctor runs.",
)
NOT_CONSUMING = Problem(
    "running.trainer_does_not_consume",
    "error",
    why="Experiences arrive in the buffer, and the Trainer takes none: it ended (after a quiet night with exit code "
    "0), hangs, or reads another table or database.",
    fix="Restart the Trainer, under a restart policy that restarts it after exit code 0 too; compare the buffer's "
    "`name` and `path` in both files.",
)
FALLS_BEHIND = Problem(
    "running.trainer_falls_behind",
    "warning",
    why="More experiences arrive than the Trainer manages. It takes the newest first, so the older ones are never "
    "used: the policy answered for nothing.",
    fix="Select less (docs/selection.md), a smaller `runs.repeat_time`, or more GPUs for the Trainer.",
)
EXPOSED = Problem(
    "running.explorer_exposed",
    "warning",
    why="The Explorer answers at an address that other hosts can reach, and has no authentication: whoever comes can "
    "chat, poison rewards and commit.",
    fix="EXPLORER_LISTEN_ADDRESS=127.0.0.1, or a firewall that lets nobody but the sidecar in.",
)
CLOCK = Problem(
    "running.clock_skew",
    "warning",
    why="The clocks of two hosts differ: ages of versions, feedback and experiences are wrong, in alerts too.",
    fix="NTP on both hosts.",
)
KEPT_OUT = Problem(
    "running.doctor_kept_out",
    "warning",
    why="The running sidecar asks for a key, and did not take the doctor's: what it sees of itself is not looked at.",
    fix="SLIPSTREAM_API_KEY, with a key that has the role `metrics` or `admin`.",
)
OTHER_SETTINGS = Problem(
    "running.sidecar_not_restarted",
    "warning",
    why="The sidecar runs with other settings than its file has now: it reads the file at its start alone.",
    fix="Restart the sidecar.",
)


def production(files: Files, machine: Machine, services: Services) -> Iterator[Finding]:
    if services.production is not None:
        url = files.sidecar.production.base_url
        yield PRODUCTION_AWAY.at(files.in_sidecar("production.base_url"), f"{url}: {services.production}")
    for endpoint, _, error in services.endpoints:
        if error is not None:
            yield ENDPOINT_AWAY.at(files.in_sidecar(endpoint.key), f"{endpoint.shown}: {error}")
    for endpoint in services.in_clear:
        yield IN_CLEAR.at(files.in_sidecar(endpoint.key), endpoint.shown)


def reachable(files: Files, machine: Machine, services: Services) -> Iterator[Finding]:
    for problem, answer in ((EXPLORER_AWAY, services.metrics), (SIDECAR_AWAY, services.status)):
        if answer.error is not None:
            yield problem.at(answer.url, answer.error)


def served_model(files: Files, machine: Machine, services: Services) -> Iterator[Finding]:
    served = tuple(str(model.get("id")) for model in services.models.objects("data"))
    if not served:
        return
    for where, wanted in (
        (files.explorer.at("model.model_path"), files.explorer.text("model.model_path")),
        (files.in_sidecar("explorer.model"), files.sidecar.explorer.model),
    ):
        if wanted and wanted not in served:
            yield WRONG_MODEL.at(where, f"{wanted}; the Explorer serves {', '.join(served)}")


def versions(files: Files, machine: Machine, services: Services) -> Iterator[Finding]:
    served, marker = services.engine_versions, machine.version
    if not served:
        return
    published, here = marker.step or 0 if marker is not None else 0, files.trainer.job_dir
    url = files.explorer.buffer_url
    if machine.checkpoints.exists and max(served) > published:
        found = f"serves version {max(served)}; {here} names {published or 'none'}"
        yield OTHER_DIRECTORY.at(services.metrics.url, found)
        return
    # the embedded Explorer makes it for an SQLite buffer alone
    if machine.checkpoints.exists and not machine.job and url is not None and url.get_backend_name() == "sqlite":
        yield OTHER_DIRECTORY.at(services.metrics.url, f"answers; there is no directory {here}")
        return
    age = services.now - marker.changed_at if marker is not None else 0.0
    patience = max(STALE, 3 * files.explorer.whole("explorer.service_status_check_interval"))
    if age < patience:
        return
    found = f"{_list(served)}; version {published} was published {age / 60:.0f} min ago"
    if max(served) < published:
        yield NOT_FOLLOWING.at(services.metrics.url, found)
    elif min(served) < max(served):
        yield ENGINES_APART.at(services.metrics.url, found)


def consuming(files: Files, machine: Machine, services: Services) -> Iterator[Finding]:
    rows, size = services.rows, files.trainer.whole("buffer.train_batch_size")
    if rows is None or size <= 0:
        return
    marker, where = machine.version, files.trainer.at(f"{BUFFER}.path")
    age = services.now - marker.changed_at if marker is not None else None
    moved = f"version {marker.step} is {age / 60:.0f} min old" if marker and age else "no version yet"
    found = f"{rows.waiting} of {rows.total} experiences wait, {rows.waiting_long} of them for more than "
    found += f"{rows.age / 60:.0f} min; a batch is {size}; {moved}"
    if rows.waiting_long >= size and rows.waiting >= 2 * size and (age is None or age > STALE):
        yield NOT_CONSUMING.at(where, found)
    elif rows.waiting >= _BACKLOG * size:
        yield FALLS_BEHIND.at(where, found)


def exposure(files: Files, machine: Machine, services: Services) -> Iterator[Finding]:
    if services.exposed:
        yield EXPOSED.at(files.explorer.at("explorer.listen_address"), f"answers at {', '.join(services.exposed)}")


def clocks(files: Files, machine: Machine, services: Services) -> Iterator[Finding]:
    for answer in (services.metrics, services.status):
        if answer.clock is not None and abs(answer.clock) > _CLOCK:
            yield CLOCK.at(answer.url, f"{answer.clock:+.0f} s against this machine")


def sidecars_own(files: Files, machine: Machine, services: Services) -> Iterator[Finding]:
    """Yield the findings that the running sidecar reports, and whether it runs with the file that was read."""
    status = services.status.body
    if services.status.error in ("answers 401", "answers 403"):
        yield KEPT_OUT.at(services.status.url, services.status.error)
    if services.status.error is not None:
        return
    for problem in services.status.objects("problems"):
        if problem.keys() == _KEYS and all(isinstance(text, str) for text in problem.values()):
            yield Finding(**problem)
    told = {
        "commit.min_experiences": (_at(status, "next_commit", "min_experiences"), files.sidecar.commit.min_experiences),
        "commit.max_pending": (_at(status, "next_commit", "max_pending"), files.sidecar.commit.max_pending),
        "explorer.train_batch_size": (
            _at(status, "training", "train_batch_size"),
            files.sidecar.explorer.train_batch_size,
        ),
    }
    for key, (running, written) in told.items():
        if running != written:
            yield OTHER_SETTINGS.at(files.in_sidecar(key), f"{written}; the sidecar at work has {running}")


def _at(body: Mapping[str, Any], *keys: str) -> Any:
    value: Any = body
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _list(versions: tuple[int, ...]) -> str:
    return f"engines serve {', '.join(map(str, versions))}"
