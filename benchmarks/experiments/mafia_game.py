"""textarena's SecretMafia for a small model: six players, short prompts, and what a game was worth to the mafia.

Two players are the mafia; the village is a doctor, a detective and two villagers. A prompt is the player's role, the
last few things that it heard, and what is asked of it now, all in textarena's own words but for the role's.
"""

from __future__ import annotations

import random
import re
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from textarena.core import GAME_ID, ObservationType
from textarena.envs.SecretMafia.env import Phase, SecretMafiaEnv, VoteHandler

from slipstream.rewards.part_weights import PartWeights

PLAYERS = 6
MAFIA = 2
MOST_TURNS = 80  # a game of six has at most 38 turns, and twice as many where each is first taken wrongly
_REMEMBERED = 3  # of what a player heard, the latest; each more costs a CPU time in every prompt
_LONGEST = 60  # characters of what a player says

_ROLES = {
    "Mafia": "the Mafia, and so is {mate}. Never vote for {me} or {mate}.",
    "Doctor": "the Doctor of the village. Find the Mafia.",
    "Detective": "the Detective of the village. Find the Mafia.",
    "Villager": "a Villager. Find the Mafia.",
}
_QUESTIONS = {
    Phase.NIGHT_MAFIA: "Night. Whom do you kill?",
    Phase.NIGHT_DOCTOR: "Night. Whom do you protect?",
    Phase.NIGHT_DETECTIVE: "Night. Whom do you look into?",
    Phase.DAY_DISCUSSION: "Day. Say one short sentence.",
    Phase.DAY_VOTING: "Day. Who is to be out?",
}
_EXAMPLE = [
    {"role": "user", "content": "Day. Who is to be out? [6] [7] [8] [9]"},
    {"role": "assistant", "content": "[7]"},
]
"""Without it nearly no vote of a model of this size can be read. No game has these players."""

WEIGHTS = {"won": 10.0, "survived": 5.0, "blamed": 2.0, "exposed": -5.0}
"""What a game is worth to the mafia, part by part; `reward` brings the sum into [0, 1]."""

_ASKS = re.compile(r"\[|^Day breaks")  # what textarena asks for in its own words, which `_QUESTIONS` stand for

Message = dict[str, str]


@dataclass(frozen=True)
class Score:
    """A finished game as the mafia sees it; each is in [0, 1].

    Attributes:
        won: whether the village is outnumbered.
        survived: the share of the mafia alive in the end.
        blamed: whether a vote of the day hit the village.
        exposed: the share of the mafia that the days' votes hit.
        valid: the share of the mafia's votes that were legal, second tries among them.
        sensible: the share of the mafia's votes that were for the village.
    """

    won: float
    survived: float
    blamed: float
    exposed: float
    valid: float
    sensible: float

    @property
    def reward(self) -> float:
        return PartWeights(WEIGHTS).reward({part: getattr(self, part) for part in WEIGHTS}).value


class Game:
    """One game. All that chance decides in it (roles, order of turns, ties) comes from `seed`.

    Attributes:
        player: whose turn it is.
        done: whether the game has ended.
    """

    def __init__(self, seed: int) -> None:
        self._env = SecretMafiaEnv(mafia_ratio=MAFIA / PLAYERS, discussion_rounds=1)
        self._chance = random.Random(seed).getstate()
        with self._own_chance():
            self._env.reset(num_players=PLAYERS)
        self._heard: dict[int, deque[str]] = {player: deque(maxlen=_REMEMBERED) for player in range(PLAYERS)}
        self._turns = 0
        self._votes: list[tuple[bool, bool]] = []  # of the mafia: legal, for the village
        self.done = False
        self._listen()

    @property
    def player(self) -> int:
        return int(self._env.state.current_player_id)

    @property
    def is_mafia(self) -> bool:
        """Whether the player whose turn it is belongs to the mafia."""
        return self._role(self.player) == "Mafia"

    @property
    def is_vote(self) -> bool:
        """Whether the turn is to name a player; else it is to say something."""
        return self._env.phase is not Phase.DAY_DISCUSSION

    @property
    def roles(self) -> dict[int, str]:
        return dict(self._env.player_roles)

    @property
    def alive(self) -> list[int]:
        return list(self._env.state.game_state["alive_players"])

    def prompt(self) -> list[Message]:
        """Chat messages for the player whose turn it is."""
        mates = [f"[{each}]" for each in range(PLAYERS) if each != self.player and self._is_mafia(each)]
        role = _ROLES[self._role(self.player)].format(me=f"[{self.player}]", mate=mates[0])
        question = " ".join([_QUESTIONS[self._env.phase], *(f"[{each}]" for each in self._targets())])
        return [
            {"role": "system", "content": f"A game of Secret Mafia. You are [{self.player}], {role}"},
            *(_EXAMPLE if self.is_vote else []),
            {"role": "user", "content": "\n".join([*self._heard[self.player], question])},
        ]

    def act(self, said: str) -> None:
        """Takes the turn. A vote that is not legal is asked for once more; after that the player is out."""
        said = " ".join(said.split())[:_LONGEST]
        if self.is_mafia and self.is_vote:
            target = VoteHandler.parse(said)
            legal = target in self.alive
            self._votes.append((legal, legal and not self._is_mafia(target)))
        with self._own_chance():
            self.done, _ = self._env.step(said)
        self._turns += 1
        self.done = self.done or self._turns >= MOST_TURNS
        if not self.done:
            self._listen()

    def score(self) -> Score:
        """What the game was worth to the mafia; one that was cut short counts as not won."""
        mafia = [player for player in range(PLAYERS) if self._is_mafia(player)]
        rewards = self._env.state.rewards or {}
        said = [message for source, message in self._env.state.logs if source == GAME_ID]
        voted_out = [player for player in range(PLAYERS) if f"Player {player} was eliminated by vote." in said]
        votes = max(len(self._votes), 1)
        return Score(
            won=float(rewards.get(mafia[0], 0) > 0),
            survived=sum(player in self.alive for player in mafia) / len(mafia),
            blamed=float(any(player not in mafia for player in voted_out)),
            exposed=sum(player in mafia for player in voted_out) / len(mafia),
            valid=sum(legal for legal, _ in self._votes) / votes,
            sensible=sum(sensible for _, sensible in self._votes) / votes,
        )

    def _role(self, player: int) -> str:
        return str(self._env.player_roles[player])

    def _is_mafia(self, player: int) -> bool:
        return self._role(player) == "Mafia"

    def _targets(self) -> list[int]:
        """Whom the player whose turn it is may name; a player may name itself by day."""
        if not self.is_vote:
            return []
        if self._env.phase is Phase.DAY_VOTING:
            return self.alive
        return [each for each in self.alive if each != self.player and not (self.is_mafia and self._is_mafia(each))]

    def _listen(self) -> None:
        """Takes what the player whose turn it is heard since its last turn: what happened, and what others said."""
        for source, message, kind in self._env.state.get_current_player_observation():
            if source != GAME_ID and kind is ObservationType.PLAYER_ACTION and source != self.player:
                self._heard[self.player].append(f"[{source}]: {message}")
            elif kind is ObservationType.GAME_MESSAGE and not _ASKS.search(message):
                self._heard[self.player].append(message)

    @contextmanager
    def _own_chance(self) -> Iterator[None]:
        """textarena draws from Python's one generator, which games that are played side by side would share."""
        outside = random.getstate()
        random.setstate(self._chance)
        try:
            yield
        finally:
            self._chance = random.getstate()
            random.setstate(outside)
