"""The doctor on a machine: real directories; what cannot be had here (a full disk, NFS, other packages) as facts."""

from __future__ import annotations

import asyncio
import base64
from dataclasses import replace
from pathlib import Path

import pytest
from planted import HASH, ROOT, Mistake, Plant, sidecar

from slipstream.doctor.examination import MACHINE
from slipstream.doctor.files import Files
from slipstream.doctor.machine import Directory, Machine, look_at_machine
from slipstream.store.cipher import Cipher
from slipstream.store.database import Database
from slipstream.store.tables.feedback import MarkRow

TRINITY = {
    "trinity-rft": "0.6.0", "verl": "0.7.1", "vllm": "0.23.0", "sqlalchemy": "2.1.9", "greenlet": "3.5.6"
}  # fmt: skip


def codes(files: Files, machine: Machine) -> list[str]:
    return [finding.code for check in MACHINE for finding in check(files, machine)]


def told(files: Files, machine: Machine) -> str:
    [finding] = [finding for check in MACHINE for finding in check(files, machine)]
    return f"{finding.code} {finding.where} {finding.found}"


def test_a_machine_as_it_should_be(plant: Plant, deployment: Path) -> None:
    machine = look_at_machine(plant())
    assert codes(plant(), replace(machine, packages=TRINITY)) == []
    assert list((deployment / "runs").iterdir()) == [], "nothing is left behind"


def test_without_the_checkpoint_root(plant: Plant, deployment: Path) -> None:
    (deployment / "runs").rmdir()
    assert "machine.checkpoint_root_missing" in told(plant(), look_at_machine(plant()))
    assert str(deployment / "runs") in told(plant(), look_at_machine(plant()))


def test_a_checkpoint_root_that_cannot_be_written(plant: Plant) -> None:
    machine = look_at_machine(plant())
    read_only = replace(machine, checkpoints=replace(machine.checkpoints, error="Read-only file system"))
    assert "checkpoint_root_not_writable" in told(plant(), read_only)
    assert "Read-only file system" in told(plant(), read_only)


