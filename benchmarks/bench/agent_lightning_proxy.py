"""Agent Lightning's LLM proxy with its store in memory, in front of one URL. Run by its own environment's python.

Arguments: port, LiteLLM's parameters of the model as JSON, the model's name.
"""

from __future__ import annotations

import asyncio
import json
import sys

from agentlightning import InMemoryLightningStore, LLMProxy


async def main(port: int, parameters: dict[str, str], model: str) -> None:
    """Serve until it is killed. In a thread, so that its store may be the one in memory, as its documents show."""
    proxy = LLMProxy(
        port=port,
        host="127.0.0.1",
        launch_mode="thread",
        store=InMemoryLightningStore(thread_safe=True),
        model_list=[{"model_name": model, "litellm_params": parameters}],
    )
    await proxy.start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3]))
