"""`GET /keys` and `GET /settings`: for whoever operates the sidecar, and nothing in them that opens it."""

from __future__ import annotations

import time
from pathlib import Path

from guarded import RunGuarded

from slipstream.access.keys import as_hash, new_key


async def test_keys_are_listed_with_their_use_and_the_configuration_without_secrets(
    run_guarded: RunGuarded, tmp_path: Path
) -> None:
    acme, slow, of_acme = new_key(), new_key(), new_key()
    file = tmp_path / "keys.yaml"
    file.write_text(f'- {{name: acme-admin, roles: [admin], tenant: "acme", hash: "{as_hash(acme)}"}}\n')
    made = [
        {
            "name": "slow", "roles": ["metrics", "proxy"], "hash": as_hash(slow), "requests_per_minute": 600,
            "expires": "2026-01-01T00:00:00Z", "capture": False,
        },
        {"name": "acme-agent", "roles": ["proxy"], "tenant": "acme", "hash": as_hash(of_acme)},
        {"name": "root", "roles": ["admin"], "hash": as_hash(root := new_key())},
    ]  # fmt: skip
    began = int(time.time())
    async with run_guarded(access={"keys": made, "keys_file": str(file)}) as guarded:
        client = guarded.loop.client

        async def ask(key: str, path: str) -> tuple[int, str]:
            answer = await client.get(path, headers={"x-slipstream-key": key})
            return answer.status_code, answer.text

        assert (await ask(of_acme, "/v1/models"))[0] == 200
        assert (await ask(of_acme, "/status"))[0] == 403
        assert (await ask(slow, "/status"))[0] == 401
        told = await client.get("/keys", headers={"x-slipstream-key": root})
        assert told.status_code == 200, told.text
        found = {each["name"]: each for each in told.json()["keys"]}
        assert list(found) == ["slow", "acme-agent", "root", "acme-admin"]
        agent = found["acme-agent"]
        assert began <= agent.pop("last_used_at") <= time.time()
        assert agent == {
            "name": "acme-agent", "roles": ["proxy"], "tenant": "acme", "from": "configuration", "state": "valid",
            "expires_at": None, "capture": True, "requests_per_minute": None,
            "requests": {"admitted": 1, "forbidden": 1, "limited": 0},
        }  # fmt: skip
        assert (found["slow"]["state"], found["slow"]["roles"]) == ("expired", ["proxy", "metrics"])
        assert (found["slow"]["last_used_at"], found["slow"]["capture"]) == (None, False)
        assert found["slow"]["expires_at"] == 1767225600.0
        assert (found["root"]["tenant"], found["root"]["requests"]["admitted"]) == (None, 1)
        assert found["acme-admin"]["from"] == "keys_file"
        assert told.json()["without_key"] == {"forbidden": 0, "unauthorized": 1}

        own = (await client.get("/keys", headers={"x-slipstream-key": acme})).json()
        assert [each["name"] for each in own["keys"]] == ["acme-agent", "acme-admin"]
        assert own["without_key"] is None, "it is nobody's tenant"
        assert (await ask(acme, "/settings"))[0] == 403

        status, text = await ask(root, "/settings")
        assert status == 200
        for secret in (acme, slow, of_acme, root):
            for hidden in (secret, as_hash(secret)):
                assert hidden not in text + told.text
        answer = await client.get("/settings?section=access&set=true", headers={"x-slipstream-key": root})
        assert [each["key"] for each in answer.json()["settings"]] == ["access.keys", "access.keys_file"]
        refused = await client.get("/settings?section=acess", headers={"x-slipstream-key": root})
        assert refused.json()["error"]["message"].startswith("section: expected one of listen, access")
        assert refused.status_code == 422
