"""Keys in a file: what is put in is valid, what is taken out is refused, in each worker and without a restart."""

from __future__ import annotations

import hmac
from pathlib import Path

import httpx
import pytest
import yaml
from guarded import RunGuarded
from scripted import ScriptedExplorer, production_app
from serving import serving, until
from sidecar_process import SidecarProcess

from slipstream.access import keyring
from slipstream.access.keyring import Keyring
from slipstream.access.keys import as_hash, new_key
from slipstream.access.settings import Access
from slipstream.errors import ConfigError

OLD, NEW = new_key(), new_key()


def written(path: Path, **keys: str) -> Path:
    path.write_text(yaml.safe_dump([{"name": name, "roles": ["admin"], "hash": as_hash(keys[name])} for name in keys]))
    return path


def _client(url: str, key: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=url, headers={"x-slipstream-key": key}, timeout=30)


@pytest.mark.slow
async def test_a_key_is_replaced_without_a_restart(tmp_path: Path) -> None:
    file = written(tmp_path / "keys.yaml", old=OLD)
    async with serving(production_app()) as production, serving(ScriptedExplorer().app()) as explorer:
        process = SidecarProcess(
            tmp_path, production, explorer, access={"keys_file": str(file)}, proxy={"workers": 2}, log={"level": "info"}
        )
        process.log = tmp_path / "log"
        await process.start()
        try:

            async def statuses(key: str) -> set[int]:
                """What several connections are answered, which the kernel shares out among the workers."""
                found = set()
                for _ in range(8):
                    async with _client(process.url, key) as client:
                        found.add((await client.get("/v1/models")).status_code)
                return found

            async def answered(key: str, status: int) -> bool:
                return await statuses(key) == {status}

            assert (await statuses(OLD), await statuses(NEW)) == ({200}, {401})
            written(file, old=OLD, new=NEW)
            await until(lambda: answered(NEW, 200))
            assert await statuses(OLD) == {200}, "both are valid while they change"
            written(file, new=NEW)
            await until(lambda: answered(OLD, 401))
            file.write_text("- {name: new, roles: [admin]")

            async def said() -> bool:
                assert await statuses(NEW) == {200}, "a file that is being written takes nothing away"
                return "keys_file_not_read" in process.log.read_text()

            await until(said)
            async with _client(process.url, NEW) as client:
                counted = (await client.get("/metrics")).text
            assert 'slipstream_key_requests_total{key="new",outcome="admitted"}' in counted
            told = process.log.read_text()
            assert OLD not in told + counted
            assert NEW not in told + counted
        finally:
            process.send(15)
            await process.ended()


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, "no such file"),
        ("", "expected a list of keys"),
        ("keys: []", "expected a list of keys"),
        ("- {name: a, roles: [admin], key: slp_s3cr3t}", "keys.0: expected key as `slipstream key new`"),
        (
            "- {name: a, roles: [root], hash: 'sha256:0'}",
            "keys.0.roles.0: expected 'proxy', 'feedback', 'runs', 'annotator', 'viewer', 'operator', 'admin'",
        ),
        ("- {name: a", "while parsing a flow mapping"),
        ("- {name: 2024-13-45, hash: s3cr3t}", "for a date or a number and that is none"),
        ("- {name: !!int s3cr3t}", "for a date or a number and that is none"),
        ("[" * 10_000, "too many levels"),
    ],
    ids=["missing", "empty", "no list", "short key", "no role", "no yaml", "no date", "no number", "too deep"],
)
def test_a_file_that_cannot_be_used_is_refused_at_the_start(tmp_path: Path, text: str | None, told: str) -> None:
    file = tmp_path / "keys.yaml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ConfigError, match=r"(?s).*") as refused:
        Keyring(Access(keys_file=file))
    assert told in str(refused.value)
    assert "s3cr3t" not in str(refused.value)


def test_the_file_is_looked_at_once_a_second_and_all_can_be_taken_out(tmp_path: Path) -> None:
    now = [0.0]
    file = written(tmp_path / "keys.yaml", old=OLD)
    ring = Keyring(Access(keys_file=file), lambda: now[0])
    file.write_text("[]")
    assert ring.holder(OLD.encode()) is not None
    now[0] = 1.0
    assert ring.holder(OLD.encode()) is None


def test_a_file_whose_rights_are_mended_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    file = written(tmp_path / "keys.yaml", old=OLD)
    ring = Keyring(Access(keys_file=file), lambda: now[0])
    written(file, new=NEW)
    with monkeypatch.context() as nobody:  # root may read everything
        nobody.setattr(Path, "read_text", _forbidden)
        now[0] = 1.0
        assert ring.holder(NEW.encode()) is None
    file.chmod(0o640)
    now[0] = 2.0
    assert ring.holder(NEW.encode()) is not None


def _forbidden(*_: object, **__: object) -> str:
    raise PermissionError(13, "Permission denied")


def test_every_key_is_compared_in_constant_time_and_to_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """How long a refusal takes must not tell how much of a key, or which key, was right."""
    made = [new_key() for _ in range(5)]
    entries = [{"name": f"k{place}", "roles": ["proxy"], "key": key} for place, key in enumerate(made)]
    ring = Keyring(Access.model_validate({"keys": entries}))
    compared: list[tuple[bytes, bytes]] = []

    class Watched:
        @staticmethod
        def compare_digest(one: bytes, other: bytes) -> bool:
            compared.append((one, other))
            return hmac.compare_digest(one, other)

    monkeypatch.setattr(keyring, "hmac", Watched)
    for key in (*made, new_key()):
        compared.clear()
        found = ring.holder(key.encode())
        assert (found is None) == (key not in made)
        assert len(compared) == len(made)
        assert all(key.encode() not in pair for pair in compared), "hashes are compared, of one length"


def test_only_the_hash_of_a_key_is_kept() -> None:
    access = Access.model_validate({"keys": [{"name": "a", "roles": ["proxy"], "key": OLD}]})
    assert access.keys[0].hash == as_hash(OLD)
    assert OLD not in repr(access) + access.model_dump_json()
    assert access.keys[0].key is None


async def test_keys_of_the_configuration_stay_beside_those_of_the_file(run_guarded: RunGuarded, tmp_path: Path) -> None:
    file = written(tmp_path / "keys.yaml", old=OLD)
    async with run_guarded(access={"keys_file": str(file)}) as guarded:
        for key in (OLD, guarded.keys["admin"]):
            assert (await guarded.loop.client.get("/status", headers={"x-slipstream-key": key})).status_code == 200
