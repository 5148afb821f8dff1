"""Overlays, variables and their errors; and the files and overlays that the project ships."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from slipstream.embedded.config import load_config
from slipstream.errors import ConfigError
from slipstream.trinity.document import load_document

ROOT = Path(__file__).parents[2]
OVERLAYS = sorted((ROOT / "overlays").glob("*.yaml"))


@pytest.fixture
def variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODEL_PATH", "/models/policy")
    monkeypatch.setenv("CHECKPOINT_ROOT_DIR", "/checkpoints")
    monkeypatch.setenv("BUFFER_URL", "postgresql://db/buffer")


def file(folder: Path, text: str, name: str = "explorer.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_overlays_are_merged_key_by_key_and_the_later_one_wins(tmp_path: Path) -> None:
    base = file(tmp_path, "a: {b: 1, c: 2}\nlist: [1, 2]\nname: base\ncopy: ${a.c}")
    one = file(tmp_path, "a: {c: 3}\nlist: [9]\nname: one", "one.yaml")
    two = file(tmp_path, "name: two", "two.yaml")
    assert load_document(base, [one, two]) == {"a": {"b": 1, "c": 3}, "list": [9], "name": "two", "copy": 3}
    assert load_document(base, [two, one])["name"] == "one"


def test_a_missing_variable_is_named_with_its_key_and_the_file_that_asks_for_it(tmp_path: Path) -> None:
    base = file(tmp_path, "a: {b: '${oc.env:NOT_SET_1}'}\nc: '${oc.env:NOT_SET_2}'\nd: 1")
    overlay = file(tmp_path, "c: here\nd: {e: [1, '${oc.env:NOT_SET_3}']}", "overlay.yaml")
    with pytest.raises(ConfigError) as refused:
        load_document(base, [overlay])
    assert refused.value.problems == (
        f"{base}: a.b: expected the environment variable NOT_SET_1, which is not set",
        f"{overlay}: d.e[1]: expected the environment variable NOT_SET_3, which is not set",
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: ${b}", "a: Interpolation key 'b' not found"),
        ("a: ${a}", "a: Recursive interpolation detected"),
        ("a: ${nothing.known:1}", "a: Unsupported interpolation type nothing.known"),
        ("a: '${'", "no viable alternative"),
        ("a: '???'", "a: Missing mandatory value"),
        ("a: 1\na: 2", "found duplicate key a"),
        ("a: [unclosed", "expected"),
        ("- a", "expected a mapping of fields, found a list"),
    ],
)
def test_a_bad_overlay_is_named(tmp_path: Path, text: str, message: str) -> None:
    overlay = file(tmp_path, text, "overlay.yaml")
    with pytest.raises(ConfigError) as refused:
        load_document(file(tmp_path, "mode: serve"), [overlay])
    assert str(overlay) in str(refused.value)
    assert message in str(refused.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.yaml: cannot be read"):
        load_document(file(tmp_path, "a: 1"), [tmp_path / "absent.yaml"])


@pytest.mark.usefixtures("variables")
def test_explorer_and_trainer_agree_under_every_overlay() -> None:
    for overlays in ([], *([overlay] for overlay in OVERLAYS), OVERLAYS):
        explorer, trainer = (load_document(ROOT / name, overlays) for name in ("explorer.yaml", "trainer.yaml"))
        for field in ("project", "group", "name", "checkpoint_root_dir"):
            assert explorer[field] == trainer[field]
        for field, value in explorer["model"].items():
            assert trainer["model"][field] == value
        assert explorer["algorithm"].items() <= trainer["algorithm"].items()
        buffer = explorer["buffer"]["trainer_input"]["experience_buffer"]
        assert buffer.items() <= trainer["buffer"]["trainer_input"]["experience_buffer"].items()
        batch = trainer["buffer"]["train_batch_size"]
        assert explorer["buffer"]["train_batch_size"] == batch
        assert batch % trainer["algorithm"]["repeat_times"] == 0
        assert batch % trainer["cluster"]["gpu_per_node"] == 0


@pytest.mark.usefixtures("variables")
@pytest.mark.parametrize("overlay", OVERLAYS, ids=lambda overlay: overlay.stem)
def test_the_embedded_engine_reads_the_files_under_each_overlay(overlay: Path) -> None:
    for name, mode in (("explorer.yaml", "serve"), ("trainer.yaml", "train")):
        load_config(ROOT / name, mode, [ROOT / "overlays" / "small-cpu.yaml", overlay])  # type: ignore[arg-type]


@pytest.mark.usefixtures("variables")
def test_one_engine_may_reload_and_fits_its_gpu() -> None:
    one = load_document(ROOT / "explorer.yaml", [ROOT / "overlays/one-gpu.yaml"])
    explorer, engine = one["explorer"], one["explorer"]["rollout_model"]
    assert engine["engine_num"] > explorer["min_running_model_num"]
    assert engine["engine_num"] * engine["tensor_parallel_size"] == one["cluster"]["gpu_per_node"] == 1


def test_only_paths_and_addresses_come_from_variables_and_the_page_names_them() -> None:
    page = (ROOT / "docs/trinity.md").read_text()
    texts = [path.read_text() for path in (ROOT / "explorer.yaml", ROOT / "trainer.yaml", *OVERLAYS)]
    used = set(re.findall(r"\$\{oc\.env:(\w+)", "\n".join(texts)))
    assert used == set(re.findall(r"^\| `([A-Z_]+)` \|", page, re.MULTILINE))


def test_every_overlay_is_documented_and_no_other() -> None:
    page = (ROOT / "docs/trinity.md").read_text()
    documented = re.findall(r"^\| `overlays/([\w-]+)\.yaml` \|", page, re.MULTILINE)
    assert sorted(documented) == [overlay.stem for overlay in OVERLAYS]
