"""The doctor knows Trinity as it is: its defaults and algorithms, what its Explorer answers and what it writes."""

from __future__ import annotations

import asyncio
import json
import subprocess
from typing import Any

import yaml
from real_sidecar import StartSidecar
from real_trinity import PYTHON, RealTrinity
from serving import until

from slipstream.doctor.algorithms import KNOWN, WITH_REFERENCE
from slipstream.doctor.fields import FIELDS
from slipstream.doctor.files import Document, Files
from slipstream.doctor.rows import count_rows
from slipstream.doctor.services import look_at_services
from slipstream.settings.sidecar import Settings

_TOLD = """
import json, sys
from omegaconf import OmegaConf
from trinity.algorithm import ALGORITHM_TYPE
from trinity.common.config import Config, ExperienceBufferConfig
schema = OmegaConf.structured(Config)
schema.buffer.trainer_input.experience_buffer = OmegaConf.structured(ExperienceBufferConfig)
values = {key: OmegaConf.select(schema, key) for key in json.load(sys.stdin)}
names = {name: ALGORITHM_TYPE.get(name).use_reference for name in ALGORITHM_TYPE._default_mapping}
print("\\n" + json.dumps([{key: getattr(value, "value", value) for key, value in values.items()}, names]))
"""


def test_the_defaults_and_algorithms_are_trinitys() -> None:
    run = subprocess.run(
        [str(PYTHON), "-c", _TOLD],
        input=json.dumps(list(FIELDS)), capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    defaults, references = json.loads(run.stdout.splitlines()[-1])
    named_by_the_validator = {"buffer.trainer_input.experience_buffer.name": "experience_buffer"}
    assert {**defaults, **named_by_the_validator} == {key: field.default for key, field in FIELDS.items()}
    assert set(references) == KNOWN
    without_kl = {"dpo"}  # refused in serve mode in any case
    assert {name for name, reference in references.items() if reference} - without_kl == WITH_REFERENCE


async def test_what_an_explorer_answers_and_writes_is_read(trinity: RealTrinity, start_sidecar: StartSidecar) -> None:
    tree: dict[str, Any] = yaml.safe_load((trinity.log.parent / "explorer.yaml").read_text())
    files = Files(
        sidecar_name="sidecar.yaml",
        sidecar=Settings.model_validate({"explorer": {"base_url": trinity.url}}),
        explorer=Document("explorer.yaml", tree),
        trainer=Document("trainer.yaml", tree),
    )
    async with start_sidecar(trinity) as sidecar:
        await sidecar.group("t", ready=2)
        await sidecar.commit()
        seen = await asyncio.to_thread(look_at_services, files, ())
        assert seen.metrics.error is None
        assert seen.metrics.clock is not None
        assert abs(seen.metrics.clock) < 5
        assert seen.engine_versions == (0,)
        assert [model["id"] for model in seen.models.objects("data")] == ["policy"]
        assert seen.rows is not None
        assert (seen.rows.total, seen.rows.waiting, seen.rows.waiting_long) == (2, 2, 0)

        async def old() -> bool:  # rows are dated to the second
            rows = await asyncio.to_thread(count_rows, files.trainer.buffer_url, files.trainer.buffer_table, 0)
            return rows is not None and rows.waiting_long == 2

        await until(old)
