"""Claude Code as the Claude Agent SDK runs it, with a tool of one's own."""

import asyncio
import sys

from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, create_sdk_mcp_server, query, tool

mode, *questions = sys.argv[1:]


@tool("weather", "The weather in a city.", {"city": str})
async def weather(asked):
    return {"content": [{"type": "text", "text": f"sunny in {asked['city']}"}]}


options = ClaudeAgentOptions(
    model="claude-sonnet-4-5",
    mcp_servers={"forecast": create_sdk_mcp_server("forecast", tools=[weather])},
    allowed_tools=["mcp__forecast__weather"],
    include_partial_messages=mode == "stream",
)


async def main():
    for question in questions:
        async for message in query(prompt=question, options=options):
            if isinstance(message, ResultMessage):
                print(message.result)


asyncio.run(main())
