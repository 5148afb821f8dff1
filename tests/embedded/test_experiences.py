from __future__ import annotations

import math
import os
import re
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from sqlite3 import connect

import numpy as np
import pytest
from sqlalchemy import Connection, Engine, create_engine, event, text

from slipstream.embedded.algorithm import OnlineAlgorithm
from slipstream.embedded.experiences import Answer, ExperienceStore
from slipstream.errors import ConfigError


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/buffer/experiences.db"


@pytest.fixture
def store(url: str) -> Iterator[ExperienceStore]:
    store = ExperienceStore(url, "exp_buffer")
    yield store
    store.close()


def answer(msg_id: str) -> Answer:
    return Answer(msg_id, np.array([1, 2, 3]), np.array([49151, 2]), np.array([-0.5, -12.25]), model_version=7)


def test_an_answer_reaches_the_trainer_as_it_was_sampled(store: ExperienceStore) -> None:
    store.record([answer("m1")])
    store.feedback(["m1"], 0.75, "task", 3)
    store.commit("ppo")

    [experience] = store.claim(1, 1)

    assert (experience.msg_id, experience.task_id, experience.run_id) == ("m1", "task", 3)
    assert (experience.reward, experience.advantage, experience.model_version) == (0.75, None, 7)
    assert experience.prompt_ids.tolist() == [1, 2, 3]
    assert experience.response_ids.tolist() == [49151, 2]
    assert experience.logprobs.tolist() == [-0.5, -12.25]


def test_only_its_user_can_read_what_was_said(url: str, tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        store = ExperienceStore(url, "exp_buffer")
    finally:
        os.umask(before)
    store.record([answer("m1")])
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "buffer").iterdir()}
    store.close()
    assert modes == dict.fromkeys(["experiences.db", "experiences.db-wal", "experiences.db-shm"], 0o600)


def test_a_file_that_its_user_may_not_open_is_named(tmp_path: Path) -> None:
    (tmp_path / "buffer").write_text("no folder")
    with pytest.raises(
        ConfigError, match=r"buffer.*(experiences\.db).* run Explorer, Trainer and rollback as one user"
    ):
        ExperienceStore(f"sqlite:///{tmp_path}/buffer/experiences.db", "exp_buffer")


def test_a_sqlite_uri_is_no_second_name_of_a_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"experience_buffer\.path: expected the path of an SQLite file"):
        ExperienceStore("sqlite:///file:buffer.db?uri=true", "exp_buffer")
    assert list(tmp_path.iterdir()) == []


def test_what_the_documentation_deletes_is_old_and_needed_no_more(url: str, tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "deploy.md").read_text(encoding="utf-8")
    statements = re.search(r"embedded_exp_buffer\.db\" <<'EOF'\n\.timeout 60000\n(.*?)EOF", page, re.DOTALL)
    assert statements
    now = time.time()
    old, new = (ExperienceStore(url, "exp_buffer", lambda at=at: at) for at in (now - 8 * 86400, now))
    old.record([answer(name) for name in ("taken", "waiting", "unrewarded")])
    old.feedback(["taken"], 1.0, "task", 0)
    old.commit("ppo")
    assert len(old.claim(1, 1)) == 1
    old.feedback(["waiting"], 1.0, "task", 1)
    old.commit("ppo")
    old.record([answer("ready")])
    old.feedback(["ready"], 1.0, "task", 2)
    new.record([answer("new")])
    counts = new.counts()

    with closing(connect(tmp_path / "buffer" / "experiences.db", isolation_level=None)) as connection:
        connection.executescript(statements[1])
        left = connection.execute("SELECT msg_id FROM exp_buffer_answers WHERE length(prompt_ids) > 0 ORDER BY id")
        assert [name for (name,) in left] == ["ready", "new"]

    assert new.counts() == counts, "from which the sidecar would take that the Explorer has restarted"
    new.feedback(["unrewarded", "new"], 1.0, "task", 3)
    new.commit("ppo")
    assert [each.msg_id for each in new.claim(2, 3)] == ["waiting", "ready", "new"]
    for store in (old, new):
        store.close()


