"""Checks of this machine against the files."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from slipstream.doctor.checks.sidecar import no_agent_gets_in
from slipstream.doctor.files import Files
from slipstream.doctor.findings import Finding, Problem
from slipstream.doctor.machine import Machine
from slipstream.doctor.markers import Marker
from slipstream.proxy import open_files

_NETWORK = ("nfs", "cifs", "smb", "9p", "ceph", "lustre", "gluster", "fuse.", "beegfs", "gpfs", "afs")
_CLOCK = 30.0
"""Seconds that two clocks may differ: more than a slow answer, less than what confuses anybody."""
_FULL_CHECKPOINT = 8
"""A full checkpoint by the size of the model: float32 weights, two moments of Adam, and the model directory."""
_GB = 1e9

ROOT_MISSING = Problem(
    "machine.checkpoint_root_missing",
    "error",
    why="Explorer and Trainer meet in this directory. Where a mount is missing Trinity makes the directory by itself, "
    "on the wrong disk of each host, and the Explorer never sees a version.",
    fix="Mount the shared filesystem, or make the directory; run the doctor where the Trainer runs.",
)
ROOT_NOT_WRITABLE = Problem(
    "machine.checkpoint_root_not_writable",
    "error",
    why="The Trainer cannot write versions, nor the Explorer its experiences.",
    fix="Give the user of the services write access (`chown`), or mount it without `ro`.",
)
DISK_FULL = Problem(
    "machine.disk_full",
    "error",
    why="There is no room for a single full checkpoint. A step that cannot be written ends training, and its batch "
    "stays consumed.",
    fix="Free space, a larger disk, or a smaller model.",
)
DISK_LOW = Problem(
    "machine.disk_low",
    "warning",
    why="The checkpoints that the Trainer is told to keep do not fit: training stops when the disk is full.",
    fix="A larger disk, or a smaller `trainer.max_checkpoints_to_keep`.",
)
SQLITE_ON_NETWORK = Problem(
    "machine.sqlite_on_a_network_filesystem",
    "error",
    why="SQLite's locks do not hold on network filesystems: the file is corrupted sooner or later, and experiences "
    "are lost.",
    fix="PostgreSQL: `--overlay overlays/postgresql.yaml` and BUFFER_URL; or a path on a local disk, where Explorer "
    "and Trainer share one host.",
)
MODEL_MISSING = Problem(
    "machine.model_missing",
    "error",
    why="Neither the Explorer nor the Trainer starts without the model.",
    fix="Put the model there, or correct MODEL_PATH.",
)
MODEL_INCOMPLETE = Problem(
    "machine.model_incomplete",
    "error",
    why="The model cannot be loaded without these files.",
    fix="Copy the whole Hugging Face directory, with config, tokenizer and weights.",
)
NO_CHAT_TEMPLATE = Problem(
    "machine.no_chat_template",
    "error",
    why="Without a chat template the Explorer answers every chat with an error. Base models have none.",
    fix="An instruct model, or `model.chat_template_path` in both files.",
)
STORE_NOT_WRITABLE = Problem(
    "machine.store_not_writable",
    "error",
    why="The sidecar keeps there what it has acknowledged, and does not start without it.",
    fix="Make the directory of `store.url`, writable for the sidecar's user.",
)
STORE_ON_NETWORK = Problem(
    "machine.store_on_a_network_filesystem",
    "error",
    why="SQLite's locks and its log do not hold on network filesystems: the store is corrupted sooner or later, and "
    "what was acknowledged is lost.",
    fix="`store.url` on a local disk, or PostgreSQL.",
)
LOCKED_OUT = Problem(
    "machine.store_locked",
    "error",
    why="The store holds conversations that were encrypted with a key which `store.encryption_key` lacks: the sidecar "
    "does not start, so that agents get no answer.",
    fix="The key of before, behind the new one where it was replaced (docs/privacy.md).",
)
KEYS_FILE = Problem(
    "machine.keys_file_unusable",
    "error",
    why="The sidecar does not start with it, so that agents get no answer; one at work keeps the keys that it had.",
    fix="A YAML list of lines that `slipstream key new` prints, readable for the sidecar's user; [] for none.",
)
KEYS_FILE_OPEN = Problem(
    "machine.keys_file_writable",
    "error",
    why="Whoever may write the file gives himself a key with every role, a second later.",
    fix="`chmod o-w`.",
)
FEW_OPEN_FILES = Problem(
    "machine.few_open_files",
    "warning",
    why="Each connection of an agent and each request under way takes a file descriptor. The sidecar keeps to what it "
    "may open, so production's traffic is refused earlier than `limits` says.",
    fix=open_files.FIX,
)
PYTHON = Problem(
    "machine.python_version",
    "error",
    why="Trinity 0.6.0 runs on Python 3.10 to 3.12.",
    fix="An environment with Python 3.12.",
)
UNTRIED_VERSION = Problem(
    "machine.version_untried",
    "warning",
    why="Slipstream was tried with Trinity-RFT 0.6.0 and verl 0.7.1. Trinity asks for vLLM 0.19.1 to 0.23.0; its CPU "
    "build 0.28.0 was tried too. How others behave at feedback and commit is not known.",
    fix="Install the extra `[trinity]` as docs/trinity.md says: it brings versions that work together.",
)
TRL_BESIDE_VERL = Problem(
    "machine.trl_beside_verl",
    "error",
    why="With trl 1.x installed beside verl 0.7.1 the import of verl breaks, and the Trainer does not start.",
    fix="An environment for Trinity without `[embedded]`: `pip uninstall trl`.",
)
NO_GREENLET = Problem(
    "machine.greenlet_missing",
    "error",
    why="Trinity reads and writes its database through SQLAlchemy's asyncio, which needs greenlet; trinity-rft does "
    "not ask for it, and the first feedback fails.",
    fix="`pip install 'sqlalchemy[asyncio]'`.",
)
NO_DRIVER = Problem(
    "machine.asyncpg_missing",
    "error",
    why="Trinity opens PostgreSQL through asyncpg, which trinity-rft does not ask for: the first commit fails.",
    fix="`pip install asyncpg`.",
)
MARKER_UNREADABLE = Problem(
    "machine.marker_unreadable",
    "error",
    why="The Explorer takes its version, and the Trainer its start, from these files; each must hold one number.",
    fix="Write the number of an existing `global_step_N` into it.",
)
MARKER_ASTRAY = Problem(
    "machine.marker_without_checkpoint",
    "error",
    why="The marker names a step that is not there: the Explorer's engines fail to load it and stay out until a "
    "restart, or the Trainer does not start.",
    fix="Write the number of the newest whole `global_step_N` into the marker; for resuming, of one with "
    "`.full_checkpoint`.",
)
FILESYSTEM_CLOCK = Problem(
    "machine.filesystem_clock",
    "warning",
    why="The file server's clock is not this machine's: ages of versions and experiences are wrong, in alerts too.",
    fix="NTP on both.",
)


def checkpoint_root(files: Files, machine: Machine) -> Iterator[Finding]:
    root = machine.checkpoints
    where = files.in_both("checkpoint_root_dir")
    if root.error is not None:
        yield ROOT_NOT_WRITABLE.at(where, f"{root.path}: {root.error}")
    elif not root.exists:
        yield ROOT_MISSING.at(where, f"no directory {root.path}")
    elif abs(root.clock) > _CLOCK:
        yield FILESYSTEM_CLOCK.at(str(root.path), f"{root.clock:+.0f} s against this machine")


def space(files: Files, machine: Machine) -> Iterator[Finding]:
    root, model = machine.checkpoints, machine.model
    if not root.exists or model is None or not model.weights:
        return
    one = _FULL_CHECKPOINT * model.weights
    kept = max(1, files.trainer.whole("trainer.max_checkpoints_to_keep"))
    # one more than are kept while the newest is written, and the weights of two versions beside them
    all_together = (kept + 1) * one + 2 * model.weights
    found = f"{root.free / _GB:.1f} GB free for full checkpoints of about {one / _GB:.1f} GB each"
    if root.free < one:
        yield DISK_FULL.at(str(root.path), found)
    elif root.free < all_together - machine.checkpointed:
        yield DISK_LOW.at(str(root.path), f"{found}, {kept} of them kept: {all_together / _GB:.1f} GB")


def sqlite(files: Files, machine: Machine) -> Iterator[Finding]:
    for where, directory in machine.sqlite.items():
        if directory.filesystem.startswith(_NETWORK):
            yield SQLITE_ON_NETWORK.at(where, f"{directory.path} is on {directory.filesystem}")


def model(files: Files, machine: Machine) -> Iterator[Finding]:
    found, where = machine.model, files.in_both("model.model_path")
    if found is None:
        return
    if not found.exists:
        yield MODEL_MISSING.at(where, f"no directory {found.path} that can be read")
        return
    if found.missing:
        yield MODEL_INCOMPLETE.at(where, f"{found.path} has no {', no '.join(found.missing)}")
    given = files.explorer.given("model.custom_chat_template") or files.explorer.given("model.chat_template_path")
    if not found.has_chat_template and not given:
        yield NO_CHAT_TEMPLATE.at(where, str(found.path))


def store(files: Files, machine: Machine) -> Iterator[Finding]:
    directory = machine.store
    if directory is not None and (not directory.exists or directory.error):
        found = f"{directory.path}: {directory.error or 'no such directory'}"
        yield STORE_NOT_WRITABLE.at(files.in_sidecar("store.url"), found)
    elif directory is not None and directory.filesystem.startswith(_NETWORK):
        found = f"{directory.path} is on {directory.filesystem}"
        yield STORE_ON_NETWORK.at(files.in_sidecar("store.url"), found)
    if machine.locked_out is not None:
        yield LOCKED_OUT.at(files.in_sidecar("store.encryption_key"), machine.locked_out)


def keys(files: Files, machine: Machine) -> Iterator[Finding]:
    file, where = machine.keys, files.in_sidecar("access.keys_file")
    if file is None:
        return
    if file.error is not None:
        yield KEYS_FILE.at(where, file.error)
        return
    yield from no_agent_gets_in(where, file.roles)
    if file.writable:
        yield KEYS_FILE_OPEN.at(where, f"{file.path}: any user of this machine may write it")


def files_open(files: Files, machine: Machine) -> Iterator[Finding]:
    settings = files.sidecar
    found = open_files.shortage(settings.limits, settings.proxy.workers, machine.open_files)
    if found is not None:
        yield FEW_OPEN_FILES.at(files.in_sidecar("limits"), found)


def versions(files: Files, machine: Machine) -> Iterator[Finding]:
    installed = machine.packages
    if "trinity-rft" not in installed:
        return  # Trinity runs elsewhere
    if not (3, 10) <= machine.python <= (3, 12):
        yield PYTHON.at("python", ".".join(map(str, machine.python)))
    for name, fits in (("trinity-rft", _is("0.6.0")), ("verl", _is("0.7.1")), ("vllm", _vllm)):
        if name in installed and not fits(installed[name]):
            yield UNTRIED_VERSION.at(f"python: {name}", installed[name])
    if "verl" in installed and _numbers(installed.get("trl", "0")) >= (1,):
        yield TRL_BESIDE_VERL.at("python: trl", installed["trl"])
    if "greenlet" not in installed:
        yield NO_GREENLET.at("python: greenlet", "not installed")
    url = files.trainer.buffer_url
    if url is not None and url.drivername.startswith("postgresql") and "asyncpg" not in installed:
        yield NO_DRIVER.at("python: asyncpg", "not installed")


def markers(files: Files, machine: Machine) -> Iterator[Finding]:
    for marker in (machine.version, machine.resume):
        if marker is None:
            continue
        if marker.step is None:
            yield MARKER_UNREADABLE.at(str(marker.path), "no number")
        elif marker.step > 0 and not _usable(marker, resume=marker is machine.resume):
            lacks = "is not there" if not marker.there else "has no .full_checkpoint"
            yield MARKER_ASTRAY.at(str(marker.path), f"{marker.step}, but global_step_{marker.step} {lacks}")


def _usable(marker: Marker, resume: bool) -> bool:
    return marker.there and (marker.full or not resume)


def _is(wanted: str) -> Callable[[str], bool]:
    return lambda found: _numbers(found)[:3] == _numbers(wanted)


def _vllm(found: str) -> bool:
    numbers = _numbers(found)[:3]
    return (0, 19, 1) <= numbers <= (0, 23, 0) or numbers == (0, 28, 0)


def _numbers(version: str) -> tuple[int, ...]:
    """The release of a version as numbers: 0.28.0+cpu is (0, 28, 0)."""
    release = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, release[0].split("."))) if release else ()
