import pytest

from slipstream.errors import ConfigError
from slipstream.selection import SelectionSettings, Selector
from slipstream.trajectory import Call, Task


def task(calls=1, task_id="t1", request=None):
    return Task(task_id, "s", tuple(Call(task_id, place, request or {}, {}) for place in range(calls)))


def selector(python):
    return Selector(SelectionSettings.model_validate({"python": python}))


def decide(python, task):
    decision = selector(python).decide(task)
    return decision.selected, decision.reason


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("python", "two_calls", "four_calls"),
    [
        ("own_strategies:Longer", (True, "Longer"), (True, "Longer")),
        ({"object": "own_strategies:Longer", "params": {"calls": 3}}, (False, "not:Longer"), (True, "Longer")),
        ("own_strategies:longer_than_one", (True, "longer_than_one"), (True, "longer_than_one")),
        ({"object": "own_strategies:at_least", "params": {"calls": 3}}, (False, "not:at_least"), (True, "at_least")),
        ("own_strategies:Made", (True, "Made"), (True, "Made")),
        ("own_strategies:with_tools", (False, "not:with_tools"), (False, "not:with_tools")),
    ],
)
def test_functions_classes_and_objects_decide(python, two_calls, four_calls):
    assert (decide(python, task(2)), decide(python, task(4))) == (two_calls, four_calls)


def test_a_strategy_can_give_its_reason_labels_and_metadata():
    decision = selector("own_strategies:explained").decide(task())
    assert (decision.selected, decision.reason) == (True, "hard_case")
    assert (decision.labels, decision.metadata) == ({"hard"}, {"difficulty": 3})


def logged(capsys):
    """What was logged: on stdout, or on stderr if a test before this one has set logging up as a program does."""
    return "".join(capsys.readouterr())


@pytest.mark.parametrize("name", ["failing", "exiting", "rubbish", "unstorable"])
def test_a_strategy_that_fails_selects_nothing_and_says_so(name, capsys):
    assert decide(f"own_strategies:{name}", task()) == (False, f"error:{name}")
    assert "selection_failed" in logged(capsys)


def test_a_strategy_that_goes_on_failing_shows_its_traceback_once(capsys):
    failing = selector("own_strategies:failing")
    for number in range(3):
        failing.decide(task(task_id=f"task-{number}"))
    told = logged(capsys)
    assert told.count("selection_failed") == 3
    assert told.count("Traceback") == 1
    assert all(f"task-{number}" in told for number in range(3))


def test_after_a_failure_the_other_strategies_still_select():
    settings = {"any": [{"python": "own_strategies:failing"}, {"sampling": {"rate": 1}}]}
    assert Selector(SelectionSettings.model_validate(settings)).decide(task()).reason == "sampling"


@pytest.mark.slow
def test_reasons_stay_few():
    chosen = selector("own_strategies:reason_by_task")
    reasons = {chosen.decide(task(task_id=str(number))).reason for number in range(1000)}
    assert len(reasons) <= 21
    assert "other:reason_by_task" in reasons
    assert chosen.decide(task(task_id="line\nbreak")).reason == "other:reason_by_task"


@pytest.mark.parametrize(
    ("python", "told"),
    [
        ("own_strategies.Longer", "a Python object as package.module:Object"),
        ("own_strategies:", "a Python object as package.module:Object"),
        (
            "own_strategies:Nothing",
            "a Python object that can be imported; found no Nothing in the module own_strategies",
        ),
        ("no_such_module:Nothing", "a Python object that can be imported; found no module no_such_module .looked in"),
        ("own_strategies:number", "a function of a task, or a class or an object with select.task.; found int"),
        ("own_strategies:later", "plain code; found a coroutine function"),
        ({"params": {}}, "Field required"),
        ({"object": "own_strategies:Longer", "parms": {}}, "Extra inputs"),
        (7, "valid dictionary"),
    ],
)
def test_what_cannot_decide_is_refused(python, told):
    with pytest.raises(ValueError, match=told):
        SelectionSettings.model_validate({"python": python})


@pytest.mark.parametrize(
    ("python", "told"),
    [
        ({"object": "own_strategies:Longer", "params": {"cals": 3}}, r"^selection\.any\.1\.python\.params: .*cals"),
        ("own_strategies:Broken", r"^selection\.any\.1\.python\.params: .*RuntimeError: no licence"),
        ("own_strategies:Later", r"^selection\.any\.1\.python\.object: expected plain code; found a coroutine"),
    ],
)
def test_an_object_that_cannot_select_stops_the_start(python, told):
    settings = SelectionSettings.model_validate({"any": [{"sampling": {"rate": 0.5}}, {"python": python}]})
    with pytest.raises(ConfigError, match=told):
        Selector(settings)
