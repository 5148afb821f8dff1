"""Tasks and sessions made of calls, with no help from the agent."""

from __future__ import annotations

import itertools
import json
import random
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from captured_chats import assistant, call, event_stream, exchange, read_call, tool, tool_call, user

from slipstream.capture.completion import CapturedCall
from slipstream.capture.conversations import Conversations, Place, completes

SYSTEM = {"role": "system", "content": "You are helpful."}


def conversations(limit: int = 1000) -> Conversations:
    ids = itertools.count(1)
    return Conversations(limit, new_id=lambda: f"id-{next(ids)}")


def agent_turns(user_name: str, turns: int, tools_a_turn: int = 1, **headers: str) -> Iterator[CapturedCall]:
    """An agent's loop: each user turn takes some tool calls, then an answer in words."""
    messages = [SYSTEM]
    for turn in range(turns):
        messages.append(user(f"question {turn} of {user_name}"))
        for step in range(tools_a_turn):
            called = tool_call(f"call_{user_name}_{turn}_{step}", "search", q=step)
            answer = assistant(None, called)
            yield call(messages, answer, **headers)
            messages = [*messages, answer, tool(called["id"], "found")]
        answer = assistant(f"answer {turn}")
        yield call(messages, answer, **headers)
        messages = [*messages, answer]


def test_an_agent_loop_is_one_task_a_user_message() -> None:
    placed = conversations()
    calls = list(agent_turns("ann", turns=3, tools_a_turn=2))
    places = [placed.place(item) for item in calls]

    assert len({place.session_id for place in places}) == 1
    tasks = [place.task_id for place in places]
    assert [len(list(group)) for _, group in itertools.groupby(tasks)] == [3, 3, 3]
    assert len(set(tasks)) == 3
    assert [completes(item) for item in calls] == [False, False, True] * 3


def test_parallel_tool_calls_and_a_system_message_in_between_stay_in_the_task() -> None:
    placed = conversations()
    start = [SYSTEM, user("compare Köln and Rome")]
    answer = assistant(None, tool_call("a", "weather", city="Köln"), tool_call("b", "weather", city="Rome"))
    first = placed.place(call(start, answer))
    after = [*start, answer, tool("b", "hot"), tool("a", "wet"), {"role": "developer", "content": "be short"}]
    assert placed.place(call(after, assistant("Rome"))) == first


def messages_call(*messages: dict[str, Any], answer: dict[str, Any]) -> CapturedCall:
    """A captured call of Anthropic's API, with one block of an answer."""
    stop = "tool_use" if answer["type"] == "tool_use" else "end_turn"
    answered = {"type": "message", "id": "msg_1", "role": "assistant", "content": [answer], "stop_reason": stop}
    request = {"model": "claude", "max_tokens": 64, "messages": messages}
    captured = read_call(exchange(request, answered, path="/v1/messages"))
    assert isinstance(captured, CapturedCall), captured
    return captured


def test_a_reminder_beside_the_results_of_tools_is_no_request_of_its_own() -> None:
    placed = conversations()
    use = {"type": "tool_use", "id": "t", "name": "search", "input": {}}
    told = {"type": "text", "text": "It is warm."}
    asked = [user("Is it warm?")]
    first = placed.place(messages_call(*asked, answer=use))
    result = {"type": "tool_result", "tool_use_id": "t", "content": "found"}
    reminder = {"type": "text", "text": "<system-reminder>9 tokens left</system-reminder>"}
    asked += [{"role": "assistant", "content": [use]}, user([result, reminder])]
    assert placed.place(messages_call(*asked, answer=told)).task_id == first.task_id
    asked += [{"role": "assistant", "content": [told]}, user([{"type": "text", "text": "And tomorrow?"}])]
    assert placed.place(messages_call(*asked, answer=told)).task_id != first.task_id


