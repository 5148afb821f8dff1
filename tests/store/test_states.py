"""The states of what is stored: every change is one of the table, and the page shows that table."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

import pytest
from state_page import PAGE, kinds, page

from slipstream.store import states
from slipstream.store.states import TRANSITIONS, CommitState, GroupState, ImpossibleTransition, move

STORE = Path(states.__file__).parent


def test_a_change_that_the_table_does_not_have_is_refused() -> None:
    assert move(GroupState.READY, GroupState.COMMITTING) is GroupState.COMMITTING
    assert move(GroupState.DELIVERED, GroupState.DELIVERED) is GroupState.DELIVERED, "which is no change"
    with pytest.raises(ImpossibleTransition, match=r"^GroupState: delivered to ready$"):
        move(GroupState.DELIVERED, GroupState.READY)
    with pytest.raises(ImpossibleTransition):
        move(CommitState.SENDING, CommitState.DELIVERED)


@pytest.mark.parametrize("kind", kinds())
def test_every_state_is_in_the_table_and_can_be_reached(kind: type[StrEnum]) -> None:
    assert list(TRANSITIONS[kind]) == sorted(TRANSITIONS[kind], key=list(TRANSITIONS[kind]).index)
    assert set(TRANSITIONS[kind]) == set(kind)
    reached, waiting = set(), [next(iter(kind))]
    while waiting:
        state = waiting.pop()
        reached.add(state)
        waiting += [after for after in TRANSITIONS[kind][state] if after not in reached]
    assert reached == set(kind)


def test_the_page_is_made_from_the_table() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run python tests/support/state_page.py"


def unmoved(function: ast.AST) -> Iterator[ast.AST]:
    """The places in a function that set a state to what `move` has not returned."""

    def is_moved(value: ast.AST) -> bool:
        if isinstance(value, ast.Name):
            return value.id in moved
        return isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "move"

    assigned = [node for node in ast.walk(function) if isinstance(node, ast.Assign)]
    moved = {
        target.id
        for node in assigned
        if is_moved_call(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in assigned:
        for target in node.targets:
            pairs = [(target, node.value)]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(target.elts, node.value.elts, strict=True))
            for name, value in pairs:
                if isinstance(name, ast.Attribute) and name.attr == "state" and not is_moved(value):
                    yield node
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "values":
            yield from (each.value for each in node.keywords if each.arg == "state" and not is_moved(each.value))


def is_moved_call(value: ast.AST) -> bool:
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "move"


def test_every_change_of_a_state_goes_through_the_table() -> None:
    found, changes = [], 0
    for file in sorted(STORE.glob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for function in ast.walk(tree):
            if isinstance(function, ast.AsyncFunctionDef | ast.FunctionDef) and file.name != "states.py":
                changes += sum(is_moved_call(node) for node in ast.walk(function))
                found += [f"{file.name}:{getattr(place, 'lineno', 0)}" for place in unmoved(function)]
    assert found == []
    assert changes > 30


def test_rows_written_at_the_drivers_speed_are_moved_too() -> None:
    """`update_rows` takes plain tuples: a function that sets `state` so has to have moved it."""
    for file in sorted(STORE.glob("*.py")):
        for function in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(function, ast.AsyncFunctionDef):
                calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
                sets = [
                    call
                    for call in calls
                    if isinstance(call.func, ast.Name) and call.func.id == "update_rows" and "'state'" in ast.dump(call)
                ]
                assert not sets or any(is_moved_call(call) for call in calls), f"{file.name}: {function.name}"