def test_the_first_reward_wins_and_others_have_no_effect(store: ExperienceStore) -> None:
    store.record([answer("m1")])

    assert store.feedback(["m1", "m1", "unknown"], 1.0, "first", 0) == 1
    assert store.feedback(["m1"], 0.0, "second", 1) == 0
    assert store.feedback([], 0.0, "third", 1) == 0
    store.commit("grpo")
    assert store.feedback(["m1"], 0.0, "late", 1) == 0

    [experience] = store.claim(1, 1)
    assert (experience.reward, experience.task_id) == (1.0, "first")


def test_all_choices_of_one_completion_share_the_reward(store: ExperienceStore) -> None:
    store.record([answer("m1"), answer("m1")])

    assert store.feedback(["m1"], 1.0, "t", 0) == 2
    assert store.commit("grpo") == 2


def test_feedback_posted_at_the_same_time_counts_once(store: ExperienceStore) -> None:
    store.record(answer(f"m{index}") for index in range(10))

    with ThreadPoolExecutor(8) as pool:
        reached = pool.map(lambda index: store.feedback([f"m{index % 10}"], 1.0, None, 0), range(80))

    assert sum(reached) == 10
    assert store.commit("grpo") == 10


def test_what_was_fed_back_survives_a_restart_and_counts_go_on(url: str) -> None:
    before = ExperienceStore(url, "exp_buffer")
    before.record([answer("m1"), answer("m2")])
    before.feedback(["m1"], 1.0, "t", 0)
    before.commit("grpo")
    before.feedback(["m2"], 1.0, "t", 0)
    counts = before.counts()
    before.close()

    after = ExperienceStore(url, "exp_buffer")

    assert after.counts() == counts
    assert (counts.recorded, counts.ready, counts.commits) == (2, 2, 1)
    assert after.commit("grpo") == 1
    after.close()


def test_a_commit_of_nothing_still_counts(store: ExperienceStore) -> None:
    assert store.commit("grpo") == 0
    assert store.counts().commits == 1


def test_what_is_rewarded_in_the_midst_of_a_commit_waits_for_the_next(store: ExperienceStore) -> None:
    """PostgreSQL lets a statement see what was rewarded since the one before it, in the same transaction."""
    store.record([answer("m1"), answer("m2")])
    store.feedback(["m1"], 1.0, "t", 0)

    def reward(connection: Connection, _cursor: object, statement: str, *_: object) -> None:
        if statement.startswith("INSERT INTO exp_buffer "):
            connection.exec_driver_sql("UPDATE exp_buffer_answers SET reward = 1, run_id = 1 WHERE msg_id = 'm2'")

    event.listen(Engine, "after_cursor_execute", reward)
    try:
        assert store.commit("grpo") == 1
    finally:
        event.remove(Engine, "after_cursor_execute", reward)

    assert store.commit("grpo") == 1
    assert [experience.msg_id for experience in store.claim(1, 2)] == ["m1", "m2"]


def test_advantages_are_computed_within_one_commit(store: ExperienceStore) -> None:
    store.record(answer(f"m{index}") for index in range(4))
    store.feedback(["m0"], 1.0, "t", 0)
    store.feedback(["m1"], 0.0, "t", 1)
    store.commit("grpo")
    store.feedback(["m2"], 1.0, "t", 2)
    store.commit("grpo")
    store.feedback(["m3"], 0.0, "t", 3)
    store.commit("grpo")

    advantages = {experience.msg_id: experience.advantage for experience in store.claim(1, 4)}

    assert advantages == pytest.approx(
        {"m0": 1 / math.sqrt(2), "m1": -1 / math.sqrt(2), "m2": 1.0, "m3": 0.0}, abs=1e-4
    )


