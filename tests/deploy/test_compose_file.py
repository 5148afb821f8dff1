"""What docker-compose.yml and its overrides promise, in the model that compose itself makes of them."""

from __future__ import annotations

import itertools
import os
import re
import socket
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from composed import CHECKOUT, ROOT, compose_config, compose_program, most_memory, seconds
from sqlalchemy import make_url
from typer.main import get_command

from slipstream import shutdown
from slipstream.access.keyring import Keyring
from slipstream.access.settings import Access
from slipstream.cli import app
from slipstream.embedded.config import load_config
from slipstream.settings.sidecar import Isolation, Limits
from slipstream.trinity.document import load_document

HOSTS = {
    "NFS_SERVER": "10.0.0.5",
    "NFS_PATH": "/export/slipstream",
    "BUFFER_HOST": "10.0.0.1",
    "NODE_ADDRESS": "10.0.0.2",
    "DATABASE_BIND": "10.0.0.1:5432",
}
ONE_GPU, TWO_HOSTS, CLUSTER, HISTORY = (
    f"deploy/compose/{name}.yml" for name in ("one-gpu", "two-hosts", "cluster", "history")
)
MODELS = {
    "cpu": compose_config("cpu"),
    "gpu": compose_config("gpu"),
    "one-gpu": compose_config("gpu", files=("docker-compose.yml", ONE_GPU)),
    "history": compose_config("gpu", files=("docker-compose.yml", HISTORY)),
    "two-hosts": compose_config("gpu", files=("docker-compose.yml", TWO_HOSTS), variables=HOSTS),
    "cluster": compose_config("gpu", "ray-worker", files=("docker-compose.yml", TWO_HOSTS, CLUSTER), variables=HOSTS),
}
SERVICES = [(model, name) for model, found in MODELS.items() for name in found["services"]]
TRINITY = [
    (model, name)
    for model, name in SERVICES
    if (MODELS[model]["services"][name].get("command") or [""])[0] == "trinity"
]
OURS = [
    (model, name)
    for model, name in SERVICES
    if "build" in MODELS[model]["services"][name] and not MODELS[model]["services"][name].get("entrypoint")
]


