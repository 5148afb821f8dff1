"""Each trap of Trinity-RFT with the code that absorbs it, and the test that must fail without that code.

`make test-trinity-protections` takes one protection after the other out of a copy of the service, runs its test against
the copy, and demands that it fails, by an assertion or by waiting in vain. `tests/test_protections.py` keeps the table
true to the code.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SERVICE = ROOT / "service"


@dataclass(frozen=True, slots=True)
class Edit:
    """One change that takes a line of defence out.

    Attributes:
        file: below `service/slipstream`.
        text: occurs there exactly once.
        replacement: what stands there instead.
    """

    file: str
    text: str
    replacement: str


@dataclass(frozen=True, slots=True)
class Protection:
    """What absorbs one trap.

    Attributes:
        trap: what Trinity does.
        edits: take the protection out, all lines of it where there are several.
        test: below `tests/trinity`, as pytest names it; it must fail then.
    """

    trap: str
    edits: tuple[Edit, ...]
    test: str


def _out(trap: str, test: str, *edits: tuple[str, str, str]) -> Protection:
    return Protection(trap, tuple(Edit(*edit) for edit in edits), test)


DELIVERY, SHADOW = "delivery/delivery.py", "runs/shadow.py"
PLANNING, GROUP_ENDS = "store/planning.py", "store/group_ends.py"
EXPLORER, CALLS, HANDOVER = "explorer/client.py", "explorer/calls.py", "explorer/handover.py"
COMMITTER = "delivery/committer.py"
FEEDBACK, COMMITS = "test_trinity_feedback.py", "test_trinity_commits.py"
GROUPS, CHATS, RELOAD = "test_trinity_groups.py", "test_trinity_chats.py", "test_trinity_reload.py"
FACADE, FACADE_STORE, FACADE_CHATS = "test_trinity_facade.py", "store/facade.py", "facade/chats.py"
_BODY = '"reward": reward, "task_id": task_id, "run_id": run_id}'
_SHADOW_CALL = '"n": 1, "stream": False}'
_REFUSED = f"{FEEDBACK}::test_what_is_no_reward_is_refused_at_the_sidecar"
_NO_NUMBER = f"{FEEDBACK}::test_a_calculator_that_gives_no_finite_number_fails_its_run"

PROTECTIONS = (
    _out(
        "the first reward of an answer wins",
        f"{FEEDBACK}::test_the_same_feedback_twice_arrives_once_and_the_last_word_counts",
        (
            "store/scoring_again.py",
            "_OPEN_GROUPS = (GroupState.RUNNING, GroupState.READY)",
            "_OPEN_GROUPS = (GroupState.RUNNING,)",
        ),
    ),
    _out(
        "duplicates at the same time race on SQLite",
        f"{FEEDBACK}::test_commits_at_the_same_time_do_not_hand_over_a_reward_twice",
        (COMMITTER, "self._one_at_a_time = asyncio.Lock()", "self._one_at_a_time = asyncio.Semaphore(99)"),
    ),
    _out(
        "duplicates have no effect, and get 200",
        f"{FEEDBACK}::test_a_delivery_that_is_repeated_after_a_cut_arrives_once",
        (DELIVERY, "            unknown, in_part = [], []  # a resumed", "            pass  # a resumed"),
    ),
    _out(
        "unknown ids have no effect, and get 200",
        f"{FEEDBACK}::test_answers_that_trinity_does_not_know_are_asked_for_anew",
        (DELIVERY, "            elif taken == 0:", "            elif taken < 0:"),
    ),
    _out(
        "an empty list has no effect, and gets 200",
        f"{FEEDBACK}::test_lists_without_an_answer_are_refused_at_the_sidecar[[]]",
        ("api/feedback.py", "Field(min_length=1, max_length=_MOST_MSG_IDS)", "Field(max_length=_MOST_MSG_IDS)"),
    ),
    _out(
        "NaN and Infinity are taken (posted)",
        f"{_REFUSED}[NaN]",
        ("http/body.py", "strict=True, allow_inf_nan=False", "strict=True, allow_inf_nan=True"),
        ("http/body.py", "ensure_ascii=False, allow_nan=False", "ensure_ascii=False, allow_nan=True"),
        ("http/body.py", "if not low <= reward <= high:", "if reward < low or reward > high:"),
    ),
    _out(
        "NaN and Infinity are taken (from a calculator)",
        f"{_NO_NUMBER}[not_a_number]",
        ("rewards/calculator.py", "    if not math.isfinite(value):", "    if False:"),
        ("rewards/model.py", "if not math.isfinite(mean.value):", "if False:"),
    ),
    _out(
        "a bool is taken (posted)",
        f"{_REFUSED}[true]",
        ("http/body.py", "strict=True, allow_inf_nan=False", "strict=False, allow_inf_nan=False"),
    ),
    _out(
        "a bool is taken (from a calculator)",
        f"{_NO_NUMBER}[a_yes]",
        ("rewards/calculator.py", "if isinstance(value, bool) or not isinstance(value, Real):", "if False:"),
    ),
    _out(
        "a reward of any size is taken (posted)",
        f"{_REFUSED}[1000]",
        ("http/body.py", "if not low <= reward <= high:", "if False:"),
    ),
    _out(
        "a reward of any size is taken (from a calculator)",
        f"{FEEDBACK}::test_a_reward_beyond_the_range_is_brought_into_it",
        ("rewards/model.py", "Reward(self._clipped(mean.value), mean.breakdown)", "mean"),
    ),
    _out(
        "run_id is a column of integers",
        f"{FEEDBACK}::test_run_ids_are_whole_numbers_counted_from_0_and_task_ids_are_named",
        (HANDOVER, _BODY, _BODY.replace("run_id}", 'f"run-{run_id}"}')),
    ),
    _out(
        "task_id has at most 64 characters",
        f"{FEEDBACK}::test_long_task_ids_stay_within_64_characters_and_apart",
        (PLANNING, 'return f"{name[: ID_LENGTH - len(suffix) - 17]}-{digest}{suffix}"', "return name + suffix"),
    ),
    _out(
        "without a task_id the whole commit is one group",
        f"{COMMITS}::test_chats_survive_a_restart_before_their_feedback",
        (HANDOVER, _BODY, _BODY.replace('"task_id": task_id, ', "")),
    ),
    _out(
        "a pipeline error at the commit loses the queue",
        f"{COMMITS}::test_a_pipeline_error_loses_the_queue_and_the_groups_are_run_again",
        (DELIVERY, "if error.status != 500:", "if error.status:"),
    ),
    _out(
        "a restart between feedback and commit loses the queue; counters restart",
        f"{COMMITS}::test_a_restart_between_feedback_and_commit",
        (CALLS, "return self.ready < ready or self.total < total or self.step < step", "return False"),
    ),
    _out(
        "a restart right before the commit: 200, and nothing was committed",
        f"{COMMITS}::test_a_restart_right_before_the_commit_which_then_commits_nothing",
        (DELIVERY, "if await self._committed_by_another(counters):", "if False:"),
    ),
    _out(
        "a crash in the middle of a group's feedback loses half of it",
        f"{COMMITS}::test_a_crash_in_the_middle_of_a_groups_feedback",
        (CALLS, "return self.ready < ready or self.total < total or self.step < step", "return False"),
        (DELIVERY, "if number == 1 and before is not None:", "if False:"),
    ),
    _out(
        "a commit whose answer is lost was carried out",
        f"{COMMITS}::test_a_commit_whose_answer_is_lost_is_not_made_again",
        (DELIVERY, "if commit.state == CommitState.ASKED and now.step > commit.explorer_step:", "if False:"),
    ),
    _out(
        "an empty commit raises the step number",
        f"{COMMITS}::test_without_anything_ready_no_commit_is_sent",
        (COMMITTER, "ready < max(1, minimum):", "ready < minimum - 1:"),
    ),
    _out(
        "advantages are computed within one commit only",
        f"{GROUPS}::test_a_group_waits_for_its_last_run_and_goes_out_in_one_commit",
        (
            GROUP_ENDS,
            "if not set(states) <= {RunState.SCORED, RunState.FAILED, RunState.QUARANTINED}:",
            "if RunState.SCORED not in states:",
        ),
        (GROUP_ENDS, "alone = states.count(RunState.SCORED) == 1 and len(states) > 1", "alone = False"),
    ),
    _out(
        "a group of one gets its reward as advantage",
        f"{GROUPS}::test_a_group_of_which_one_run_is_left_is_not_delivered",
        (GROUP_ENDS, "alone = states.count(RunState.SCORED) == 1 and len(states) > 1", "alone = False"),
    ),
    _out(
        "with rec a group of one fails the commit",
        f"{GROUPS}::test_with_rec_a_group_of_one_would_take_the_whole_commit_with_it",
        (GROUP_ENDS, "alone = states.count(RunState.SCORED) == 1 and len(states) > 1", "alone = False"),
    ),
    _out(
        "a stream that is cut is recorded in part",
        f"{CHATS}::test_a_streaming_agent_is_shadowed_without_a_stream",
        (EXPLORER, _SHADOW_CALL, _SHADOW_CALL.replace("False", "True")),
    ),
    _out(
        "with n > 1 all choices share one reward",
        f"{CHATS}::test_several_choices_are_asked_for_one_by_one",
        (EXPLORER, _SHADOW_CALL, _SHADOW_CALL.replace("1", 'captured.get("n", 1)')),
    ),
    _out(
        "logprobs are recorded after top_p, penalties and logit_bias took effect",
        f"{CHATS}::test_nothing_of_the_caller_changes_how_answers_are_sampled",
        (EXPLORER, '"stop", "temperature", ', '"stop", "temperature", "top_p", '),
    ),
    _out(
        "the caller's headers are forwarded to the engine",
        f"{CHATS}::test_nothing_of_the_callers_headers_reaches_the_engine",
        (CALLS, '(b"content-type", b"application/json")', '(b"authorization", b"Bearer sk-agent")'),
    ),
    _out(
        "the first answers, recorded at once, leave a history without its tables",
        f"{CHATS}::test_the_first_answers_of_a_new_explorer_are_not_recorded_at_once",
        (SHADOW, "(self._concurrency if self._proven else 1)", "self._concurrency"),
    ),
    _out(
        "an empty completion gets a 500",
        f"{CHATS}::test_an_empty_completion_costs_its_run_an_attempt_and_no_other_run_anything",
        (EXPLORER, "if error.said == _UNHANDLED:", "if False:"),
    ),
    _out(
        "504 after sync_timeout",
        f"{CHATS}::test_a_chat_that_outlasts_trinitys_patience_is_sent_again",
        (CALLS, "if status == 429 or status >= 500:", "if status == 429:"),
    ),
    _out(
        "the list of models is cached; a restart may bring another name",
        f"{CHATS}::test_a_model_with_another_name_after_a_restart",
        (EXPLORER, "if error.status == 404 and self._configured_model is None:", "if False:"),
    ),
    _out(
        "without an engine, during a reload, chats get a 500",
        f"{RELOAD}::test_no_run_is_lost_while_the_only_engine_reloads_and_production_goes_on",
        (EXPLORER, "if before is not None and await self._handed_on() == before:", "if False:"),
    ),
    _out(
        "without an engine, the list of models is a 500 as well",
        f"{RELOAD}::test_no_run_is_lost_while_not_even_the_models_name_can_be_had",
        (EXPLORER, "            except ExplorerError as error:", "            except ExplorerRefused as error:"),
    ),
    _out(
        "an Explorer that restarts is down for a while",
        f"{RELOAD}::test_a_lone_run_outlives_an_explorer_that_is_down",
        (SHADOW, '(self._breaker.state == "closed" and not away)', '(self._breaker.state == "closed")'),
    ),
    _out(
        "engines reload one after the other, and serve two versions meanwhile",
        f"{RELOAD}::test_two_engines_reload_in_turn_and_the_version_is_the_older_one",
        (CALLS, "version=min(versions, default=None)", "version=max(versions, default=None)"),
    ),
    _out(
        "a locked SQLite gets chats and feedback a 500",
        f"{COMMITS}::test_a_history_that_is_locked_for_long_loses_nothing",
        (CALLS, "if status == 429 or status >= 500:", "if status == 429:"),
    ),
    _out(
        "clients of the facade: chats get a 500 while the only engine reloads",
        f"{FACADE}::test_a_chat_waits_for_an_only_engine_that_reloads",
        (FACADE_CHATS, "if whole.status == 429 or whole.status >= 500:", "if False:"),
    ),
    _out(
        "clients of the facade: a stream that is cut is recorded in part, and can be rewarded",
        f"{FACADE}::test_what_trinity_recorded_of_a_cut_stream_is_never_trained_on",
        (FACADE_STORE, "if row.flaw is None and row.reward is None]", "if row.reward is None]"),
    ),
    _out(
        "clients of the facade: a reward of any size is taken",
        f"{FACADE}::test_a_reward_that_is_none_never_reaches_trinity[7]",
        ("http/body.py", "if not low <= reward <= high:", "if False:"),
    ),
    _out(
        "clients of the facade: NaN is taken",
        f"{FACADE}::test_a_reward_that_is_none_never_reaches_trinity[NaN]",
        ("http/body.py", "strict=True, allow_inf_nan=False", "strict=True, allow_inf_nan=True"),
        ("http/body.py", "ensure_ascii=False, allow_nan=False", "ensure_ascii=False, allow_nan=True"),
        ("http/body.py", "if not low <= reward <= high:", "if False:"),
    ),
    _out(
        "clients of the facade: advantages are computed within one commit only",
        f"{FACADE}::test_a_group_over_two_commits_is_compared_as_one",
        (FACADE_STORE, "if await _runs(session, group.id) >= group_size:", "if True:"),
    ),
    _out(
        "clients of the facade: late runs of a task are compared with whatever else comes of it",
        f"{FACADE}::test_a_run_too_late_for_its_group_joins_no_other",
        (FACADE_STORE, "query.where(FacadeGroupRow.state.in_(WAITING_FACADE_GROUPS))", "query"),
    ),
    _out(
        "clients of the facade: without a task_id the whole commit is one group",
        f"{FACADE}::test_without_a_task_id_answers_are_not_compared",
        (FACADE_STORE, "    if task_id is not None:\n", "    if True:\n"),
    ),
    _out(
        "clients of the facade: a group of one gets its reward as advantage",
        f"{FACADE}::test_one_run_is_not_trained_on_where_several_are_compared",
        (FACADE_STORE, "if group_size > 1 and", "if False and"),
    ),
    _out(
        "clients of the facade: a run_id in text does not fit its column",
        f"{FACADE}::test_a_client_like_agentscopes_names_runs_in_text",
        (FACADE_STORE, "if key is not None and key.isdecimal() and", "if False and"),
    ),
    _out(
        "clients of the facade: duplicates at the same time race on SQLite",
        f"{FACADE}::test_feedback_at_the_same_time_counts_once",
        (COMMITTER, "self._one_at_a_time = asyncio.Lock()", "self._one_at_a_time = asyncio.Semaphore(99)"),
    ),
    _out(
        "clients of the facade: a restart or a failed commit loses the queue",
        f"{FACADE}::test_with_trinitys_history_at_hand_lost_groups_are_delivered_again",
        (DELIVERY, "repaired = untaken and await self._repair(commit, groups)", "repaired = False"),
    ),
    _out(
        "clients of the facade: a commit whose answer is lost may have been carried out",
        f"{FACADE}::test_what_a_commit_may_have_taken_is_not_delivered_again",
        (
            DELIVERY,
            "repaired = untaken and await self._repair(commit, groups)",
            "repaired = await self._repair(commit, groups)",
        ),
    ),
)


def problems(edit: Edit) -> str | None:
    """Why an edit no longer fits the code, or None."""
    found = (SERVICE / "slipstream" / edit.file).read_text().count(edit.text)
    return None if found == 1 else f"{edit.file}: {edit.text!r} occurs {found} times"


_NAN_IN_STORE = "TypeError: must be real number, not NoneType"
"""SQLite keeps NaN as NULL, at which the sidecar in the test's own process fails."""


