"""Trinity's own TrinityClient, used as it is: run by `.trinity-venv/bin/python use_trinity_client.py URL`.

Does what an agent does with it, each call in both of its forms, and prints what came of it as JSON. The module is
loaded from its file: as part of its package it would bring all of Trinity along.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import importlib.util
import json
import sys
from typing import Any

_CHAT: dict[str, Any] = {"model": "policy", "messages": [{"role": "user", "content": "hello"}]}


def client_class() -> Any:
    files = importlib.metadata.files("trinity-rft") or []
    [path] = [file.locate() for file in files if str(file).endswith("explorer/proxy/client.py")]
    spec = importlib.util.spec_from_file_location("trinity_client", str(path))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.TrinityClient


async def main(url: str) -> dict[str, Any]:
    client = client_class()(url)
    found: dict[str, Any] = {"task_id": client.task_id, "alive": client.alive()}
    completion = client.get_openai_client().chat.completions.create(**_CHAT)
    streamed = await client.get_openai_async_client().chat.completions.create(**_CHAT, stream=True)
    chunks = [chunk async for chunk in streamed]
    found["answers"] = {
        completion.id: completion.choices[0].message.content,
        chunks[0].id: "".join(chunk.choices[0].delta.content or "" for chunk in chunks),
    }
    found["feedback"] = [
        client.feedback(reward=0.0, msg_ids=[completion.id]),
        await client.feedback_async(reward=1.0, msg_ids=[chunks[0].id]),
    ]
    found["commit"] = [client.commit(), await client.commit_async()]
    found["metrics"] = [client.get_metrics(), await client.get_metrics_async()]
    return found


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(sys.argv[1]))))
