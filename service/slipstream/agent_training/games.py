"""Games of several agents, for self-play, and how often one side wins."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from slipstream.agent_training.scenario_rewards import GameReward
from slipstream.trajectory import Message

Agent = Callable[[Sequence[Message]], str]
"""Answers a prompt."""


class GameState(Protocol):
    """One game, while it is played.

    Attributes:
        player: whose turn it is, as the game names players.
        done: whether the game has ended.
    """

    @property
    def player(self) -> Any: ...

    @property
    def done(self) -> bool: ...

    def role(self, player: Any) -> str:
        """Return the role of a player."""

    def prompt(self) -> Sequence[Message]:
        """Return the chat messages for the player whose turn it is."""

    def act(self, said: str) -> None:
        """Take the turn."""

    def score(self, role: str) -> Mapping[str, float]:
        """Return the parts of the reward of a role's side, such as `team_win`, each in [0, 1]."""


class Episode(NamedTuple):
    """A game that was played.

    Attributes:
        seed: of what chance decided.
        scores: the parts of the reward, by role.
        turns: of each agent, by its name: the prompt and what it said.
    """

    seed: int
    scores: Mapping[str, Mapping[str, float]]
    turns: Mapping[str, Sequence[tuple[Sequence[Message], str]]]


class WinRate(NamedTuple):
    """A share of games won, with its 95% interval."""

    rate: float
    low: float
    high: float
    episodes: int


class MultiAgentGame:
    """A game of agents in roles.

    Args:
        roles: the number of players of each role.
        agents: by their names. A role is played by the agents whose names begin with it, in their order: `werewolf_1`,
            `werewolf_2`.
        start: begins a game of a seed.

    Raises:
        ValueError: a role has another number of agents.
    """

    def __init__(
        self, roles: Mapping[str, int], agents: Mapping[str, Agent], start: Callable[[int], GameState], seed: int = 0
    ) -> None:
        self._names = {role: [name for name in agents if name.startswith(f"{role}_")] for role in roles}
        for role, count in roles.items():
            if len(self._names[role]) != count:
                raise ValueError(f"agents: expected {count} named {role}_..., found {len(self._names[role])}")
        self._agents = agents
        self._start = start
        self._seed = seed

    def run_episode(self) -> Episode:
        """Play one game, each time another one."""
        seed, self._seed = self._seed, self._seed + 1
        game = self._start(seed)
        names: dict[Any, str] = {}
        left = {role: list(names) for role, names in self._names.items()}
        turns: dict[str, list[tuple[Sequence[Message], str]]] = {name: [] for name in self._agents}
        while not game.done:
            player = game.player
            if player not in names:
                names[player] = left[game.role(player)].pop(0)
            prompt = game.prompt()
            said = self._agents[names[player]](prompt)
            turns[names[player]].append((prompt, said))
            game.act(said)
        return Episode(seed, {role: game.score(role) for role in self._names}, turns)


class GameTrainer:
    """Gathers the games of one side with their rewards, as trajectories for a sidecar or a file.

    Args:
        agents: names of the agents that are trained.
        role: that they play.
    """

    def __init__(self, agents: Sequence[str], role: str, reward_function: Mapping[str, float] | None = None) -> None:
        self.agents = tuple(agents)
        self._role = role
        self._reward = GameReward(reward_function)

    def trajectories(self, episode: Episode) -> list[dict[str, Any]]:
        """Return the trajectory of each agent that is trained: its turns, and the reward of its side."""
        reward = self._reward.score(episode.scores[self._role])
        return [
            {
                "conversation_id": f"game-{episode.seed}-{name}",
                "turns": [
                    {"messages": [*prompt, {"role": "assistant", "content": said}]}
                    for prompt, said in episode.turns.get(name, ())
                ],
                "rewards": dict(reward.breakdown),
                "total_reward": reward.breakdown["worth"],
                "reward": reward.value,
            }
            for name in self.agents
        ]


def evaluate_win_rate(game: MultiAgentGame, role: str, episodes: int = 100) -> WinRate:
    """Play games, and return how often a role's side won (`team_win` of 1)."""
    if episodes < 1:
        raise ValueError(f"episodes: expected 1 or more, found {episodes}")
    won = sum(game.run_episode().scores[role].get("team_win", 0.0) == 1 for _ in range(episodes))
    return WinRate(won / episodes, *wilson(won / episodes, episodes), episodes)


def wilson(rate: float, trials: float) -> tuple[float, float]:
    """The 95% score interval of a rate (E. B. Wilson, 1927)."""
    z = 1.959964
    middle = (rate + z * z / (2 * trials)) / (1 + z * z / trials)
    half = z / (1 + z * z / trials) * math.sqrt(rate * (1 - rate) / trials + z * z / (4 * trials * trials))
    return middle - half, middle + half
