"""The shipped files, with mistakes planted into them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml
from planted import ROOT, Mistake, Plant

from slipstream.doctor.files import Document, Files
from slipstream.settings.source import load_settings
from slipstream.trinity.document import load_document


@pytest.fixture
def deployment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of a deployment's machine: an empty `runs` to share, and a `model` that is whole."""
    model = tmp_path / "model"
    model.mkdir()
    for name in ("config.json", "tokenizer.json"):
        (model / name).write_text("{}")
    (model / "tokenizer_config.json").write_text('{"chat_template": "{{ messages }}"}')
    (model / "model.safetensors").write_bytes(bytes(1000))
    (tmp_path / "runs").mkdir()
    for name in [name for name in os.environ if name.startswith("SLIPSTREAM_")]:
        monkeypatch.delenv(name)
    for name, value in {
        "MODEL_PATH": str(model),
        "CHECKPOINT_ROOT_DIR": str(tmp_path / "runs"),
        "BUFFER_URL": "postgresql://trinity:secret@db/trinity",
    }.items():
        monkeypatch.setenv(name, value)
    return tmp_path


@pytest.fixture
def plant(deployment: Path) -> Plant:
    """The shipped files with a mistake: `plant(Mistake(...), overlay, ...)`; without one, as they are."""

    def build(mistake: Mistake = Mistake(), *overlays: Path) -> Files:  # noqa: B008 - frozen
        def document(name: str, own: dict) -> Document:
            layers = [*overlays]
            for number, layer in enumerate((mistake.both, own)):
                path = deployment / f"{name}-{number}.yaml"
                path.write_text(yaml.safe_dump(layer))
                layers.append(path)
            return Document(name, load_document(ROOT / name, layers))

        store = {"SLIPSTREAM_STORE__URL": f"sqlite+aiosqlite:///{deployment}/store.db"}
        return Files(
            sidecar_name="sidecar.yaml",
            sidecar=load_settings(ROOT / "sidecar.yaml", {**store, **mistake.sidecar}),
            explorer=document("explorer.yaml", mistake.explorer),
            trainer=document("trainer.yaml", mistake.trainer),
        )

    return build
