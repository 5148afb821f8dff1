"""Retrieval of the right tools among a thousand: which descriptions a request is nearest to.

Request and description become vectors, by the policy's pooled hidden states (`row_scores.pooled`) or without a model by
their words (`word_vectors`). A linear map over them is learned contrastively (InfoNCE: A. van den Oord et al., arXiv
1807.03748) against every other tool of the training set, so that the hardest negatives are among them at each step. It
begins as whitening (J. Su et al., arXiv 2103.15316): the vectors of a language model point all in nearly one direction.
What is compared is the mapped vector beside the vector itself. Requests of tools that the map has not learned from
decide in which proportion, and after how many epochs: a few hundred requests teach a map more about themselves than
about others.
"""

from __future__ import annotations

import math
import random
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from slipstream.datasets.coreset import Floats

_WORD = re.compile(r"[^\W_]+")
_EPSILON = 1e-6
_SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Proportions of the mapped vectors that are tried; with 0 they are as they were, and nothing is lost by learning."""


@dataclass(frozen=True)
class Fit:
    """Settings of the learning.

    Attributes:
        epochs: times that all requests are gone through at most, 64 at a time.
        learning_rate: of Adam, in parts of the standard deviation of the map's numbers.
        temperature: that similarities are divided by in the beginning; it is learned.
        held_out: share of the requests' tools that only decide.
    """

    epochs: int = 20
    learning_rate: float = 0.03
    temperature: float = 0.05
    held_out: float = 0.2
    seed: int = 0


@dataclass(frozen=True)
class Projection:
    """A map of vectors into the space in which requests and tools are compared.

    Attributes:
        mean: of what is mapped, shape (d,).
        weights: shape (d, k).
        share: of the mapped vector in the cosine of two results; the rest is that of the vectors as they are.
    """

    mean: Floats
    weights: Floats
    share: float = 1.0

    def __call__(self, vectors: Floats) -> Floats:
        """Map vectors of shape (n, d) to (n, k + d), in length 1."""
        mapped = _units((vectors - self.mean) @ self.weights)
        parts = [mapped * self.share**0.5, _units(vectors) * (1 - self.share) ** 0.5]
        return np.concatenate(parts, axis=1)


class ToolIndex:
    """Tools that can be searched.

    Args:
        tools: in OpenAI's form, at least one.
        embed: makes vectors of texts, shape (n, d).
        projection: None for the cosine of the vectors as they are.
    """

    def __init__(
        self,
        tools: Sequence[Mapping[str, Any]],
        embed: Callable[[Sequence[str]], Floats],
        projection: Projection | None = None,
    ) -> None:
        self.tools = tools
        self._embed = embed
        self._projection = projection
        self._vectors = self._mapped([description(tool) for tool in tools])

    def search(self, request: str, count: int = 5) -> list[Mapping[str, Any]]:
        """Return the tools that are nearest to a request, the nearest first."""
        similar = self._vectors @ self._mapped([request])[0]
        return [self.tools[place] for place in np.argsort(-similar, kind="stable")[:count]]

    def _mapped(self, texts: Sequence[str]) -> Floats:
        vectors = self._embed(texts)
        return _units(vectors) if self._projection is None else self._projection(vectors)


def description(tool: Mapping[str, Any]) -> str:
    """Return what is known of a tool as one text: its name, its description, and its parameters with theirs."""
    function = tool.get("function") or tool
    properties = (function.get("parameters") or {}).get("properties") or {}
    told = [f"{name} {each.get('description') or ''}" for name, each in properties.items() if isinstance(each, Mapping)]
    return "\n".join([str(function.get("name")), str(function.get("description") or ""), *told])


def word_vectors(texts: Sequence[str], size: int = 4096) -> Floats:
    """Return the words of texts and their parts of three letters as vectors, each in a place by its hash (K. Weinberger
    et al., arXiv 0902.2206), its count by its logarithm. How rare a word is is for the whitening to find.

    Returns:
        Shape (n, size), in length 1.
    """
    found = np.zeros((len(texts), size), dtype=np.float32)
    for row, text in enumerate(texts):
        words = _WORD.findall(re.sub(r"([a-z])([A-Z])", r"\1 \2", text.replace("_", " ")).lower())
        for word in words:
            padded = f"<{word}>"
            for part in (padded, *(padded[at : at + 3] for at in range(len(padded) - 2))):
                found[row, zlib.crc32(part.encode()) % size] += 1
    return _units(np.log1p(found))


def whitening(vectors: Floats, size: int) -> Projection:
    """Return the map to the directions of greatest variance, each with variance 1.

    Args:
        vectors: shape (n, d).
        size: directions at most.
    """
    mean = vectors.mean(axis=0)
    _, values, directions = np.linalg.svd(vectors - mean, full_matrices=False)
    kept = min(size, int((values > values[0] * _EPSILON).sum()))
    scales = np.sqrt(len(vectors)) / (values[:kept] + _EPSILON)
    return Projection(mean.astype(np.float32), (directions[:kept].T * scales).astype(np.float32))


def fit(
    start: Projection, requests: Floats, tools: Floats, right: Sequence[int], settings: Fit | None = None
) -> Projection:
    """Learn a map that brings each request near its tool.

    Args:
        start: the map to begin with: the `whitening` of all tools that are to be searched, since their descriptions are
            known though no request of them may be.
        requests: shape (m, d).
        tools: shape (n, d); all of them are candidates. Tools of held-out requests are left out, or they would be
            learned as wrong ones.
        right: of each request, the place of its tool.

    Raises:
        ValueError: the shapes do not fit, or the requests are of fewer than five tools.
    """
    if requests.shape[1:] != tools.shape[1:] or len(right) != len(requests) or len(set(right)) < 5:
        raise ValueError(
            f"expected requests of at least five tools, and vectors of one size, found {requests.shape}, {tools.shape} "
            f"and places of {len(set(right))} tools"
        )
    settings = settings or Fit()
    learned, deciding = _parted(right, settings)
    weights = torch.from_numpy(start.weights).clone().requires_grad_()
    scales = torch.full((2,), -math.log(2 * settings.temperature)).requires_grad_()  # of the map, and of the vectors
    asked, offered = (torch.from_numpy(each - start.mean) for each in (requests, tools))
    plain = torch.from_numpy(_units(requests) @ _units(tools).T)
    places = torch.tensor(right)
    deviation = float(start.weights.std())
    optimizer = torch.optim.Adam(
        [
            {"params": [weights], "lr": settings.learning_rate * deviation},
            {"params": [scales], "lr": settings.learning_rate},
        ]
    )
    chance = torch.Generator().manual_seed(settings.seed)
    best = _decided(start.mean, weights, asked, offered, plain, places, deciding)
    for _ in range(settings.epochs):
        for rows in torch.split(learned[torch.randperm(len(learned), generator=chance)], 64):
            mapped = normalize(asked[rows] @ weights, dim=1) @ normalize(offered @ weights, dim=1).T
            of_map, of_vectors = scales.exp()
            loss = cross_entropy(of_map * mapped + of_vectors * plain[rows], places[rows])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        best = max(
            best, _decided(start.mean, weights, asked, offered, plain, places, deciding), key=lambda each: each[0]
        )
    return best[1]


def _parted(right: Sequence[int], settings: Fit) -> tuple[Tensor, Tensor]:
    """Places of the requests that are learned from, and of those that decide; no tool has both."""
    tools = sorted(set(right))
    count = max(1, round(len(tools) * settings.held_out))
    held = set(random.Random(settings.seed).sample(tools, count))  # noqa: S311 - a sample, no secret
    decides = torch.tensor([tool in held for tool in right])
    return torch.nonzero(~decides)[:, 0], torch.nonzero(decides)[:, 0]


@torch.no_grad()
def _decided(
    mean: Floats, weights: Tensor, asked: Tensor, offered: Tensor, plain: Tensor, places: Tensor, rows: Tensor
) -> tuple[float, Projection]:
    """The best proportion for a map, with its mean reciprocal rank of the right tools."""
    mapped = normalize(asked[rows] @ weights, dim=1) @ normalize(offered @ weights, dim=1).T
    found = []
    for share in _SHARES:
        similar = share * mapped + (1 - share) * plain[rows]
        ranks = (similar >= similar.gather(1, places[rows, None])).sum(dim=1)
        found.append((float((1 / ranks).mean()), share))
    value, share = max(found, key=lambda each: each[0])
    return value, Projection(mean, weights.detach().numpy().copy(), share)


def recall_at(requests: Floats, tools: Floats, right: Sequence[int], counts: Sequence[int]) -> dict[int, float]:
    """Return the share of requests whose tool is among so many nearest ones, for each count.

    Args:
        requests, tools: as they are compared: shapes (m, k) and (n, k), in length 1. Of tools that are equally near,
            those that are not right go first.
    """
    similar = requests @ tools.T
    own = similar[np.arange(len(right)), list(right)][:, None]
    before = (similar >= own).sum(axis=1) - 1
    return {count: float((before < count).mean()) for count in counts}


def _units(vectors: Any) -> Floats:
    return np.asarray(vectors / (np.linalg.norm(vectors, axis=1, keepdims=True) + _EPSILON), dtype=np.float32)