def service(model: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = MODELS[model]["services"][name]
    return found


def in_checkout(path: str, of: dict[str, Any]) -> Path:
    """The file of the checkout that a service sees at a path."""
    mounts = {mount["target"]: Path(mount["source"]) for mount in of["volumes"] if mount["type"] == "bind"}
    [target] = [target for target in mounts if path == target or path.startswith(f"{target}/")]
    return mounts[target] / Path(path).relative_to(target)


def options(command: list[str], name: str) -> list[str]:
    """The values of an option, in either form."""
    words = [part for word in command for part in word.split("=", 1)]
    return [value for option, value in itertools.pairwise(words) if option == f"--{name}"]


def test_the_profiles_start_what_the_documentation_says() -> None:
    shown = {"proxy", "training", "tensorboard", "prometheus", "grafana"}
    assert set(MODELS["cpu"]["services"]) == shown | {"model", "embedded-explorer", "embedded-trainer"}
    assert set(MODELS["gpu"]["services"]) == shown | {"postgres", "trinity-explorer", "trinity-trainer"}
    assert not [
        name for name, each in MODELS["cpu"]["services"].items() if "reservations" in each["deploy"]["resources"]
    ]


@pytest.mark.parametrize(("model", "name"), SERVICES)
def test_a_service_has_no_more_rights_than_it_needs(model: str, name: str) -> None:
    found = service(model, name)
    uid = found["user"].partition(":")[0]
    assert uid.isdecimal()
    assert int(uid) > 0
    assert found["read_only"] is True
    assert found["cap_drop"] == ["ALL"]
    assert found["security_opt"] == ["no-new-privileges:true"]
    assert "privileged" not in found
    limits = found["deploy"]["resources"]["limits"]
    assert all(limits[what] for what in ("cpus", "memory", "pids"))
    assert found["logging"]["options"].keys() == {"max-size", "max-file"}


@pytest.mark.parametrize(("model", "name"), SERVICES)
def test_a_service_comes_back_and_says_how_it_is(model: str, name: str) -> None:
    found = service(model, name)
    assert found["restart"] == ("on-failure:5" if name == "model" else "always")
    check = found["healthcheck"]
    assert check.get("disable") is True or check["test"][0] == "CMD", "exec form: slim images have no shell tools"
    if check.get("test", [])[1:3] == ["python", "-c"]:
        compile(check["test"][3], name, "exec")
    assert re.search(r":v?\d+\.\d+", found["image"]), "a version, not a moving tag"


@pytest.mark.parametrize("model", ["gpu", "one-gpu", "two-hosts"])
def test_the_trainer_s_check_needs_no_token_of_its_ray(model: str) -> None:
    """Ray's own check does: `slipstream trinity` gives that Ray a token, which nothing else in the container has."""
    _, _, option, program = service(model, "trinity-trainer")["healthcheck"]["test"]
    with socket.create_server(("127.0.0.1", 0)) as ray:
        command = [sys.executable, option, program.replace("6379", str(ray.getsockname()[1]))]
        assert subprocess.run(command, check=False).returncode == 0
    assert subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode != 0


@pytest.mark.parametrize(("model", "name"), SERVICES)
def test_no_secret_is_in_the_environment(model: str, name: str) -> None:
    for key, value in (service(model, name).get("environment") or {}).items():
        if re.search("key|password|secret|token|passfile", key, re.IGNORECASE):
            assert str(value).startswith("/run/secrets/"), key
        assert not re.search(r"//[^/@]*:[^/@]*@", str(value)), f"{key}: a password in a URL"
    mounted = {f"/run/secrets/{each['source']}" for each in service(model, name).get("secrets", [])}
    used = re.findall(r"/run/secrets/\w+", str(service(model, name).get("environment")))
    assert set(used) <= mounted


def test_only_the_training_side_reaches_the_explorer_and_only_trinity_the_database() -> None:
    for model, explorer in (("cpu", "embedded-explorer"), ("gpu", "trinity-explorer")):
        services = MODELS[model]["services"]
        assert {name for name, each in services.items() if "policy" in (each.get("networks") or {})} == {
            "training",
            explorer,
        }
        assert services[explorer]["networks"]["policy"]["aliases"] == ["explorer"]
        assert services[explorer]["environment"]["EXPLORER_LISTEN_ADDRESS"] == "explorer", "on no other network"
        assert services["training"]["environment"]["SLIPSTREAM_EXPLORER__BASE_URL"] == "http://explorer:8010"
    gpu = MODELS["gpu"]["services"]
    assert {name for name, each in gpu.items() if "buffer" in (each.get("networks") or {})} == {
        "postgres",
        "trinity-explorer",
        "trinity-trainer",
    }
    assert {name for name, network in MODELS["gpu"]["networks"].items() if network.get("internal")} == {
        "policy",
        "buffer",
        "scrape",
    }
    assert MODELS["cpu"]["services"]["embedded-trainer"]["network_mode"] == "none"


def test_a_sidecar_with_the_explorers_history_reaches_it_by_a_driver_and_a_password_that_it_has() -> None:
    training, postgres = service("history", "training"), service("history", "postgres")
    assert {"front", "policy"} < training["networks"].keys() >= postgres["networks"].keys()
    assert training["image"] != service("history", "proxy")["image"], "of two builds of one name the last would stand"
    assert training["build"]["args"]["EXTRAS"].split() == ["embedded", "postgres"]
    url = make_url(training["environment"]["SLIPSTREAM_EXPLORER__HISTORY_URL"])
    assert (url.drivername, url.host, url.password) == ("postgresql+asyncpg", "postgres", None)
    assert (url.username, url.database) == tuple(
        postgres["environment"][name] for name in ("POSTGRES_USER", "POSTGRES_DB")
    )
    assert training["user"].startswith("10001:"), "to whom secrets.sh gives the file"


@pytest.mark.parametrize(("model", "name"), SERVICES)
def test_a_published_port_is_on_a_private_address(model: str, name: str) -> None:
    for port in service(model, name).get("ports", []):
        assert port["host_ip"] in ("127.0.0.1", "10.0.0.1")


@pytest.mark.parametrize(("model", "name"), SERVICES)
def test_what_is_mounted_from_the_checkout_is_there_and_read_only(model: str, name: str) -> None:
    for mount in service(model, name).get("volumes", []):
        if mount["type"] == "bind" and mount["target"] != "/models/policy":
            assert Path(mount["source"]).exists(), mount["source"]
            assert mount["read_only"] is True


@pytest.mark.parametrize(("model", "name"), OURS)
def test_a_command_is_one_that_the_program_knows(model: str, name: str) -> None:
    words: list[str] = service(model, name)["command"]
    program: Any = get_command(app)
    while hasattr(program, "commands"):
        program, words = program.commands[words[0]], words[1:]
    program.make_context(name, list(words))


def test_the_order_of_the_stop_lets_the_sidecar_deliver() -> None:
    for model, explorer in (("cpu", "embedded-explorer"), ("gpu", "trinity-explorer")):
        proxy, training = service(model, "proxy"), service(model, "training")
        assert proxy["depends_on"]["training"] == {"condition": "service_started", "required": True}, (
            "no restart with it"
        )
        assert training["depends_on"][explorer] == {"condition": "service_started", "required": False}
        assert seconds(proxy["stop_grace_period"]) > shutdown.WORKER
        assert seconds(training["stop_grace_period"]) > shutdown.TRAINING


@pytest.mark.parametrize("model", ["cpu", "gpu"])
def test_the_halves_share_a_folder_in_memory_and_nothing_that_the_other_may_fill(model: str) -> None:
    proxy, training = service(model, "proxy"), service(model, "training")
    written = [{m["source"] for m in each["volumes"] if not m.get("read_only")} for each in (proxy, training)]
    assert written == [{"sockets"}, {"sockets", "store", "checkpoints"}]
    assert MODELS[model]["volumes"]["sockets"]["driver_opts"]["type"] == "tmpfs"
    assert proxy["environment"] == training["environment"]
    assert proxy["user"] == training["user"]
    [folder] = [m["target"] for m in proxy["volumes"] if m["source"] == "sockets"]
    assert proxy["environment"]["SLIPSTREAM_PROXY__SOCKETS"] == folder
    assert "ports" not in training
    assert "expose" not in training
    for half in (proxy, training):
        assert half["restart"] == "always"
        assert half["deploy"]["resources"]["limits"].keys() == {"cpus", "memory", "pids"}


def test_the_training_container_holds_what_its_configuration_lets_it_take() -> None:
    """Else it is full before a process has come to its own limit."""
    training = service("cpu", "training")
    sections = yaml.safe_load(in_checkout("/etc/slipstream/sidecar.yaml", training).read_text())
    isolation, limits = (sections.get(section, {}) for section in ("isolation", "limits"))
    needed = most_memory(Isolation.model_validate(isolation), Limits.model_validate(limits))
    assert needed <= int(training["deploy"]["resources"]["limits"]["memory"])


def test_nothing_is_copied_into_checkpoints_on_a_server() -> None:
    """An NFS server does not let root give a directory away, and the container would not start."""
    for name, found in MODELS["two-hosts"]["services"].items():
        for mount in found.get("volumes", []):
            assert mount["source"] != "checkpoints" or mount["volume"] == {"nocopy": True}, name


@pytest.mark.parametrize(("model", "name"), TRINITY)
def test_trinity_gets_the_gpus_that_its_file_counts_on(model: str, name: str) -> None:
    found = service(model, name)
    files = [in_checkout(path, found) for path in options(found["command"], "config")]
    overlays = [in_checkout(path, found) for path in options(found["command"], "overlay")]
    with pytest.MonkeyPatch.context() as patch:
        for key, value in found["environment"].items():
            patch.setenv(key, value)
        document = load_document(files[0], overlays)
    assert document["mode"] == ("serve" if name == "trinity-explorer" else "train")
    assert document["checkpoint_root_dir"] == "/checkpoints"
    buffer = document["buffer"]["trainer_input"]["experience_buffer"]
    assert buffer["path"] == found["environment"]["BUFFER_URL"]
    holder = service(model, "ray-head") if model == "cluster" and name == "trinity-trainer" else found
    assert len(_gpus(holder)) == document["cluster"]["gpu_per_node"]
    assert document["cluster"]["node_num"] == (2 if holder is not found else 1)


@pytest.mark.parametrize("model", ["gpu", "one-gpu"])
def test_explorer_and_trainer_of_one_server_share_no_gpu(model: str) -> None:
    explorer, trainer = (_gpus(service(model, f"trinity-{name}")) for name in ("explorer", "trainer"))
    assert not set(explorer) & set(trainer)


@pytest.mark.parametrize("name", ["ray-head", "ray-worker"])
def test_ray_has_a_place_for_each_worker_of_verl(name: str) -> None:
    """Ray by itself counts the container's CPUs, and with too few places Trinity waits for ever."""
    found = service("cluster", name)
    assert f"--num-cpus={8 + 4 * len(_gpus(found))}" in found["command"]


def _gpus(found: dict[str, Any]) -> list[str]:
    [device] = found["deploy"]["resources"]["reservations"]["devices"]
    ids: list[str] = device["device_ids"]
    return ids


@pytest.mark.parametrize("name", ["embedded-explorer", "embedded-trainer"])
def test_the_embedded_engine_reads_its_files(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = service("cpu", name)
    for key, value in found["environment"].items():
        monkeypatch.setenv(key, value)
    [file] = [in_checkout(path, found) for path in options(found["command"], "config")]
    overlays = [in_checkout(path, found) for path in options(found["command"], "overlay")]
    config = load_config(file, "serve" if name == "embedded-explorer" else "train", overlays)
    assert str(config.job_dir).startswith("/checkpoints/")


@pytest.mark.slow
@pytest.mark.parametrize("model", ["gpu", "one-gpu", "two-hosts"])
def test_the_doctor_finds_no_error_in_what_the_containers_read(model: str, tmp_path: Path) -> None:
    sidecar, explorer, trainer = (service(model, name) for name in ("training", "trinity-explorer", "trinity-trainer"))
    file = tmp_path / "sidecar.yaml"
    file.write_text(in_checkout("/etc/slipstream/sidecar.yaml", sidecar).read_text().replace("/run", str(tmp_path)))
    (tmp_path / "secrets").mkdir()
    for secret in sidecar["secrets"]:
        (tmp_path / "secrets" / secret["source"]).touch()
    overlays = [in_checkout(path, trainer) for path in options(trainer["command"], "overlay")]
    done = subprocess.run(
        [
            *(sys.executable, "-m", "slipstream", "doctor", "--offline", f"--sidecar={file}"),
            *(
                f"--{name}={in_checkout(f'/etc/slipstream/{name}.yaml', of)}"
                for name, of in (("explorer", explorer), ("trainer", trainer))
            ),
            *(f"--overlay={overlay}" for overlay in overlays),
        ],
        env=sidecar["environment"] | explorer["environment"] | CHECKOUT | {"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_missing_variable_of_several_hosts_is_named() -> None:
    with pytest.raises(AssertionError, match="the address of the NFS server"):
        compose_config("gpu", files=("docker-compose.yml", TWO_HOSTS), variables={"NFS_PATH": "/export"})


def test_secrets_are_made_once_and_others_on_the_machine_cannot_read_them(tmp_path: Path) -> None:
    script = tmp_path / "deploy" / "compose" / "secrets.sh"
    script.parent.mkdir(parents=True)
    script.write_text((ROOT / "deploy" / "compose" / "secrets.sh").read_text())
    environment = {key: value for key, value in os.environ.items() if key != "SUDO_UID"}
    subprocess.run(["sh", script], check=True, env=environment)
    folder = tmp_path / "secrets"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    made = {file.name: file.read_text() for file in folder.iterdir()}
    wanted = {name for model in ("cpu", "gpu") for name in MODELS[model]["secrets"]}
    for_people = {"agent_key", "admin_key"}
    assert made.keys() == wanted | for_people - (set() if os.geteuid() == 0 else {"postgres_passfile"})
    assert made["production_api_key"] == ""
    assert len({made["facade_api_key"], made["postgres_password"], made["grafana_password"]}) == 3
    ring = Keyring(Access(keys_file=folder / "access_keys"))
    roles = {name: ring.holder(made[name].encode()).roles for name in ("agent_key", "admin_key", "metrics_key")}
    assert roles == {"agent_key": {"proxy", "feedback"}, "admin_key": {"admin"}, "metrics_key": {"metrics"}}
    if os.geteuid() == 0:
        assert made["postgres_passfile"].strip().endswith(f":{made['postgres_password']}")
        passfile = (folder / "postgres_passfile").stat()
        assert (passfile.st_uid, stat.S_IMODE(passfile.st_mode)) == (10001, 0o400)
    subprocess.run(["sh", script], check=True, env=environment)
    assert {file.name: file.read_text() for file in folder.iterdir()} == made


def test_compose_is_the_version_that_the_documentation_asks_for() -> None:
    said = subprocess.run([compose_program(), "version", "--short"], capture_output=True, text=True, check=True)
    assert tuple(map(int, said.stdout.strip().lstrip("v").split(".")[:2])) >= (2, 24), "!override and !reset"
