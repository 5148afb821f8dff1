"""Data sets through the command and the API, beside a sidecar that goes on."""

from __future__ import annotations

import json
from pathlib import Path

import yaml
from checkpoint_job import CheckpointJob
from commands import slipstream
from loops import RunLoop
from serving import until
from stores import ON_BOTH_STORES

from slipstream.datasets.claim import claimed

DATA = {"dataset": {"name": "support", "sources": [{"production": {}}, {"policy": {"best_of_group": 1}}]}}


@ON_BOTH_STORES
async def test_what_a_sidecar_captured_is_exported_listed_and_erased_beside_it(
    run_loop: RunLoop, store_url: str, tmp_path: Path
) -> None:
    directory, job = tmp_path / "sets", CheckpointJob(tmp_path / "job")
    config, data = tmp_path / "sidecar.yaml", tmp_path / "data.yaml"
    config.write_text(yaml.safe_dump({"store": {"url": store_url}, "datasets": {"directory": str(directory)}}))
    data.write_text(yaml.safe_dump(DATA))
    command = ("--config", str(config))
    sections = {"datasets": {"directory": str(directory)}, "serving": {"checkpoints": str(job.path)}}
    async with run_loop(**sections) as loop:
        for name in ("one", "two"):
            await loop.chat(f"hello {name}", {"x-slipstream-session-id": f"session-{name}"})
        await until(lambda: loop.ready(2))

        code, out, _ = await slipstream("dataset", "export", "--data", str(data), *command)
        assert (code, out.splitlines()[0]) == (0, f"{directory / 'support'}: 4 rows to train on, 0 held out")
        code, _, error = await slipstream("dataset", "export", "--data", str(data), *command)
        assert code == 2
        assert "support: expected a new name" in error
        code, out, _ = await slipstream("dataset", "list", *command)
        assert "support" in out
        code, out, _ = await slipstream("dataset", "card", "support", *command)
        assert "| production | 2 |" in out

        job.publish(1, parent=0, dataset={"name": "support", "digest": "d", "kind": "sft", "rows": 4})
        job.publish(2, parent=1)

        async def trained() -> bool:
            [made] = (await loop.client.get("/datasets")).json()["datasets"]
            return bool(made["versions"] == [1, 2])

        await until(trained)
        shown = (await loop.client.get("/datasets/support")).json()
        assert shown["manifest"]["counts"]["sources"] == {"policy": 2, "production": 2}
        assert shown["card"].startswith("---\n")
        version = (await loop.client.get("/versions/1")).json()
        assert version["trained_on"]["dataset"] == {"name": "support", "digest": "d", "kind": "sft", "rows": 4}
        (directory / "broken").mkdir()
        (directory / "broken" / "manifest.json").write_text('{"version": 1}')
        [made] = (listed := (await loop.client.get("/datasets")).json())["datasets"]
        [broken] = listed["unreadable"]
        assert (made["name"], broken["name"]) == ("support", "broken")
        assert "name: " in broken["problem"]
        refused = await loop.client.get("/datasets/broken")
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "dataset_unreadable")
        (directory / "broken" / "manifest.json").unlink()
        missing = await loop.client.get("/datasets/none")
        assert (missing.status_code, missing.json()["error"]["code"]) == (404, "not_found")

        erased = await loop.client.delete("/data", params={"session_id": "session-one"})
        assert erased.json()["datasets"] == [{"name": "support", "rows": 2, "versions": [1, 2]}]
        lines = (directory / "support" / "train.jsonl").read_text().splitlines()
        asked = [json.loads(line)["prompt"][0]["content"] for line in lines]
        assert asked == ["hello two", "hello two"]
        again = await loop.client.delete("/data", params={"session_id": "session-one"})
        assert again.json()["datasets"] == []
        with claimed(directory / "support"):  # an export is about to replace it
            later = (await loop.client.delete("/data", params={"session_id": "session-two"})).json()
            assert later["datasets"] == [{"name": "support", "rows": 0, "versions": [1, 2]}]
            assert later["pending"]["datasets"] == 1
            code, _, error = await slipstream("train", "--config", str(data), "--directory", str(directory))
            assert code == 2
            assert "dataset.name: " in error
            assert "is being replaced, and rows of it are to be deleted" in error
        later = (await loop.client.delete("/data", params={"session_id": "session-two"})).json()
        assert later["datasets"] == [{"name": "support", "rows": 2, "versions": [1, 2]}]

        code, out, _ = await slipstream("dataset", "erase", "support", *command)
        assert (code, (await loop.client.get("/datasets")).json()["datasets"]) == (0, [])
        code, _, error = await slipstream("dataset", "card", "support", *command)
        assert (code, "expected a data set" in error) == (2, True)


async def test_nothing_of_a_held_out_session_is_selected(run_loop: RunLoop) -> None:
    async with run_loop(datasets={"held_out": 0.5}) as loop:
        for number in range(12):
            await loop.chat("hi", {"x-slipstream-session-id": f"session-{number}", "x-slipstream-mark": "yes"})

        async def decided() -> bool:
            found = (await loop.status())["selection"]
            return (
                sum(count for reasons in found.values() for why, count in reasons.items() if why != "undecided") == 12
            )

        await until(decided)
        selection = (await loop.status())["selection"]
    assert 0 < selection["not_selected"]["held_out"] < 12
    assert "held_out" not in selection["selected"]