def test_a_streamed_answer_is_continued_like_any_other() -> None:
    placed = conversations()
    called = tool_call("a", "add", x=1, y="z")
    name = {"index": 0, "id": "a", "type": "function", "function": {"name": "add", "arguments": ""}}
    pieces = [{"index": 0, "function": {"arguments": part}} for part in ('{"x": 1', ', "y": "z"}')]
    deltas = [{"role": "assistant", "content": ""}, *({"tool_calls": [part]} for part in (name, *pieces))]
    chunks = [{"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    end = {"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}
    streamed = call([user("1 + z")], event_stream(*chunks, end))
    assert not completes(streamed)

    first = placed.place(streamed)
    assert placed.place(call([user("1 + z"), assistant(None, called), tool("a", "1z")], assistant("1z"))) == first


CALLED = tool_call("a", "add", x=1, y=[2])


@pytest.mark.parametrize(
    ("answer", "sent_back"),
    [
        (assistant("Hello!"), {"role": "assistant", "content": "Hello!"}),
        (assistant("Hello! \n"), {"role": "assistant", "content": "Hello!"}),
        (assistant("Hello!"), {"role": "assistant", "content": [{"type": "text", "text": "Hello!"}]}),
        (assistant("Hello!"), {"role": "assistant", "content": [{"type": "text", "text": t} for t in ("Hel", "lo!")]}),
        (assistant("Hi") | {"reasoning_content": "hm"}, {"role": "assistant", "content": "Hi"}),
        (assistant("Hi"), {"role": "assistant", "content": "Hi", "tool_calls": None, "function_call": None, "x": None}),
        (assistant("Hi"), {"role": "assistant", "content": "Hi", "tool_calls": []}),
        (assistant(None, CALLED), {"role": "assistant", "tool_calls": [CALLED]}),
        (assistant(None, CALLED), {"role": "assistant", "content": "", "tool_calls": [CALLED]}),
        (
            assistant(None, CALLED),
            {
                "role": "assistant",
                "content": [],
                "tool_calls": [{"function": {"arguments": '{"y":[2],"x":1}', "name": "add"}, "id": "a"}],
            },
        ),
        (
            assistant(None, {"id": "a", "type": "function", "function": {"name": "now", "arguments": ""}}),
            assistant(None, {"id": "a", "type": "function", "function": {"name": "now", "arguments": "{}"}}),
        ),
        (
            assistant(None, {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{no json"}}),
            assistant(None, {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{no json"}}),
        ),
        # the speaker's name, as AgentScope, LangGraph and LangChain for JavaScript add it
        (assistant("Hi"), {"role": "assistant", "content": "Hi", "name": "bot"}),
        (assistant(None, CALLED), {"role": "assistant", "name": "bot", "content": None, "tool_calls": [CALLED]}),
        # words beside a tool call, which CrewAI leaves out
        (assistant("Let me see.", CALLED), {"role": "assistant", "content": None, "tool_calls": [CALLED]}),
        # a stream's accumulator leaves its index, its parsed arguments and null fields
        (
            assistant(None, CALLED),
            assistant(None, CALLED | {"index": 0, "parsed_arguments": None}) | {"function_call": None, "audio": None},
        ),
        # other ids, where the server or the framework makes its own
        (assistant(None, CALLED), assistant(None, CALLED | {"id": "ours"})),
        (assistant(None, CALLED | {"id": ""}), assistant(None, CALLED | {"id": "made-up"})),
        # numbers as JavaScript writes them
        (
            assistant(
                None, {"id": "a", "function": {"name": "f", "arguments": '{"x": 1.0, "y": 12345678901234567890}'}}
            ),
            assistant(None, {"id": "a", "function": {"name": "f", "arguments": '{"x":1,"y":12345678901234567000}'}}),
        ),
        # thoughts in the text, of a server that does not parse them
        (assistant("<think>\nhm\n</think>\n\nHi"), assistant("Hi")),
        (assistant("hm</think>Hi"), assistant("Hi")),
        (
            assistant("Hi"),
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "Hi"}]},
        ),
        (assistant() | {"refusal": "No."}, {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}),
        (assistant() | {"refusal": "No."}, {"role": "assistant", "content": ""}),
        (
            assistant() | {"function_call": {"name": "f", "arguments": '{"x": 1}'}},
            {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": '{"x":1}'}},
        ),
    ],
)
def test_an_answer_is_recognised_however_the_agent_sends_it_back(
    answer: dict[str, Any], sent_back: dict[str, Any]
) -> None:
    placed = conversations()
    first = placed.place(call([user("go")], answer))
    then = placed.place(call([user([{"type": "text", "text": "go"}]), sent_back, user("on")], assistant("done")))
    assert then.session_id == first.session_id
    assert then.task_id != first.task_id


@pytest.mark.parametrize(
    "sent_back",
    [
        assistant("Hullo"),
        {"role": "user", "content": "Hello"},
        assistant("Hello", CALLED),
        assistant(None),
        {"role": "user", "name": "bot", "content": "Hello"},
        {"role": "assistant", "content": [{"type": "text", "text": "Hello"}, {"type": "image_url", "image_url": {}}]},
    ],
)
def test_another_answer_is_another_conversation(sent_back: dict[str, Any]) -> None:
    placed = conversations()
    first = placed.place(call([user("go")], assistant("Hello")))
    assert placed.place(call([user("go"), sent_back, user("on")], assistant("done"))).session_id != first.session_id


@pytest.mark.parametrize(
    "sent_back",
    [
        assistant(None, tool_call("a", "add", x=1, y=[3])),
        assistant(None, tool_call("a", "add", x="1", y=[2])),
        assistant(None, tool_call("a", "sub", x=1, y=[2])),
        assistant(None, CALLED, CALLED),
        assistant(None),
        assistant("add"),
    ],
)
def test_another_tool_call_is_another_conversation(sent_back: dict[str, Any]) -> None:
    placed = conversations()
    first = placed.place(call([user("go")], assistant(None, CALLED)))
    then = placed.place(call([user("go"), sent_back, tool("a", "3")], assistant("done")))
    assert then.session_id != first.session_id


def test_the_names_of_users_tell_conversations_apart() -> None:
    placed = conversations()
    ann, bob = ({**user("hi"), "name": name} for name in ("ann", "bob"))
    first = placed.place(call([ann], assistant("hello")))
    assert placed.place(call([bob, assistant("hello"), user("on")], assistant("ok"))).session_id != first.session_id
    assert placed.place(call([ann, assistant("hello"), user("on")], assistant("ok"))).session_id == first.session_id


@pytest.mark.parametrize(
    "differs",
    [
        lambda who: assistant("Hi", tool_call(f"call_{who}", "look")),
        lambda who: assistant(f"{who} looks", tool_call("call_0", "look")),
        lambda who: assistant() | {"refusal": f"not for {who}"},
        lambda who: assistant(f"<think>{who}</think>Hi"),
    ],
    ids=["id", "words beside a call", "refusal", "thought"],
)
def test_what_some_frameworks_change_still_tells_users_apart_where_it_is_kept(differs: Any) -> None:
    """Users who said and heard the same otherwise, going on in the order opposite to the one they began in."""
    placed = conversations()
    first = {who: placed.place(call([user("go")], differs(who))) for who in ("ann", "bob", "cem")}
    for who in reversed(first):
        then = placed.place(call([user("go"), differs(who), user("on")], assistant("ok")))
        assert then.session_id == first[who].session_id


def test_an_end_that_was_claimed_by_its_id_is_not_claimed_again_without() -> None:
    """And the ends of one conversation, claimed or forgotten, leave nothing behind."""
    placed = conversations(limit=4)
    for number in range(50):
        mine = placed.place(call([user("go")], assistant(None, tool_call(f"call_{number}", "look"))))
        answer, result = assistant(None, tool_call(f"call_{number}", "look")), tool(f"call_{number}", "wet")
        assert placed.place(call([user("go"), answer, result], assistant("wet"))) == mine
    renamed = [user("go"), assistant(None, tool_call("other", "look")), tool("other", "wet")]
    assert placed.place(call(renamed, assistant("dry"))).session_id != mine.session_id
    for number in range(4):
        placed.place(call([user(f"something else {number}")], assistant("ok")))
    assert len(placed._by_name) == 4
    assert sum(len(ends.waiting) for ends in placed._by_name.values()) == 4


def test_pictures_are_told_apart() -> None:
    placed = conversations()

    def with_picture(url: str) -> dict[str, Any]:
        return user([{"type": "text", "text": "what?"}, {"type": "image_url", "image_url": {"url": url}}])

    cat = placed.place(call([with_picture("cat")], assistant("an animal")))
    dog = placed.place(call([with_picture("dog")], assistant("an animal")))
    again = placed.place(call([with_picture("dog"), assistant("an animal"), user("which?")], assistant("a dog")))
    assert again.session_id == dog.session_id != cat.session_id


def test_a_call_that_was_missed_does_not_break_the_session() -> None:
    placed = conversations()
    calls = list(agent_turns("ann", turns=2, tools_a_turn=1))
    places = [placed.place(item) for item in (calls[0], calls[3])]
    assert places[0].session_id == places[1].session_id
    assert places[0].task_id != places[1].task_id


def test_two_keys_never_share_a_session() -> None:
    placed = conversations()
    first = placed.place(call([user("go")], assistant("ok"), key="sk-a"))
    other = placed.place(call([user("go"), assistant("ok"), user("on")], assistant("done"), key="sk-b"))
    assert other.session_id != first.session_id


def _interleavings(lengths: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    if not any(lengths):
        yield ()
    for who, left in enumerate(lengths):
        if left:
            rest = (*lengths[:who], left - 1, *lengths[who + 1 :])
            yield from ((who, *order) for order in _interleavings(rest))


def test_users_who_say_the_same_at_the_same_moment_stay_apart_in_every_order() -> None:
    """Nothing but the ids of tool calls, which the model server makes, tells the three apart."""

    def loop(who: int) -> list[CapturedCall]:
        first = [user("weather?")]
        second = [*first, assistant(None, tool_call(f"call_{who}", "weather")), tool(f"call_{who}", "wet")]
        third = [*second, assistant("wet"), user("thanks")]
        return [call(first, second[1]), call(second, assistant("wet")), call(third, assistant("bye"))]

    loops = [loop(who) for who in range(3)]
    orders = list(_interleavings((3, 3, 3)))
    assert len(orders) == 1680
    for order in orders:
        placed = conversations()
        rounds = [iter(calls) for calls in loops]
        places: dict[int, list[Place]] = defaultdict(list)
        for who in order:
            places[who].append(placed.place(next(rounds[who])))
        for mine in places.values():
            assert mine[0] == mine[1]
            assert mine[1].session_id == mine[2].session_id
            assert mine[2].task_id != mine[1].task_id
        assert len({mine[0].session_id for mine in places.values()}) == 3


def test_users_with_wholly_identical_histories_are_as_many_sessions_as_users() -> None:
    """Which of the equal histories goes on with which cannot be known; that they are two, of whole tasks, can."""
    history = [user("hi"), assistant("hello"), user("and?"), assistant("what?"), user("bye")]
    calls = [call(history[:length], assistant(answer)) for length, answer in ((1, "hello"), (3, "what?"), (5, "bye"))]
    for order in _interleavings((3, 3)):
        placed = conversations()
        step = [0, 0]
        sessions: dict[str, list[int]] = defaultdict(list)
        tasks = set()
        for who in order:
            place = placed.place(calls[step[who]])
            sessions[place.session_id].append(step[who])
            tasks.add(place.task_id)
            step[who] += 1
        assert sorted(sessions.values()) == [[0, 1, 2], [0, 1, 2]]
        assert len(tasks) == 6


def test_a_branch_is_a_session_of_its_own() -> None:
    placed = conversations()
    start = [user("a story"), assistant("Once"), user("longer")]
    told = placed.place(call(start[:1], assistant("Once")))
    first = placed.place(call(start, assistant("Once upon")))
    again = placed.place(call(start, assistant("Once more")))
    assert first.session_id == told.session_id
    assert again.session_id != told.session_id
    # and each branch goes on by itself
    goes_on = placed.place(call([*start, assistant("Once upon"), user("and?")], assistant("end")))
    branch_goes_on = placed.place(call([*start, assistant("Once more"), user("and?")], assistant("end")))
    assert (goes_on.session_id, branch_goes_on.session_id) == (first.session_id, again.session_id)


def test_a_branch_does_not_take_over_a_user_who_stopped_earlier() -> None:
    placed = conversations()
    waiting, gone_on = (placed.place(call([user("hi")], assistant("hello"))) for _ in range(2))
    longer = [user("hi"), assistant("hello"), user("a joke")]
    placed.place(call(longer, assistant("ha")))
    more = [*longer, assistant("ha"), user("another")]
    placed.place(call(more, assistant("haha")))
    branch = placed.place(call(more, assistant("hoho")))
    assert branch.session_id not in (waiting.session_id, gone_on.session_id)


def test_the_session_header_wins_and_tasks_follow_the_chain_in_it() -> None:
    placed = conversations()
    places = [placed.place(item) for item in agent_turns("ann", turns=2, session_id="chat-7")]
    assert {place.session_id for place in places} == {"chat-7"}
    assert places[0].task_id == places[1].task_id != places[2].task_id == places[3].task_id
    # the same words in another session, and in none
    others = [placed.place(next(agent_turns("ann", turns=1, **given))) for given in ({"session_id": "chat-8"}, {})]
    assert others[0].session_id == "chat-8"
    assert others[1].session_id not in ("chat-7", "chat-8")
    assert len({places[0].task_id, *(place.task_id for place in others)}) == 3
    # a session continues its own tasks only
    steps = list(agent_turns("bob", turns=1, session_id="chat-9"))
    elsewhere = list(agent_turns("bob", turns=1, session_id="chat-10"))
    assert placed.place(steps[0]).task_id != placed.place(elsewhere[1]).task_id


def test_the_task_header_wins() -> None:
    placed = conversations()
    both = placed.place(call([user("a")], assistant("b"), task_id="t1", session_id="s1"))
    assert both == Place("s1", "t1")
    # the next call of the task says nothing of the session, and nothing of what was said before
    assert placed.place(call([user("a sub-agent's words")], assistant("c"), task_id="t1")) == Place("s1", "t1")


def test_a_named_task_takes_its_session_from_the_chain() -> None:
    placed = conversations()
    first = placed.place(call([user("a")], assistant("b")))
    named = placed.place(call([user("a"), assistant("b"), user("c")], assistant("d"), task_id="t1"))
    assert named == Place(first.session_id, "t1")
    # and the chain goes on from it where the header is left out
    unnamed = [user("a"), assistant("b"), user("c"), assistant("d"), {"role": "system", "content": "go on"}]
    assert placed.place(call(unnamed, assistant("e"))) == named


def test_the_oldest_conversations_are_forgotten_and_memory_stays_bounded() -> None:
    placed = conversations(limit=10)
    places = [placed.place(call([user(f"hi {number}")], assistant("hello"))) for number in range(20)]

    def goes_on(number: int) -> bool:
        messages = [user(f"hi {number}"), assistant("hello"), user("on")]
        return placed.place(call(messages, assistant("ok"))).session_id == places[number].session_id

    assert goes_on(19)
    assert goes_on(12)
    assert not goes_on(9)


@pytest.mark.slow
def test_the_same_words_over_and_over_do_not_drive_out_a_live_conversation_at_once() -> None:
    """What is bounded is the number of calls remembered, be they one state or many."""
    placed = conversations(limit=100)
    live = placed.place(call([user("mine")], assistant("yes")))
    for _ in range(99):
        placed.place(call([user("ping")], assistant("pong"), key="sk-b"))
    goes_on = placed.place(call([user("mine"), assistant("yes"), user("on")], assistant("ok")))
    assert goes_on.session_id == live.session_id
    for _ in range(500):
        placed.place(call([user("ping")], assistant("pong"), key="sk-b"))
    messages = [user("mine"), assistant("yes"), user("on"), assistant("ok"), user("more")]
    assert placed.place(call(messages, assistant("ok"))).session_id != live.session_id


def test_ids_of_its_own_fit_the_explorer() -> None:
    place = Conversations(10).place(call([user("hi")], assistant("hello")))
    assert len({place.session_id, place.task_id}) == 2
    assert all(1 <= len(name) <= 40 for name in (place.session_id, place.task_id))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("seed", range(5))
def test_many_users_at_once_are_never_mixed_and_every_task_is_whole(seed: int) -> None:
    """Sixty agents of a few keys and few words, in a random order, against the truth of who said what in which turn.

    They call tools before anything else, so that each history has an id in it that no other has.
    """
    dice = random.Random(seed)

    def life(who: int) -> list[tuple[tuple[int, int], CapturedCall]]:
        calls = []
        key = f"sk-{who % 3}"
        messages: list[dict[str, Any]] = [SYSTEM] if dice.random() < 0.5 else []
        for turn in range(dice.randint(1, 4)):
            messages = [*messages, user(dice.choice(["hi", "and?", "why?"]))]
            for step in range(dice.randint(turn == 0, 3)):
                called = [tool_call(f"c{who}.{turn}.{step}.{n}", "look", n=n) for n in range(dice.randint(1, 3))]
                answer = assistant(None, *called)
                calls.append(((who, turn), call(messages, answer, key=key)))
                results = [tool(one["id"], dice.choice(["yes", "no"])) for one in called]
                messages = [*messages, _as_sent_back(answer, dice), *results]
            answer = assistant(dice.choice(["ok", "done"]))
            calls.append(((who, turn), call(messages, answer, key=key)))
            messages = [*messages, _as_sent_back(answer, dice)]
        return calls

    lives = [life(who) for who in range(60)]
    placed = Conversations(limit=10_000)
    tasks: dict[tuple[int, int], set[str]] = defaultdict(set)
    sessions: dict[int, set[str]] = defaultdict(set)
    under_way = [iter(calls) for calls in lives]
    while under_way:
        calls = dice.choice(under_way)
        if (step := next(calls, None)) is None:
            under_way.remove(calls)
            continue
        (who, turn), captured = step
        place = placed.place(captured)
        tasks[who, turn].add(place.task_id)
        sessions[who].add(place.session_id)

    assert all(len(ids) == 1 for ids in (*tasks.values(), *sessions.values())), "a task or session fell apart"
    assert len(set.union(*tasks.values())) == len(tasks), "two tasks were taken for one"
    assert len(set.union(*sessions.values())) == len(sessions) == 60, "two users were taken for one"


def _as_sent_back(answer: dict[str, Any], dice: random.Random) -> dict[str, Any]:
    """One of the ways in which agent frameworks write an answer into the next request."""
    message = json.loads(json.dumps(answer))
    if dice.random() < 0.5:
        message = {key: value for key, value in message.items() if value}
    for called in message.get("tool_calls", []):
        called["function"]["arguments"] = json.dumps(json.loads(called["function"]["arguments"]), indent=1)
    if isinstance(message.get("content"), str) and dice.random() < 0.5:
        message["content"] = [{"type": "text", "text": message["content"]}]
    if dice.random() < 0.5:
        message["name"] = "bot"
    return message


def test_ids_of_its_own_grow_with_time() -> None:
    """So the store's indexes of them grow at one end, however many they hold."""
    placed = Conversations(10)
    places = [placed.place(call([user(f"hi {number}")], assistant("hello"))) for number in range(100)]
    ids = [name for place in places for name in (place.session_id, place.task_id)]
    assert ids == sorted(ids)


def test_a_task_is_new_where_its_id_was_made_for_the_call() -> None:
    placed = conversations()
    steps = list(agent_turns("ann", turns=2))
    assert [placed.place(step).new_task for step in steps] == [True, False, True, False]
    assert not placed.place(call([user("hi")], assistant("hello"), task_id="theirs")).new_task
    assert placed.place(call([user("hi")], assistant("hello"), session_id="theirs")).new_task
