"""Where others can reach it, the sidecar starts with keys or not at all; and the command that makes one."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from slipstream.access.keyring import Keyring
from slipstream.access.scope import Scope
from slipstream.access.settings import Access, is_loopback
from slipstream.errors import ConfigError
from slipstream.serve import sockets
from slipstream.serve.handover import Half, Handover
from slipstream.settings.sidecar import Settings
from slipstream.settings.source import load_settings
from slipstream.tenants import DEFAULT


@pytest.mark.parametrize("listen", ["0.0.0.0:8100", "[::]:8100", "10.0.0.5:8100", "sidecar:8100", "[fe80::1]:0"])
def test_without_keys_an_address_that_others_reach_is_refused(listen: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_settings(None, {"SLIPSTREAM_LISTEN": f"'{listen}'"})
    [told] = refused.value.problems
    assert told.startswith("access: expected keys or keys_file, because listen is ")
    assert "access.keys" in told
    assert "slipstream key new" in told
    assert "access.insecure: true" in told


@pytest.mark.parametrize(
    "access",
    [
        "{insecure: true}",
        "{keys_file: keys.yaml}",
        f"{{keys: [{{name: a, roles: [proxy], hash: 'sha256:{'0' * 64}'}}]}}",
    ],
    ids=["insecure", "file", "keys"],
)
def test_it_starts_there_where_that_is_answered(access: str) -> None:
    assert load_settings(None, {"SLIPSTREAM_LISTEN": "0.0.0.0:8100", "SLIPSTREAM_ACCESS": access}).listen.port == 8100


@pytest.mark.parametrize("listen", ["127.0.0.1:8100", "[::1]:8100", "localhost:8100", "127.9.9.9:0"])
def test_loopback_needs_no_keys(listen: str) -> None:
    assert is_loopback(load_settings(None, {"SLIPSTREAM_LISTEN": f"'{listen}'"}).listen.host)


def opened(settings: Settings, handover: Handover | None = None) -> None:
    with sockets.open_sockets(settings, Half.PROXY, handover):
        pass


@pytest.mark.parametrize("upgrade", [False, True], ids=["start", "upgrade"])
@pytest.mark.parametrize(
    ("host", "access", "told"),
    [
        ("0.0.0.0", {}, "access: expected keys or keys_file, because ListenStream= of the socket unit is 0.0.0.0"),
        ("0.0.0.0", {"insecure": True}, None),
        ("127.0.0.1", {}, None),
    ],
    ids=["open", "insecure", "loopback"],
)
def test_a_socket_of_a_unit_is_refused_where_listen_would_be(
    host: str,
    access: dict[str, bool],
    told: str | None,
    upgrade: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = Settings.model_validate({"access": access, "proxy": {"sockets": tmp_path}})
    passed = socket.create_server((host, 0)).detach()
    handover = None
    if upgrade:
        handover = Handover(
            folder=tmp_path,
            temporary=False,
            agents=(passed,),
            listen=None,
            control=None,
            captures=None,
            counters=None,
            answers=-1,
            first=-1,
        )
    else:
        monkeypatch.setattr(sockets, "_FIRST_PASSED", passed)
        monkeypatch.setenv("LISTEN_FDS", "1")
        monkeypatch.setenv("LISTEN_PID", str(os.getpid()))
    if told is None:
        opened(settings, handover)
    else:
        with pytest.raises(ConfigError) as refused:
            opened(settings, handover)
        [problem] = refused.value.problems
        assert problem.startswith(told)


def test_the_clients_variables_are_no_keys_of_the_sidecar() -> None:
    load_settings(None, {"SLIPSTREAM_URL": "http://127.0.0.1:8100", "SLIPSTREAM_API_KEY": "slp_x"})


@pytest.mark.slow
@pytest.mark.parametrize("command", ["serve", "doctor"])
def test_serve_and_doctor_say_what_to_do(command: str, tmp_path: Path) -> None:
    (tmp_path / "sidecar.yaml").write_text("listen: 0.0.0.0:0\n")
    flag = "--config" if command == "serve" else "--sidecar"
    done = subprocess.run(
        [sys.executable, "-m", "slipstream", command, flag, "sidecar.yaml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "slipstream: access: expected keys or keys_file" in done.stderr


def key_new(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "slipstream", "key", "new", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_a_new_key_is_shown_with_the_entry_that_lets_it_in() -> None:
    said = key_new("--role", "proxy", "--role", "feedback", "--name", "agents")
    found = re.fullmatch(r"key:   (slp_[A-Za-z0-9_-]{43})\nentry: (- \{.*\})\n", said.stdout)
    assert found is not None
    holder = Keyring(Access.model_validate({"keys": yaml.safe_load(found[2])})).holder(found[1].encode())
    assert holder is not None
    assert (holder.name, holder.roles) == ("agents", {"proxy", "feedback"})
    assert holder.scope.tenant == DEFAULT
    assert found[1] not in found[2]


def test_a_new_key_of_a_tenant_reaches_that_tenant() -> None:
    said = key_new("--role", "admin", "--tenant", "2024")  # which YAML would read as a number
    entry = said.stdout.partition("entry: ")[2]
    (key,) = Keyring(Access.model_validate({"keys": yaml.safe_load(entry)})).now()
    assert key.scope == Scope("2024", content=True, reasons=True, key="admin")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            ("--role", "root"),
            "roles.0: expected 'proxy', 'feedback', 'runs', 'annotator', 'viewer', 'operator', 'admin' or 'metrics'; "
            'found "root"',
        ),
        (("--role", "proxy", "--name", "a b"), "name: expected"),
        (("--role", "proxy", "--tenant", "a/b"), "tenant: expected"),
        ((), "--role"),
    ],
    ids=["role", "name", "tenant", "nothing"],
)
def test_what_is_no_key_is_refused_by_name(options: tuple[str, ...], told: str) -> None:
    said = key_new(*options)
    assert said.returncode == 2
    assert told in said.stderr
    assert "slp_" not in said.stdout
