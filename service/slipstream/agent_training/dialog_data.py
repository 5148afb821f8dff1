"""Dialogs made ready for supervised training, under the articles' names."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypedDict

from slipstream.datasets.dialog_measures import ProcessedDialog, processed, task_type
from slipstream.datasets.dialogs import Dialog, messages_of, tagged
from slipstream.datasets.replay import Reservoir, mixed
from slipstream.datasets.row import Provenance, Source
from slipstream.tenants import DEFAULT
from slipstream.trajectory import message_text

TEMPLATE = """<|system|>
You are an assistant that uses tools to do tasks of several steps.
Tools:
{tools}
<|user|>
{query}
<|assistant|>
"""


class FormattedDialog(TypedDict):
    """A dialog as two texts.

    Attributes:
        input: tools and request, up to where the assistant begins.
        output: thoughts, calls, results and answers, with tags.
    """

    input: str
    output: str
    task_type: str
    metadata: dict[str, Any]


class AgentSFTFormatter:
    """Formats dialogs.

    Args:
        tools: descriptions of tools in OpenAI's form, by the names that `target_tools` of a dialog has.
    """

    def __init__(self, tools: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        self._tools = tools or {}

    def format_dialog(self, dialog: Dialog) -> FormattedDialog:
        """Return a dialog as two texts, for programs that train on texts. Here training takes rows (`as_chat`): these
        texts are not what the model is asked and answers when it is served, and the second one has tools' results,
        which are not to be taught.

        Raises:
            DialogError: a turn cannot be read.
        """
        messages = messages_of(dialog)
        said = [place for place, message in enumerate(messages) if message["role"] == "assistant"]
        first = said[0] if said else len(messages)
        query = "\n".join(message_text(message) for message in messages[:first] if message["role"] == "user")
        described = "\n".join(_described(tool) for tool in self._offered(dialog))
        return {
            "input": TEMPLATE.format(tools=described or "none", query=query),
            "output": tagged(messages[first:]),
            "task_type": task_type(dialog, messages),
            "metadata": dict(dialog.metadata),
        }

    def as_chat(self, dialog: Dialog) -> dict[str, Any]:
        """Return a dialog as a line of OpenAI's chat format: what `slipstream dataset import` reads.

        Raises:
            DialogError: a turn cannot be read.
        """
        tools = self._offered(dialog)
        return {"messages": messages_of(dialog), **({"tools": tools} if tools else {})}

    def _offered(self, dialog: Dialog) -> list[Mapping[str, Any]]:
        return list(dialog.tools) or [self._tools[name] for name in dialog.target_tools if name in self._tools]


class AgentDialogProcessor:
    """Makes rows of dialogs and measures them.

    Args:
        count: the number of tokens of a text; by default its words.
        tenant: whose the dialogs are.
    """

    def __init__(self, count: Callable[[str], int] | None = None, tenant: str = DEFAULT) -> None:
        self._count = count
        self._tenant = tenant

    def process(self, dialog: Dialog) -> ProcessedDialog:
        """Return a dialog with its rows and measures. A `loss` in its metadata is kept; without one it is None until a
        model has measured it: the length of a text says little about how hard it is.

        Raises:
            DialogError: it cannot be read, or teaches nothing.
        """
        name = dialog.dialog_id
        origin = Provenance(
            task=name, session=name, tenant=self._tenant, source=Source.PRODUCTION, models=("dialogs",), rewards=(None,)
        )
        return processed(dialog, origin, self._count)

    def process_all(self, dialogs: Iterable[Dialog]) -> list[ProcessedDialog]:
        """Process dialogs, in their order."""
        return [self.process(dialog) for dialog in dialogs]


class CoresetSelector:
    """Selects dialogs by `datasets/coreset.py`, which needs numpy.

    Args:
        strategy: `loss_topk`, `diversity`, `hybrid` or `random`.
    """

    def __init__(self, strategy: str = "hybrid", target_size: int = 8000, seed: int = 0) -> None:
        from slipstream.datasets.config import Coreset

        self._coreset = Coreset.model_validate({"strategy": strategy, "size": target_size, "seed": seed})

    def select(
        self,
        dialogs: Sequence[ProcessedDialog],
        embed: Callable[[Sequence[str]], Any] | None = None,
    ) -> list[ProcessedDialog]:
        """Return the selected dialogs, in their order.

        Args:
            dialogs: those with a `reward` below the median of all that have one in their metadata are not selected for
                their loss.
            embed: makes vectors of texts, shape (n, d); by default those of their words.

        Raises:
            ValueError: a strategy that goes by losses, and a dialog without one.
        """
        import numpy as np

        from slipstream.datasets.coreset import RowScores, choose, needs_scores, size_of

        scores = None
        if needs_scores(self._coreset) and size_of(self._coreset, len(dialogs)) < len(dialogs):
            by_loss = self._coreset.strategy != "diversity"
            lacking = [place for place, dialog in enumerate(dialogs) if dialog.loss is None]
            if by_loss and lacking:
                raise ValueError(
                    f"loss: expected one of each dialog for {self._coreset.strategy}, found none of dialog "
                    f"{lacking[0]}: measure them (embedded/row_scores.py) or say them in their metadata"
                )
            losses = np.array([dialog.loss or 0.0 for dialog in dialogs], dtype=np.float32)
            scores = RowScores(losses, (embed or _word_vectors)([dialog.text for dialog in dialogs]))
        rewards = [dialog.metadata.get("reward") for dialog in dialogs]
        return [dialogs[place] for place in choose(self._coreset, rewards, scores)]


class OnlineContinualLearner:
    """Mixes what was trained on before into what is new.

    Args:
        buffer_size: items that are kept, a sample of all that came.
        replay_ratio: share of them in what is trained on.
    """

    def __init__(self, buffer_size: int = 4096, replay_ratio: float = 0.3, seed: int = 0) -> None:
        if not 0 <= replay_ratio < 1:
            raise ValueError(f"replay_ratio: expected a share from 0 to below 1, found {replay_ratio}")
        self.buffer: Reservoir[Any] = Reservoir(buffer_size, seed)
        self._ratio = replay_ratio
        self._seeds = random.Random(seed)  # noqa: S311 - a sample, no secret

    def mix(self, new: Sequence[Any]) -> list[Any]:
        """Return the new items with kept ones among them, shuffled, and keep a sample of the new ones for later."""
        both = mixed(new, self.buffer.items, self._ratio, self._seeds.getrandbits(32))
        for item in new:
            self.buffer.add(item)
        return both


def _word_vectors(texts: Sequence[str]) -> Any:
    from slipstream.embedded.tool_retrieval import word_vectors  # imports torch

    return word_vectors(texts)


def _described(tool: Mapping[str, Any]) -> str:
    function = tool.get("function") or tool
    return f"- {function.get('name')}: {function.get('description') or ''}"
