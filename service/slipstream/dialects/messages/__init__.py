"""Anthropic's Messages API (`/v1/messages`) and the chat form."""