def verdict(protection: Protection, folder: Path) -> str:
    """Run the protection's test without it. Returns `fails` and how, or what is wrong."""
    service = folder / "service"
    shutil.copytree(SERVICE, service, ignore=shutil.ignore_patterns("__pycache__", ".mypy_cache"))
    for edit in protection.edits:
        file = service / "slipstream" / edit.file
        file.write_text(file.read_text().replace(edit.text, edit.replacement))
    report = folder / "report.xml"
    test = ROOT / "tests" / "trinity" / protection.test
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", str(test)],
        cwd=ROOT, env=os.environ | {"PYTHONPATH": str(service)}, capture_output=True, timeout=300, check=False,
    )  # fmt: skip
    cases = list(ET.parse(report).iter("testcase")) if report.exists() else []
    failures = [failure.get("message", "") for case in cases for failure in case.iter("failure")]
    if len(cases) != 1 or list(cases[0].iter("error")):
        return f"WRONG: the test did not run ({len(cases)} found)"
    if not failures:
        return "WRONG: the test passes without the protection"
    said = failures[0].splitlines()[0]
    if not said.startswith(("AssertionError", "assert", "TimeoutError", _NAN_IN_STORE)):
        return f"WRONG: it fails for another reason: {said[:100]}"
    return "fails: waited in vain" if said.startswith("TimeoutError") else f"fails: {said[:80]}"


def main() -> int:
    """Check those whose trap or test holds one of the arguments, or all."""
    chosen = [one for one in PROTECTIONS if all(word in one.trap + one.test for word in sys.argv[1:])]
    wrong = 0
    for protection in chosen:
        began = time.monotonic()
        stale = [problem for edit in protection.edits if (problem := problems(edit)) is not None]
        with tempfile.TemporaryDirectory() as folder:
            said = f"WRONG: {stale[0]}" if stale else verdict(protection, Path(folder))
        wrong += said.startswith("WRONG")
        print(f"{time.monotonic() - began:5.0f} s  {protection.trap}\n         {said}", flush=True)
    print(f"{len(chosen)} protections taken out, {len(chosen) - wrong} tests failed as they must")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
