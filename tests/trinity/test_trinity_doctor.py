"""The doctor knows Trinity as it is: its defaults and algorithms, what its Explorer answers and what it writes."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import yaml
from real_sidecar import StartSidecar
from real_trinity import Installation, RealTrinity
from serving import until

from slipstream.doctor.algorithms import KNOWN, WITH_REFERENCE
from slipstream.doctor.fields import FIELDS
from slipstream.doctor.files import Document, Files
from slipstream.doctor.rows import count_rows
from slipstream.doctor.services import look_at_services
from slipstream.settings.sidecar import Settings


def test_the_defaults_and_algorithms_are_trinitys(installation: Installation) -> None:
    defaults, references = installation.run("tell_defaults", given=json.dumps(list(FIELDS)))[0]
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
