"""The game of SecretMafia as the experiment plays it, with scripted players."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from itertools import count

import pytest
from experiments.mafia_game import MAFIA, PLAYERS, Game, Score
from experiments.secret_mafia import play
from scripted import completion
from serving import serving
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from slipstream_client.tuner.model import TunerModel

Player = Callable[[Game], str]


def offered(game: Game) -> list[int]:
    """Whom the player is asked to choose from."""
    return [int(number) for number in re.findall(r"\[(\d)\]", game.prompt()[-1]["content"].splitlines()[-1])]


def first(game: Game, team: str) -> str:
    """A vote for the first of a team; where there is none, or nothing is asked, whatever comes."""
    mafia = {player for player, role in game.roles.items() if role == "Mafia"}
    wanted = [player for player in offered(game) if (player in mafia) == (team == "Mafia")]
    return f"[{[*wanted, *offered(game), 0][0]}]"


def first_villager(game: Game) -> str:
    return first(game, "Village")


def first_mafia(game: Game) -> str:
    return first(game, "Mafia")


def illegible(game: Game) -> str:
    return "I would rather not say."


def played(mafia: Player, village: Player, seed: int = 7) -> Score:
    game = Game(seed)
    while not game.done:
        game.act(mafia(game) if game.is_mafia else village(game))
    return game.score()


def test_there_are_two_mafia_and_four_of_the_village() -> None:
    for seed in range(5):
        roles = list(Game(seed).roles.values())
        assert len(roles) == PLAYERS == 6
        assert roles.count("Mafia") == MAFIA == 2


def test_a_mafia_that_everyone_votes_with_wins_everything() -> None:
    score = played(first_villager, first_villager)

    assert score == Score(won=1, survived=1, blamed=score.blamed, exposed=0, valid=1, sensible=1)
    assert score.blamed == 1
    assert score.reward == pytest.approx(1.0)


def test_a_mafia_that_the_village_sees_through_loses_everything() -> None:
    score = played(first_villager, first_mafia)

    assert (score.won, score.exposed, score.survived, score.blamed) == (0, 1, 0, 0)
    assert score.reward == pytest.approx(0.0)


def test_a_mafia_that_cannot_vote_is_out_without_being_exposed() -> None:
    score = played(illegible, first_mafia)

    assert score == Score(won=0, survived=0, blamed=0, exposed=0, valid=0, sensible=0)
    assert score.reward == pytest.approx(5 / 22)


def test_a_game_ends_though_nobody_says_anything_that_can_be_read() -> None:
    assert played(illegible, illegible).won == 0


def test_a_game_has_its_own_chance_and_leaves_pythons_alone() -> None:
    random.seed(1)
    before = random.getstate()
    alone = [played(first_villager, illegible, seed) for seed in range(5)]
    games = [Game(seed) for seed in range(5)]
    for turn in count():  # side by side
        if all(game.done for game in games):
            break
        game = games[turn % 5]
        if not game.done:
            game.act(first_villager(game) if game.is_mafia else illegible(game))

    assert [game.score() for game in games] == alone
    assert random.getstate() == before


def test_a_prompt_says_who_one_is_and_whom_one_may_choose() -> None:
    game = Game(7)
    assert game.is_mafia  # the mafia begins, by night
    mates = [player for player, role in game.roles.items() if role == "Mafia"]
    system, *_, question = game.prompt()

    assert f"You are [{game.player}], the Mafia" in system["content"]
    assert all(f"[{mate}]" in system["content"] for mate in mates)
    assert question["content"].startswith("Night. Whom do you kill?")
    assert set(offered(game)) == set(range(PLAYERS)) - set(mates)


def test_what_was_said_and_done_is_heard_but_for_the_mafias_night() -> None:
    game = Game(7)
    heard = []
    while game.is_vote:  # the first night
        game.act(first_villager(game) if game.is_mafia else first_mafia(game))
    game.act("I saw nothing.")
    while not game.is_vote:
        heard.append((game.is_mafia, game.prompt()[-1]["content"]))
        game.act("Nor did I.")

    assert "was killed during the night." in heard[0][1]
    assert "I saw nothing." in heard[0][1]
    assert [bool(re.search(r"\]: \[", text)) for is_mafia, text in heard if not is_mafia] == [False] * 2


async def test_the_tuned_model_plays_the_mafia_and_the_frozen_one_the_village() -> None:
    prompts: dict[str, list[str]] = {"policy": [], "frozen": []}

    async def chat(request: Request) -> JSONResponse:
        body = await request.json()
        prompts[body["model"]].append(body["messages"][0]["content"])
        numbers = re.findall(r"\[\d\]", body["messages"][-1]["content"].splitlines()[-1])
        return JSONResponse(completion("m", numbers[0] if numbers else "Good day."))

    async with serving(Starlette(routes=[Route("/v1/chat/completions", chat, methods=["POST"])])) as url:
        policy, frozen = (TunerModel(f"{url}/v1", name, timeout=30) for name in ("policy", "frozen"))
        try:
            output = await play({"seed": 3}, policy, {"villagers": frozen})
        finally:
            await policy.close()
            await frozen.close()

    assert output.metrics is not None
    assert output.metrics["valid"] == 1
    assert output.reward == pytest.approx(Score(**output.metrics).reward)
    assert prompts["policy"]
    assert all("the Mafia, and so is" in each for each in prompts["policy"])
    assert prompts["frozen"]
    assert not any("the Mafia, and so is" in each for each in prompts["frozen"])
