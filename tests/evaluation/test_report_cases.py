"""Where the cases of a report come from: a data set's held-out split, the live store, and benchmarks."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from commands import slipstream
from dataset_rows import call, dataset, provenance
from loops import RunLoop
from prometheus_client import CollectorRegistry
from serving import until
from sqlalchemy import update
from test_reports import means, providing, read

from slipstream.datasets.folder import new_folder
from slipstream.datasets.row import Kind, Row
from slipstream.evaluation.cases import CasesError
from slipstream.evaluation.reports.cases import cases_of_file, cases_of_rows
from slipstream.evaluation.reports.scorers import ByReference, Measurer
from slipstream.isolation import Isolation
from slipstream.metrics import Metrics
from slipstream.store.database import Database
from slipstream.store.tables.capture import TaskRow

TOOL: dict[str, Any] = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
}


def row(number: int, answer: dict[str, Any], *, tools: bool = False) -> Row:
    prompt = [{"role": "user", "content": f"question {number}"}]
    return Row(Kind.SFT, prompt, answer, provenance(number), (TOOL,) if tools else ())


async def test_the_held_out_split_of_a_data_set_is_asked(tmp_path: Path) -> None:
    (tmp_path / "sidecar.yaml").write_text("{}")
    with new_folder(tmp_path, dataset()) as folder:
        folder.add("train", row(9, {"role": "assistant", "content": "secret"}))
        for number in range(4):
            folder.add("held_out", row(number, {"role": "assistant", "content": f"answer {number}"}))
        for number in range(4, 8):
            arguments = {"city": f"Rome {number}"}
            answer = {"role": "assistant", "tool_calls": [call("c", "weather", arguments)]}
            folder.add("held_out", row(number, answer, tools=True))
        folder.publish({"slipstream": "0.1.0"})

    def answers(said: str) -> Any:
        number = int(said.rpartition(" ")[2])
        return f"Answer {number}" if number < 4 else [("weather", {"city": f"Rome {number if number < 6 else 0}"})]

    async with providing(model=answers) as (provider, url):
        code, out, err = await slipstream(
            "evaluate", "--config", str(tmp_path / "sidecar.yaml"), "--held-out", str(tmp_path / "support"),
            "--model", f"{url}#model", "--metrics", "end_to_end,argument_accuracy", "--report", str(tmp_path / "out"),
        )  # fmt: skip
        assert code == 0, out + err
        code, _, err = await slipstream(
            "evaluate", "--config", str(tmp_path / "sidecar.yaml"), "--held-out", str(tmp_path / "none"),
            "--model", f"{url}#model",
        )  # fmt: skip
    assert code == 2
    assert f"none: expected a data set in {tmp_path}" in err
    report = read(tmp_path / "out")
    assert means(report, f"{url}#model") == {"end_to_end": 0.75, "argument_accuracy": 0.5}
    assert "secret" not in str(provider.asked)
    assert len({case["session"] for case in report["cases"]}) == 4, "two rows to a session"
    assert report["settings"]["source"] == "support"


def test_an_answer_that_a_user_corrected_is_no_right_one() -> None:
    right = row(1, {"role": "assistant", "content": "Oslo"})
    corrected = replace(right, kind=Kind.CORRECTION, correction="No, it is Oslo.", answer={"content": "Rome"})
    [case] = cases_of_rows("support", [(right, "s"), (corrected, "t")]).cases
    assert case.case.metadata == {"reference": "Oslo"}
    with pytest.raises(CasesError, match=r"support: expected rows with a right answer .*, found none"):
        cases_of_rows("support", [(corrected, "t")])


async def test_an_answer_that_was_refused_has_the_lowest_value_where_the_case_gives_a_basis_for_one(
    tmp_path: Path,
) -> None:
    lines = [{"id": "one", "prompt": "one", "reference": "Yes"}, {"id": "two", "prompt": "two"}]
    (tmp_path / "cases.jsonl").write_text("\n".join(map(json.dumps, lines)))
    tally, isolation = Metrics(CollectorRegistry()), Isolation()
    measurer = Measurer(ByReference(tally, isolation), ["end_to_end"], tally, isolation)
    values = [await measurer.failed(case) for case in cases_of_file(tmp_path / "cases.jsonl").cases]
    await measurer.aclose()
    isolation.close()
    assert [each["end_to_end"] for each in values] == [0.0, None]
    assert "format" not in values[0], "it is not measured"


async def test_held_out_sessions_of_the_store_are_asked_while_the_sidecar_runs(
    run_loop: RunLoop, tmp_path: Path, store_url: str
) -> None:
    rewards = {"calculators": ["exact_match"]}
    async with (
        run_loop(rewards=rewards, selection={"explicit_mark": {}}, capture={"task_idle": "100ms"}) as loop,
        providing(model=lambda said: "echo: question 1") as (provider, url),
    ):
        for number in range(4):
            reference = json.dumps({"reference": f"echo: question {number}"})
            task = {"x-slipstream-task-id": f"t{number}", "x-slipstream-session-id": f"s{number}"}
            if number:
                await loop.chat(f"before {number}", task)
            await loop.chat(f"question {number}", {**task, "x-slipstream-metadata": reference})

        async def decided() -> bool:
            tasks = [await loop.task(f"t{number}") for number in (1, 2, 3)]
            if not all(task is not None and len(task["calls"]) == 2 for task in tasks):
                return False
            status = await loop.status()
            return bool(sum(status["selection"]["not_selected"].values()) == 4)

        await until(decided)
        config = tmp_path / "sidecar.yaml"
        config.write_text(f"store: {{url: '{store_url}'}}\nrewards: {{calculators: [exact_match]}}\n")
        words = ("evaluate", "--config", str(config), "--held-out", "live", "--metrics", "end_to_end")
        code, out, err = await slipstream(
            *words, "--model", "production", "--model", f"{url}#model", "--report", str(tmp_path / "out"),
        )  # fmt: skip
        assert code == 0, out + err
        report = read(tmp_path / "out")
        assert means(report, "production")["end_to_end"] == 1, "by the answers that users got"
        assert means(report, f"{url}#model")["end_to_end"] == 0.25
        assert sorted(chat["messages"][-1]["content"] for chat in provider.asked) == [
            f"question {number}" for number in range(4)
        ], "the last call of each task, which its reference describes"
        assert "question" not in json.dumps(report), "the report quotes nothing that was said"
        assert not {f"s{number}" for number in range(4)} & {case["session"] for case in report["cases"]}
        assert (await slipstream(*words, "--sessions", "2", "--model", "production"))[0] == 0
        plain = tmp_path / "plain.yaml"
        plain.write_text(f"store: {{url: '{store_url}'}}\n")
        here = tmp_path / "by reference"
        await slipstream(*words, "--config", str(plain), "--model", "production", "--report", str(here))
        assert read(here)["models"][0]["answers"] == {"scored": 4}, "by the reference, without calculators"
        database = Database(store_url)
        async with database.write() as session:  # another store would have another call by this number
            of = TaskRow.session_id.endswith("s1")
            await session.execute(update(TaskRow).where(of).values(meta={"reference": "echo: question 5"}))
        await database.close()
        await slipstream(*words, "--model", "production", "--report", str(tmp_path / "later"))
        both = [{case["key"] for case in read(tmp_path / name)["cases"]} for name in ("out", "later")]
        assert [len(both[0]), len(both[1]), len(both[0] & both[1])] == [4, 4, 3], "what differs is not compared"
    (tmp_path / "empty.yaml").write_text(f"store: {{url: 'sqlite+aiosqlite:///{tmp_path}/none.db'}}\n")
    code, _, err = await slipstream(
        "evaluate", "--config", str(tmp_path / "empty.yaml"), "--held-out", "live", "--model", "production"
    )
    assert code == 2
    assert "store.url: expected a store, found no file" in err


FUNCTION: dict[str, Any] = {
    "name": "geometry.area",
    "description": "The area of a triangle.",
    "parameters": {
        "type": "dict",
        "properties": {
            "base": {"type": "integer", "description": "The base."},
            "height": {"type": "float", "description": "The height."},
            "unit": {"type": "string", "description": "The unit."},
        },
        "required": ["base", "height"],
    },
}


def bfcl_folder(folder: Path) -> Path:
    """A folder of bfcl-eval with a few cases, in the package's form."""
    cases = {
        "simple_python": [{"geometry.area": {"base": [10], "height": [5.0], "unit": ["cm", ""]}}],
        "live_irrelevance": None,
        "irrelevance": None,
    }
    (folder / "possible_answer").mkdir(parents=True)
    for category, truth in cases.items():
        lines = [
            {
                "id": f"{category}_{number}",
                "question": [[{"role": "user", "content": f"{category} {number}"}]],
                "function": [FUNCTION],
            }
            for number in range(4)
        ]
        (folder / f"BFCL_v4_{category}.json").write_text("".join(json.dumps(line) + "\n" for line in lines))
        if truth is not None:
            answers = [{"id": line["id"], "ground_truth": truth} for line in lines]
            path = folder / "possible_answer" / f"BFCL_v4_{category}.json"
            path.write_text("".join(json.dumps(line) + "\n" for line in answers))
    return folder


