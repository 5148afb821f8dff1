"""An agent of AgentScope 2."""

import asyncio
import os
import sys

from agentscope.agent import Agent
from agentscope.credential import OpenAICredential
from agentscope.message import UserMsg
from agentscope.model import OpenAIChatModel
from agentscope.permission import PermissionContext, PermissionMode
from agentscope.state import AgentState
from agentscope.tool import FunctionTool, Toolkit


def weather(city: str) -> str:
    """The weather in a city.

    Args:
        city (str): the city
    """
    return f"sunny in {city}"


async def run(question, stream):
    credential = OpenAICredential(api_key=os.environ["OPENAI_API_KEY"], base_url=os.environ["OPENAI_BASE_URL"])
    agent = Agent(
        name="forecaster",
        system_prompt="Answer briefly.",
        model=OpenAIChatModel(credential, "gpt-4o", stream=stream),
        toolkit=Toolkit([FunctionTool(weather)]),
        state=AgentState(permission_context=PermissionContext(mode=PermissionMode.BYPASS)),
    )
    return (await agent.reply(UserMsg("user", question))).get_text_content()


async def main():
    for question in sys.argv[2:]:
        print(await run(question, sys.argv[1] == "stream"))


asyncio.run(main())
