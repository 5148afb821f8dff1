"""Strategies as a user writes them, for `python: own_strategies:...`."""

from slipstream.selection import Decision


class Longer:
    def __init__(self, calls=1):
        self.calls = calls

    def select(self, task):
        return len(task.calls) > self.calls


class Made:
    """Callable, without `select`."""

    def __call__(self, task):
        return True


longer_than_one = Longer(1)


def with_tools(task):
    return task.has_tools


def at_least(task, calls):
    return len(task.calls) >= calls


def explained(task):
    return Decision(True, "hard_case", frozenset({"hard"}), {"difficulty": 3})


def reason_by_task(task):
    return Decision(True, f"task_{task.task_id}")


def exiting(task):
    raise SystemExit("no more")


def failing(task):
    return {}[task.task_id]


def rubbish(task):
    return "yes"


def unstorable(task):
    return Decision(True, "x", metadata={"task": task})


async def later(task):
    return True


class Later:
    async def select(self, task):
        return True


class Broken:
    def __init__(self):
        raise RuntimeError("no licence")


number = 3
