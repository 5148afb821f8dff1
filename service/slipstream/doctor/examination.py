"""All checks, in the order in which their findings are best read, and one look at everything."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from slipstream.doctor.checks import (
    agreement,
    capture,
    endpoints,
    explorer,
    groups,
    machine,
    services,
    sidecar,
    storage,
    trainer,
)
from slipstream.doctor.files import Files
from slipstream.doctor.findings import Finding
from slipstream.doctor.machine import Machine, look_at_machine
from slipstream.doctor.services import Services, look_at_services
from slipstream.terminal.waiting import waiting

FILES: tuple[Callable[[Files], Iterator[Finding]], ...] = (
    agreement.modes, agreement.job, agreement.model, agreement.buffer, agreement.algorithm,
    agreement.batch_sizes,
    storage.checkpoint_root, storage.renamed, storage.model_path, storage.buffer_type, storage.buffer_path,
    storage.sqlite_on_several_hosts,
    explorer.reloads, explorer.adapters, explorer.gpus, explorer.recording, explorer.tools, explorer.listening,
    explorer.following, explorer.temperature, explorer.lengths,
    groups.algorithm, groups.group_size, groups.batch, groups.commits,
    trainer.reading, trainer.ending, trainer.checkpoints, trainer.second_copy, trainer.batch, trainer.lengths,
    trainer.kl_loss, trainer.synchronizing,
    sidecar.explorer_address, sidecar.policy_name, sidecar.history, sidecar.production, sidecar.limits, sidecar.access,
    sidecar.retention, sidecar.selection, sidecar.rewards, capture.store, capture.bodies,
    endpoints.private, endpoints.told,
)  # fmt: skip
MACHINE: tuple[Callable[[Files, Machine], Iterator[Finding]], ...] = (
    machine.checkpoint_root, machine.space, machine.sqlite, machine.model, machine.store, machine.keys,
    machine.files_open, machine.versions, machine.markers,
)  # fmt: skip
SERVICES: tuple[Callable[[Files, Machine, Services], Iterator[Finding]], ...] = (
    services.production, services.reachable, services.served_model, services.versions, services.consuming,
    services.exposure, services.clocks, services.sidecars_own,
    endpoints.private_by_name,
)  # fmt: skip


ALONE_FILES = (
    sidecar.production, sidecar.access, sidecar.retention, sidecar.selection, sidecar.rewards, capture.store,
    capture.bodies, endpoints.private, endpoints.told,
)  # fmt: skip
ALONE_MACHINE = (machine.store, machine.keys, machine.files_open)
ALONE_SERVICES = (services.production, services.reachable, services.sidecars_own, endpoints.private_by_name)
"""Checks for a sidecar whose Explorer's files are on another machine."""


def examine(files: Files, *, offline: bool = False, addresses: Sequence[str] | None = None) -> list[Finding]:
    """Everything that is wrong, errors first.

    Args:
        offline: look at the files alone, and neither at this machine nor at what runs.
        addresses: of this host, at which nobody should reach the Explorer; by default all but loopback.
    """
    # a field of a wrong type has Trinity's default until it is put right: what others would say of that misleads
    of_files, of_machine, of_services = FILES, MACHINE, SERVICES
    if files.elsewhere:
        of_files, of_machine, of_services = ALONE_FILES, ALONE_MACHINE, ALONE_SERVICES
    found = [*agreement.types(files)] or [finding for check in of_files for finding in check(files)]
    if not offline:
        with waiting("production, the Explorer, the sidecar and the webhooks to answer"):
            running = look_at_services(files, addresses)
        with waiting("this machine's directories and the store"):
            here = look_at_machine(files)  # later: an Explorer serves no version that was not written before
        found += [finding for check in of_machine for finding in check(files, here)]
        found += [finding for check in of_services for finding in check(files, here, running)]
    return sorted(found, key=lambda finding: finding.severity)  # "error" before "warning", else as it was
