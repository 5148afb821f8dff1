"""TRL's conversational formats (huggingface.co/docs/trl/dataset_formats): prompt and completion, preference, KTO; and
the prompt with `privileged_context` of its SDPOTrainer, for corrections.

Tools are JSON text, which TRL's trainers read, and the arguments of calls are objects, as chat templates want them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from slipstream.datasets.formats.columns import Column
from slipstream.datasets.formats.said import Said
from slipstream.datasets.formats.templates import from_templated, templated

SFT = {"prompt": Column.JSONS, "completion": Column.JSONS, "tools": Column.TEXT}
PREFERENCE = {"prompt": Column.JSONS, "chosen": Column.JSONS, "rejected": Column.JSONS, "tools": Column.TEXT}
KTO = {"prompt": Column.JSONS, "completion": Column.JSONS, "label": Column.FLAG, "tools": Column.TEXT}

CORRECTION = {
    "prompt": Column.JSONS,
    "completion": Column.JSONS,
    "privileged_context": Column.TEXT,
    "tools": Column.TEXT,
}


def sft(said: Said) -> dict[str, Any]:
    return {"prompt": templated(said.prompt), "completion": templated([said.answer]), **_tools(said)}


def preference(said: Said) -> dict[str, Any]:
    assert said.rejected is not None
    return {
        "prompt": templated(said.prompt),
        "chosen": templated([said.answer]),
        "rejected": templated([said.rejected]),
        **_tools(said),
    }


def kto(said: Said) -> dict[str, Any]:
    line = sft(said)
    return {"prompt": line.pop("prompt"), "completion": line.pop("completion"), "label": said.good, **line}


def correction(said: Said) -> dict[str, Any]:
    """`completion` is the answer that was corrected. TRL's SDPOTrainer does not read it."""
    line = sft(said)
    given = {name: line.pop(name) for name in ("prompt", "completion")}
    return {**given, "privileged_context": said.correction, **line}


def from_sft(line: Mapping[str, Any]) -> Said:
    (answer,) = from_templated(line["completion"])
    return Said(from_templated(line["prompt"]), answer, _read_tools(line))


def from_preference(line: Mapping[str, Any]) -> Said:
    answer, rejected = from_templated([*line["chosen"], *line["rejected"]])
    return Said(from_templated(line["prompt"]), answer, _read_tools(line), rejected)


def from_kto(line: Mapping[str, Any]) -> Said:
    said = from_sft(line)
    return Said(said.prompt, said.answer, said.tools, good=bool(line["label"]))


def from_correction(line: Mapping[str, Any]) -> Said:
    said = from_sft(line)
    return Said(said.prompt, said.answer, said.tools, correction=str(line["privileged_context"]))


def _tools(said: Said) -> dict[str, str]:
    """Without tools there is no such key: an empty list makes some templates announce tools."""
    return {"tools": json.dumps(said.tools, ensure_ascii=False)} if said.tools else {}


def _read_tools(line: Mapping[str, Any]) -> list[dict[str, Any]]:
    return list(json.loads(line.get("tools") or "[]"))