def test_writing_is_tried(tmp_path: Path, plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    """As root every mode can be written: what refuses is a filesystem without files."""
    monkeypatch.setenv("CHECKPOINT_ROOT_DIR", "/proc")
    assert look_at_machine(plant()).checkpoints.error is not None


def test_what_the_system_does_not_let_it_look_at(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a directory of another user; as root it takes a name that no filesystem has."""
    nowhere = f"/{'x' * 300}"
    monkeypatch.setenv("CHECKPOINT_ROOT_DIR", nowhere)
    monkeypatch.setenv("MODEL_PATH", nowhere)
    machine = look_at_machine(plant())
    assert codes(plant(), machine) == ["machine.checkpoint_root_not_writable", "machine.model_missing"]
    assert machine.checkpoints.error == "File name too long"


def test_a_disk_without_room(plant: Plant) -> None:
    machine = look_at_machine(plant())
    assert machine.model is not None
    large = replace(machine, model=replace(machine.model, weights=15 * 10**9))
    for free, expected in ((100e9, "machine.disk_full"), (300e9, "machine.disk_low")):
        here = replace(large, checkpoints=replace(large.checkpoints, free=int(free)))
        assert expected in told(plant(), here)
        assert "about 120.0 GB each" in told(plant(), here)
    kept_already = replace(large, checkpoints=replace(large.checkpoints, free=int(300e9)), checkpointed=int(600e9))
    assert codes(plant(), kept_already) == []
    assert codes(plant(), replace(large, checkpoints=replace(large.checkpoints, free=int(900e9)))) == []


def test_sqlite_on_nfs(plant: Plant, deployment: Path) -> None:
    machine = look_at_machine(plant())
    assert len(machine.sqlite) == 2, "the buffer and the history"
    on_nfs = {key: replace(each, filesystem="nfs4") for key, each in machine.sqlite.items()}
    assert codes(plant(), replace(machine, sqlite=on_nfs)) == ["machine.sqlite_on_a_network_filesystem"] * 2


def test_the_filesystem_is_told(plant: Plant) -> None:
    filesystem = look_at_machine(plant()).checkpoints.filesystem
    assert filesystem
    lines = Path("/proc/self/mounts").read_text().splitlines()
    assert filesystem in {line.split()[2] for line in lines}


@pytest.mark.parametrize(
    ("gone", "code"),
    [
        ("config.json", "machine.model_incomplete"),
        ("model.safetensors", "machine.model_incomplete"),
        ("tokenizer_config.json", "machine.no_chat_template"),
    ],
)
def test_a_model_that_is_not_whole(plant: Plant, deployment: Path, gone: str, code: str) -> None:
    (deployment / "model" / gone).unlink()
    assert codes(plant(), look_at_machine(plant())) == [code]


def test_a_model_that_is_not_there(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODEL_PATH", "/models/elsewhere")
    assert codes(plant(), look_at_machine(plant())) == ["machine.model_missing"]
    monkeypatch.setenv("MODEL_PATH", "Qwen/Qwen2.5-7B-Instruct")  # of a model hub: nothing to look at
    assert codes(plant(), look_at_machine(plant())) == []


def test_a_store_without_its_directory(plant: Plant, deployment: Path) -> None:
    machine = look_at_machine(plant())
    assert codes(plant(), replace(machine, store=Directory(deployment / "none", False))) == [
        "machine.store_not_writable"
    ]


@pytest.mark.parametrize(
    ("packages", "code"),
    [
        ({"trinity-rft": "0.4.0"}, "machine.version_untried"),
        ({"verl": "0.8.0"}, "machine.version_untried"),
        ({"vllm": "0.10.2"}, "machine.version_untried"),
        ({"vllm": "not a number"}, "machine.version_untried"),
        ({"trl": "1.16.0"}, "machine.trl_beside_verl"),
        ({"greenlet": None}, "machine.greenlet_missing"),
        ({"vllm": "0.28.0+cpu"}, None),
        ({"trl": "0.9.6"}, None),
        ({"trinity-rft": None, "verl": "0.1"}, None),  # Trinity runs elsewhere
    ],
)
def test_packages_beside_trinity(plant: Plant, packages: dict[str, str | None], code: str | None) -> None:
    installed = {name: version for name, version in {**TRINITY, **packages}.items() if version is not None}
    machine = replace(look_at_machine(plant()), packages=installed)
    assert codes(plant(), machine) == ([] if code is None else [code])


def test_postgresql_without_its_driver(plant: Plant) -> None:
    files = plant(Mistake(), ROOT / "overlays" / "postgresql.yaml")
    machine = replace(look_at_machine(files), packages=TRINITY)
    assert machine.sqlite == {}
    assert codes(files, machine) == ["machine.asyncpg_missing"]
    assert codes(files, replace(machine, packages={**TRINITY, "asyncpg": "0.32.0"})) == []


def test_what_is_installed_here_is_seen(plant: Plant) -> None:
    installed = look_at_machine(plant()).packages
    assert installed["sqlalchemy"][0] == "2"
    assert "trinity-rft" not in installed


def test_limits_beyond_the_files_that_may_be_open(plant: Plant) -> None:
    machine = replace(look_at_machine(plant()), open_files=1024)
    assert codes(plant(), machine) == ["machine.few_open_files"]
    assert "a process may open 1024 files, and a worker needs 40881" in told(plant(), machine)
    assert codes(plant(), replace(machine, open_files=None)) == []


def test_python_beside_trinity(plant: Plant) -> None:
    machine = replace(look_at_machine(plant()), packages=TRINITY, python=(3, 13))
    assert codes(plant(), machine) == ["machine.python_version"]


def test_markers_must_name_what_is_there(plant: Plant) -> None:
    job = plant().trainer.job_dir
    job.mkdir(parents=True)
    version, resume = job / "latest_state_dict_iteration.txt", job / "latest_checkpointed_iteration.txt"
    version.write_text("4\n")
    assert "global_step_4 is not there" in told(plant(), look_at_machine(plant()))
    (job / "global_step_4").mkdir()
    resume.write_text("4")
    assert "has no .full_checkpoint" in told(plant(), look_at_machine(plant()))
    (job / "global_step_4" / ".full_checkpoint").touch()
    assert codes(plant(), look_at_machine(plant())) == []
    version.write_text("four")
    assert codes(plant(), look_at_machine(plant())) == ["machine.marker_unreadable"]


def test_the_clock_of_a_file_server(plant: Plant) -> None:
    machine = look_at_machine(plant())
    assert abs(machine.checkpoints.clock) < 5
    ahead = replace(machine, checkpoints=replace(machine.checkpoints, clock=120.0))
    assert "+120 s" in told(plant(), ahead)


def test_a_store_on_a_network_filesystem(plant: Plant) -> None:
    machine = look_at_machine(plant())
    assert machine.store is not None
    remote = replace(machine, store=replace(machine.store, filesystem="nfs4"))
    assert "machine.store_on_a_network_filesystem sidecar.yaml: store.url" in told(plant(), remote)


def test_a_store_whose_key_is_missing(plant: Plant, deployment: Path) -> None:
    """A store with a mark that was encrypted, as a sidecar leaves it."""
    old, new = (base64.b64encode(bytes([number]) * 32).decode() for number in (1, 2))

    async def filled() -> None:
        database = Database(f"sqlite+aiosqlite:///{deployment}/store.db", Cipher([base64.b64decode(old)]))
        await database.open()
        async with database.write() as session:
            session.add(MarkRow(id="m", task_id="t", labels=[], meta={}, state="waiting", created_at=1, expires_at=2))
        await database.close()

    assert codes(plant(), look_at_machine(plant())) == [], "there is no store yet, and none is made"
    asyncio.run(filled())
    before = (deployment / "store.db").read_bytes()
    for given, right in (("", False), (new, False), (old, True), (f"{new},{old}", True)):
        files = plant(Mistake(sidecar=sidecar("store", encryption_key=given)))
        assert codes(files, look_at_machine(files)) == ([] if right else ["machine.store_locked"])
    assert "the one with the fingerprint" in told(plant(), look_at_machine(plant()))
    assert (deployment / "store.db").read_bytes() == before


def test_a_file_of_keys(plant: Plant, deployment: Path) -> None:
    path = deployment / "keys.yaml"
    files = plant(Mistake(sidecar=sidecar("access", keys_file=path)))
    assert "machine.keys_file_unusable" in told(files, look_at_machine(files))
    assert f"{path}: no such file" in told(files, look_at_machine(files))
    path.write_text("keys: []")
    assert "expected a list of keys" in told(files, look_at_machine(files))
    path.write_text("[]")
    assert "files.no_key_for_agents sidecar.yaml: access.keys_file no key at all" in told(files, look_at_machine(files))
    path.write_text(f'[{{name: metrics, roles: [metrics, feedback], hash: "{HASH}"}}]')
    assert "keys with the roles feedback, metrics" in told(files, look_at_machine(files))
    path.write_text(f'[{{name: agents, roles: [proxy], hash: "{HASH}"}}]')
    path.chmod(0o644)
    assert codes(files, look_at_machine(files)) == []
    path.chmod(0o646)
    assert codes(files, look_at_machine(files)) == ["machine.keys_file_writable"]
