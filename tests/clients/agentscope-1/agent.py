"""A ReAct agent of AgentScope 1."""

import asyncio
import os
import sys

from agentscope.agent import ReActAgent
from agentscope.formatter import OpenAIChatFormatter, OpenAIResponseChatFormatter
from agentscope.memory import InMemoryMemory
from agentscope.message import Msg, TextBlock
from agentscope.model import OpenAIChatModel, OpenAIResponseModel
from agentscope.tool import Toolkit, ToolResponse

dialect, mode, *questions = sys.argv[1:]
own = {"stream": mode == "stream", "client_kwargs": {"base_url": os.environ["OPENAI_BASE_URL"]}}


def weather(city: str) -> ToolResponse:
    """The weather in a city.

    Args:
        city (str): the city
    """
    return ToolResponse(content=[TextBlock(type="text", text=f"sunny in {city}")])


async def run(question):
    toolkit = Toolkit()
    toolkit.register_tool_function(weather)
    if dialect == "chat":
        model, formatter = OpenAIChatModel(model_name="gpt-4o", **own), OpenAIChatFormatter()
    else:
        model, formatter = OpenAIResponseModel(model_name="gpt-5", **own), OpenAIResponseChatFormatter()
    agent = ReActAgent(
        name="forecaster",
        sys_prompt="Answer briefly.",
        model=model,
        formatter=formatter,
        toolkit=toolkit,
        memory=InMemoryMemory(),
    )
    agent.set_console_output_enabled(False)
    return (await agent(Msg("user", question, "user"))).get_text_content()


async def main():
    for question in questions:
        print(await run(question))


asyncio.run(main())
