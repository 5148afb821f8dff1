"""Keys that expire: told of before, refused after, and named in both."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml
from guarded import RunGuarded
from test_exposure import key_new

from slipstream.access.keyring import Keyring
from slipstream.access.keys import as_hash, new_key
from slipstream.access.settings import Access
from slipstream.errors import ConfigError
from slipstream.settings.source import load_settings

DAY = timedelta(days=1)


def entry(name: str, key: str, expires: datetime | None, **fields: Any) -> dict[str, Any]:
    until = {} if expires is None else {"expires": expires.isoformat()}
    return {"name": name, "roles": ["metrics"], "hash": as_hash(key), **until, **fields}


async def test_an_expired_key_is_refused_by_name_and_others_are_not(run_guarded: RunGuarded) -> None:
    now, keys = datetime.now(UTC), {name: new_key() for name in ("past", "soon", "late", "ever")}
    made = [
        entry("past", keys["past"], now - DAY),
        entry("soon", keys["soon"], now + 3 * DAY),
        entry("late", keys["late"], now + 30 * DAY, tenant="acme"),
        entry("ever", keys["ever"], None),
    ]
    async with run_guarded(access={"keys": made}) as guarded:

        async def asked(name: str) -> Any:
            return await guarded.loop.client.get("/status", headers={"x-slipstream-key": keys[name]})

        refused = await asked("past")
        assert refused.status_code == 401
        error = refused.json()["error"]
        assert error["code"] == "slipstream_key_expired"
        assert f"(past) expired at {now - DAY:%Y-%m-%dT%H:%M:%SZ}" in error["message"]
        [problem] = (await asked("ever")).json()["problems"]
        assert problem["code"] == "live.key_expires"
        assert problem["found"].startswith("past expired ")
        assert "; soon expires in " in problem["found"]
        assert (await asked("late")).json()["problems"] == [], "a tenant is told of its own keys alone"
        text = (await guarded.loop.client.get("/metrics", headers={"x-slipstream-key": keys["ever"]})).text
        for state, count in (("valid", 2), ("expiring", 1), ("expired", 1)):
            assert f'slipstream_keys{{state="{state}"}} {count}.0' in text
        assert 'slipstream_problems{code="live.key_expires"} 1.0' in text


def test_a_new_key_that_expires_says_when() -> None:
    said = key_new("--role", "proxy", "--expires", "90d").stdout.partition("entry: ")[2]
    (key,) = Keyring(Access.model_validate({"keys": yaml.safe_load(said)})).now()
    assert key.expires is not None
    assert 89 < (key.expires - time.time()) / 86400 <= 90
    refused = key_new("--role", "proxy", "--expires", "soon")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "--expires: expected a duration such as 90d" in refused.stderr


@pytest.mark.parametrize("text", ["2027-01-31", "2027-01-31T00:00:00", "soon", "90"])
def test_a_time_without_its_offset_is_refused(text: str) -> None:
    key = f'{{name: a, roles: [proxy], hash: "{as_hash(new_key())}", expires: {text}}}'
    with pytest.raises(ConfigError, match=r"access\.keys\.0\.expires: expected a date and a time with its offset"):
        load_settings(None, {"SLIPSTREAM_ACCESS__KEYS": f"[{key}]"})