@pytest.mark.parametrize(
    ("algorithm", "kept"),
    [("grpo", ["clean-0", "clean-1"]), ("ppo", ["clean-0", "clean-1", "mixed-0"])],
    ids=["compared", "alone"],
)
def test_a_rollback_keeps_out_what_waits_for_feedback_or_commit(
    store: ExperienceStore, algorithm: OnlineAlgorithm, kept: list[str]
) -> None:
    versions = {"clean-0": 1, "clean-1": 1, "mixed-0": 1, "mixed-1": 2, "later-0": 2, "later-1": 2}
    store.record(replace(answer(name), model_version=version) for name, version in versions.items())

    def rewarded(*names: str) -> None:
        for name in names:
            task, run = name.split("-")
            assert store.feedback([name], float(run), task, int(run)) == 1, "the sender is told nothing new"

    rewarded("clean-0", "mixed-0", "mixed-1")
    assert store.discard_after(1) == 1, "of those with feedback"
    assert store.discard_after(1) == 0, "again it changes nothing"
    rewarded("clean-1", "later-0", "later-1")
    assert store.commit(algorithm) == len(kept)
    assert sorted(experience.msg_id for experience in store.claim(2, len(kept))) == kept

    store.record(
        replace(answer(name), model_version=2) for name in ("mixed-2", "mixed-3")
    )  # of the number's new bearer
    rewarded("mixed-2", "mixed-3")
    assert store.commit(algorithm) == 2


def test_the_last_step_of_a_run_is_the_last_of_its_feedback(store: ExperienceStore) -> None:
    """Answers are recorded as they end; an agent's calls may end in another order than they began."""
    store.record(answer(f"m{index}") for index in (2, 0, 1, 3))
    store.feedback(["m0", "m1", "m2"], 1.0, "t", 0)
    store.feedback(["m3"], 0.0, "t", 1)
    store.commit("multi_step_grpo")

    steps = [experience for experience in store.claim(1, 4) if experience.run_id == 0]
    assert [experience.msg_id for experience in steps] == ["m0", "m1", "m2"]
    assert [experience.advantage for experience in steps] == pytest.approx([1 / math.sqrt(2)] * 3, abs=1e-4)


def test_a_database_from_before_runs_had_steps_is_taken_over(url: str) -> None:
    before = ExperienceStore(url, "exp_buffer")
    before.record([answer("m1")])
    before.close()
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE exp_buffer_answers DROP COLUMN step"))
    engine.dispose()

    after = ExperienceStore(url, "exp_buffer")
    assert after.feedback(["m1"], 1.0, "t", 0) == 1
    assert after.commit("grpo") == 1
    after.close()


def test_a_database_without_a_driver_is_named_without_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)  # as where it is not installed
    urls = {
        "postgresql+psycopg://someone:secret@host/name": "needs the Python package psycopg, which is not installed",
        "sqlite+aiosqlite:////data/secret.db": "expected a driver that is not asynchronous",
    }
    for url, message in urls.items():
        with pytest.raises(ConfigError, match=rf"experience_buffer\.path: .*{message}") as refused:
            ExperienceStore(url, "exp_buffer")
        assert "secret" not in str(refused.value)


def test_a_table_of_another_engine_is_refused(url: str, tmp_path: Path) -> None:
    (tmp_path / "buffer").mkdir()
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE exp_buffer (id INTEGER PRIMARY KEY, experience_bytes BLOB)"))
    engine.dispose()

    with pytest.raises(ConfigError, match="'exp_buffer' with other columns"):
        ExperienceStore(url, "exp_buffer")


def test_two_buffers_in_one_database_stay_apart(url: str, store: ExperienceStore) -> None:
    other = ExperienceStore(url, "other")
    other.record([answer("m1")])

    assert store.feedback(["m1"], 1.0, None, 0) == 0
    assert store.counts().recorded == 0
    other.close()
