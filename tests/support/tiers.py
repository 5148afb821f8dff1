"""The two tiers of the tests: which of them `make test` leaves to `make test-all`.

A test is in the slow tier if it is marked `slow`. Two kinds of test are sorted here, because a mark on each case would
say the same thing many times:

- Of a test that is marked `sampled`, the first, the middle and the last of its cases are in the fast tier. It is for
  tables whose cases differ in one byte, or in a detail. `sampled(1)` keeps the first alone, `sampled(2)` the first and
  the last: for cases of which each takes a second or more.
- A test that runs on both stores runs on SQLite in the fast tier. On PostgreSQL it does in `store/` and `cluster/`
  only, which hold the statements that differ between the two.

They are also put in order. Test processes take whole files, and a file of one or two tests is one of minutes: those go
first, and before them the files that keep all cores busy. (`--no-loadscope-reorder` keeps that order.) One test process
takes all of the latter: two of them at once would have twice the cores' work, and wait for each other.
"""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest
from xdist.scheduler import LoadFileScheduling

OF_BOTH_STORES = {"store", "cluster"}
"""Folders of `tests/` whose tests are on both stores in the fast tier too."""

HEAVY = {
    "test_demo_rollout.py",
    "test_chaos.py",
    "test_compose_cpu.py",
    "test_alternating_kills.py",
    "test_poison.py",
    "test_experiments_cluster.py",
    "test_rollouts_cluster.py",
    "test_serving_together.py",
    "test_runner_concurrent.py",
}
"""Files whose tests run several programs at once, of which each has work for a core: engines, sidecars, agents."""


def sort_tests(items: list[pytest.Item]) -> None:
    """Mark with `slow` what belongs to the slow tier and has no such mark of its own; files of few tests first."""
    tables: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if _store(item) == "postgresql" and item.path.parent.name not in OF_BOTH_STORES:
            item.add_marker(pytest.mark.slow)
        if item.get_closest_marker("sampled") and not item.get_closest_marker("slow"):
            tables[item.nodeid.partition("[")[0]].append(item)
    for cases in tables.values():
        kept = _kept(cases)
        for number, case in enumerate(cases):
            if number not in kept:
                case.add_marker(pytest.mark.slow)
    in_file = Counter(item.path for item in items if not item.get_closest_marker("slow"))
    items.sort(key=lambda item: (item.path.name not in HEAVY, in_file[item.path]))  # stable: a file keeps its order


class OneAtATime(LoadFileScheduling):
    """`--dist loadfile`, with all heavy files in one test process."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return "heavy" if file.rpartition("/")[2] in HEAVY else file


def _kept(cases: list[pytest.Item]) -> set[int]:
    """The cases of a table that the fast tier runs, by their place."""
    mark = cases[0].get_closest_marker("sampled")
    assert mark is not None
    count: int = mark.args[0] if mark.args else 3
    return set((0, len(cases) - 1, len(cases) // 2)[:count])


def _store(item: pytest.Item) -> object:
    callspec = getattr(item, "callspec", None)
    return callspec.params.get("store_url") if callspec else None