async def test_bfcl_is_asked_and_scored_by_its_own_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BFCL_DATA", str(bfcl_folder(tmp_path / "bfcl_eval" / "data").parents[1]))
    answers = {
        "simple_python 0": [("geometry_area", {"base": 10, "height": 5})],
        "simple_python 1": [("geometry_area", {"base": 10.0, "height": 5})],  # an integer is wanted
        "simple_python 2": [("geometry_area", {"base": 10, "height": 5, "unit": "C.M."})],
        "simple_python 3": [("geometry_area", {"base": 10})],
        "irrelevance 0": [("geometry_area", {"base": 10, "height": 5})],
    }
    async with providing(model=lambda said: answers.get(said, "no tool helps")) as (provider, url):
        words = ("evaluate", "--model", f"{url}#model", "--metrics", "end_to_end,timing", "--report", str(tmp_path))
        code, out, err = await slipstream(*words, "--benchmark", "bfcl:simple_python,irrelevance")
        assert code == 0, out + err
        report = read(tmp_path)
        assert {case["case"]: case["values"][f"{url}#model"]["end_to_end"] for case in report["cases"]} == {
            "simple_python_0": 1, "simple_python_1": 0, "simple_python_2": 1, "simple_python_3": 0,
            "irrelevance_0": 0, "irrelevance_1": 1, "irrelevance_2": 1, "irrelevance_3": 1,
        }  # fmt: skip
        assert means(report, f"{url}#model")["timing_precision"] == 0.875
        [tool] = provider.asked[0]["tools"]
        assert tool["function"]["name"] == "geometry_area"
        assert tool["function"]["parameters"]["type"] == "object"
        assert tool["function"]["parameters"]["properties"]["height"]["type"] == "number"
        code, _, err = await slipstream(*words, "--benchmark", "bfcl:simple_java")
        assert code == 2
        assert "expected categories of simple_python, multiple" in err
        code, _, err = await slipstream(*words, "--benchmark", "bfcl:multiple")
        assert "expected a file BFCL_v4_multiple.json" in err
        monkeypatch.setenv("BFCL_DATA", str(tmp_path / "nowhere"))
        code, _, err = await slipstream(*words, "--benchmark", "bfcl")
        assert "--benchmark bfcl: expected the package bfcl-eval, or BFCL_DATA" in err


