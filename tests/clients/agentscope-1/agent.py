"""A ReAct agent of AgentScope 1."""

import asyncio
import os
import sys

from agentscope.agent import ReActAgent
from agentscope.formatter import OpenAIChatFormatter
from agentscope.memory import InMemoryMemory
from agentscope.message import Msg, TextBlock
from agentscope.model import OpenAIChatModel
from agentscope.tool import Toolkit, ToolResponse


def weather(city: str) -> ToolResponse:
    """The weather in a city.

    Args:
        city (str): the city
    """
    return ToolResponse(content=[TextBlock(type="text", text=f"sunny in {city}")])


async def run(question, stream):
    toolkit = Toolkit()
    toolkit.register_tool_function(weather)
    agent = ReActAgent(
        name="forecaster",
        sys_prompt="Answer briefly.",
        model=OpenAIChatModel(
            model_name="gpt-4o", stream=stream, client_kwargs={"base_url": os.environ["OPENAI_BASE_URL"]}
        ),
        formatter=OpenAIChatFormatter(),
        toolkit=toolkit,
        memory=InMemoryMemory(),
    )
    agent.set_console_output_enabled(False)
    return (await agent(Msg("user", question, "user"))).get_text_content()


async def main():
    for question in sys.argv[2:]:
        print(await run(question, sys.argv[1] == "stream"))


asyncio.run(main())
