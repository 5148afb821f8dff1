"""An agent of AgentScope 2."""

import asyncio
import os
import sys

from agentscope.agent import Agent
from agentscope.credential import AnthropicCredential, OpenAICredential
from agentscope.message import UserMsg
from agentscope.model import AnthropicChatModel, OpenAIChatModel, OpenAIResponseModel
from agentscope.permission import PermissionContext, PermissionMode
from agentscope.state import AgentState
from agentscope.tool import FunctionTool, Toolkit

dialect, mode, *questions = sys.argv[1:]


def weather(city: str) -> str:
    """The weather in a city.

    Args:
        city (str): the city
    """
    return f"sunny in {city}"


def model(stream):
    if dialect == "messages":
        credential = AnthropicCredential(
            api_key=os.environ["ANTHROPIC_API_KEY"], base_url=os.environ["ANTHROPIC_BASE_URL"]
        )
        return AnthropicChatModel(credential, "claude-sonnet-4-5", stream=stream)
    credential = OpenAICredential(api_key=os.environ["OPENAI_API_KEY"], base_url=os.environ["OPENAI_BASE_URL"])
    if dialect == "responses":
        return OpenAIResponseModel(credential, "gpt-5", stream=stream)
    return OpenAIChatModel(credential, "gpt-4o", stream=stream)


async def run(question):
    agent = Agent(
        name="forecaster",
        system_prompt="Answer briefly.",
        model=model(mode == "stream"),
        toolkit=Toolkit([FunctionTool(weather)]),
        state=AgentState(permission_context=PermissionContext(mode=PermissionMode.BYPASS)),
    )
    return (await agent.reply(UserMsg("user", question))).get_text_content()


async def main():
    for question in questions:
        print(await run(question))


asyncio.run(main())