@pytest.mark.slow  # the tasks' package takes seconds to load, here and in the scorers' process
async def test_tasks_of_reasoning_gym_are_scored_by_their_own_scorer(tmp_path: Path) -> None:
    gym = pytest.importorskip("reasoning_gym")
    tasks = {entry["question"]: entry for entry in gym.create_dataset("basic_arithmetic", size=12, seed=3)}

    def answers(said: str) -> str:
        number = list(tasks).index(said)
        right = tasks[said]["answer"]
        return (f"I think <answer> {right} </answer>", right, f"<answer>{right} or so</answer>", "none")[number % 4]

    async with providing(model=answers) as (provider, url):
        words = ("evaluate", "--model", f"{url}#model", "--metrics", "end_to_end", "--report", str(tmp_path))
        code, out, err = await slipstream(*words, "--benchmark", "reasoning-gym:basic_arithmetic:12:3")
        assert code == 0, out + err
        report = read(tmp_path)
        found = [case["values"][f"{url}#model"]["end_to_end"] for case in report["cases"]]
        dataset_of = gym.create_dataset("basic_arithmetic", size=12, seed=3)
        told = [
            answer.replace("<answer>", "").replace("</answer>", "").replace("I think", "").strip()
            for answer in map(answers, tasks)
        ]
        expected = [dataset_of.score_answer(one, entry) for one, entry in zip(told, tasks.values(), strict=True)]
        assert found == pytest.approx(expected)
        assert {0.0, 1.0} < set(found), "right, partly right, and wrong"
        assert len(provider.asked) == 12
        code, _, err = await slipstream(*words, "--benchmark", "reasoning-gym:none")
        assert code == 2
        assert "there is no task 'none'" in err
