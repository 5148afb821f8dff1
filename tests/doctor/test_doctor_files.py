"""The doctor on the files alone: each planted mistake is found, under its one code; the shipped files are right."""

from __future__ import annotations

import copy
import math
import random
from typing import Any

import pytest
from planted import MISTAKES, ROOT, Mistake, Plant, algorithm, replays, scored, sidecar

from slipstream.doctor.catalogue import PROBLEMS
from slipstream.doctor.checks import agreement
from slipstream.doctor.examination import FILES, examine
from slipstream.doctor.fields import FIELDS
from slipstream.doctor.files import Document, Files


def codes(files: Files) -> list[str]:
    return [finding.code for finding in examine(files, offline=True)]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.code)
def test_a_planted_mistake_is_found_and_nothing_else(plant: Plant, mistake: Mistake) -> None:
    [found] = examine(plant(mistake), offline=True)
    assert found.code == mistake.code
    assert found.where.split(":")[0].split(" and ")[0] in ("explorer.yaml", "trainer.yaml", "sidecar.yaml")


def test_every_problem_that_files_can_have_is_planted() -> None:
    planted = {mistake.code for mistake in MISTAKES}
    assert len(planted) >= 25
    assert planted == {problem.code for problem in PROBLEMS if problem.code.startswith("files.")}


def test_the_shipped_files_are_right(plant: Plant) -> None:
    assert codes(plant()) == []


OVERLAYS = {
    "grpo.yaml": [],
    "mix.yaml": ["files.algorithm_untried"],
    "multi-step-grpo.yaml": [],
    "one-gpu.yaml": ["files.chats_fail_in_reload"],  # true, and all that one GPU can do
    "postgresql.yaml": [],
    "ppo.yaml": [],
    "quickstart.yaml": [],
    "qwen3.yaml": [],
    "small-cpu.yaml": [],
}


OF_DATA_SETS = {"dpo.yaml", "kto.yaml", "sdpo.yaml", "sft.yaml"}
"""Overlays of `slipstream train`, which reads no Explorer's file."""


@pytest.mark.parametrize("overlay", sorted({path.name for path in (ROOT / "overlays").glob("*.yaml")} - OF_DATA_SETS))
def test_so_are_they_with_each_overlay(plant: Plant, overlay: str) -> None:
    assert codes(plant(Mistake(), ROOT / "overlays" / overlay)) == OVERLAYS[overlay]


def test_single_runs_are_right_where_nothing_is_compared(plant: Plant) -> None:
    assert codes(plant(Mistake(both=algorithm("ppo"), sidecar=sidecar("runs", repeat_time=1)))) == []


def test_a_password_in_a_database_url_is_not_shown(plant: Plant) -> None:
    elsewhere = {"buffer": {"trainer_input": {"experience_buffer": {"path": "postgresql://me:hunter2@db/x"}}}}
    [found] = examine(plant(Mistake(trainer=elsewhere)), offline=True)
    assert "hunter2" not in str(found)
    assert "postgresql://me:***@db/x" in found.found


@pytest.mark.parametrize("path", ["me:hunter2@db/x", "postgresql://db/x?user=me&password=hunter2"])
def test_nor_one_in_what_is_none_or_in_its_query(plant: Plant, path: str) -> None:
    elsewhere = {"buffer": {"trainer_input": {"experience_buffer": {"path": path}}}}
    found = examine(plant(Mistake(trainer=elsewhere)), offline=True)
    assert found
    assert "hunter2" not in str(found)


RIGHT = {
    "OmegaConf's words for true": Mistake(explorer={"explorer": {"rollout_model": {"enable_history": "y"}}}),
    "a slash at the end": Mistake(both={"checkpoint_root_dir": "/runs"}, trainer={"checkpoint_root_dir": "/runs/"}),
    "localhost": Mistake(
        explorer={"explorer": {"listen_address": "localhost"}},
        sidecar=sidecar("explorer", base_url="http://127.0.0.1:8010/"),
    ),
    "IPv6": Mistake(
        explorer={"explorer": {"listen_address": "::1"}}, sidecar=sidecar("explorer", base_url="http://[::1]:8010")
    ),
    "another database driver": Mistake(
        both={"buffer": {"trainer_input": {"experience_buffer": {"path": "postgresql+asyncpg://me@db/x?ssl=require"}}}}
    ),
    "a commit of a part of a batch": Mistake(sidecar=sidecar("commit", min_experiences=8, max_pending=16)),
    "a sequence over two GPUs": Mistake(
        trainer={"trainer": {"max_token_len_per_gpu": 4096, "ulysses_sequence_parallel_size": 2}}
    ),
    "a webhook on this machine that is allowed": Mistake(
        sidecar=replays("http://127.0.0.1:9000/replay", allow_private=["127.0.0.0/8"])
        | scored(url="http://localhost:9001/score", allow_private=True)
    ),
    "a webhook whose host is allowed": Mistake(sidecar=scored(url="http://10.0.0.9/score", allow_private=["10.0.0.9"])),
    "a judge on this machine": Mistake(
        sidecar=sidecar("rewards", calculators='[{judge: {base_url: "http://127.0.0.1:1/v1", model: m}}]')
    ),
    "a history by another host's name": Mistake(
        explorer={"explorer": {"db_url": "postgresql://me@localhost/trinity"}},
        sidecar=sidecar("explorer", history_url="postgresql+asyncpg://other@db:5432/trinity"),
    ),
    "keys in a file": Mistake(sidecar=sidecar("access", keys_file="/etc/slipstream/keys.yaml")),
    "counting samples": Mistake(trainer={"trainer": {"max_token_len_per_gpu": 4096, "use_dynamic_bsz": False}}),
    "engines of two whole servers": Mistake(
        both={"buffer": {"trainer_input": {"experience_buffer": {"path": "postgresql://me@db/x"}}}},
        explorer={"cluster": {"node_num": 4}, "explorer": {"rollout_model": {"tensor_parallel_size": 8}}},
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_written_otherwise_is_right_too(plant: Plant, name: str) -> None:
    assert examine(plant(RIGHT[name]), offline=True) == []


def test_no_file_makes_the_doctor_fail(plant: Plant) -> None:
    """Whatever stands in a file that OmegaConf can read."""
    choose = random.Random(7)
    odd = [None, "", "no", -1, 0, math.inf, True, [], {}, [1], {"a": 1}, "://", "a://b:c@d:e/f", "x" * 999]

    def spoiled(document: Document) -> Document:
        tree = copy.deepcopy(dict(document.tree))
        for key in choose.sample(sorted(FIELDS), 6):
            *parents, last = key.split(".")
            node: Any = tree
            for parent in parents:
                node = node.setdefault(parent, {}) if isinstance(node, dict) else None
            if isinstance(node, dict):
                node[last] = choose.choice(odd)
        if choose.random() < 0.3:
            tree[choose.choice(sorted(tree))] = choose.choice([None, 7, "text", [1]])
        return Document(document.name, tree)

    files = plant()
    for _ in range(1000):
        wrong = Files("sidecar.yaml", files.sidecar, spoiled(files.explorer), spoiled(files.trainer))
        for check in (agreement.types, *FILES):  # all: also where the first alone would be asked
            list(check(wrong))
