"""The Messages API as a dialect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from slipstream.dialects.body import Reason
from slipstream.dialects.chat import is_conversation
from slipstream.dialects.form import ChatForm, Held, Unsayable
from slipstream.dialects.messages import stream
from slipstream.dialects.messages.answer import chat_completion, message_object
from slipstream.dialects.messages.findings import Findings
from slipstream.dialects.messages.request import chat_request, history_of

_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}


_ERROR_CODES = {"history_unseen": "thread_not_found"}
"""Codes of ours that the SDKs know by another name. After this one they send the whole conversation again."""


class MessagesTranslator:
    """A `Translator` of Anthropic's Messages API."""

    def is_request(self, request: Mapping[str, Any]) -> bool:
        """A request for no token at all only fills the provider's cache; one that goes on in a thread may say nothing
        new, as after an answer that was paused."""
        asked, messages = request.get("max_tokens"), request.get("messages")
        if type(asked) is int and asked == 0:
            return False
        return is_conversation(messages) or (messages == [] and history_of(request) is not None)

    def assemble(self, body: bytes, request: Mapping[str, Any]) -> dict[str, Any]:
        return stream.assemble(body)

    def flaw(self, answer: Mapping[str, Any], request: Mapping[str, Any], *, whole: bool) -> Reason | None:
        content = answer.get("content")
        is_message = isinstance(content, list) and all(isinstance(block, dict) for block in content)
        if answer.get("type", "message") != "message" or answer.get("error") or not is_message:
            return "no_answer"
        reason = answer.get("stop_reason")
        return None if isinstance(reason, str) and reason else "incomplete"

    def history(self, request: Mapping[str, Any]) -> str | None:
        return history_of(request)

    def chat_form(self, request: Mapping[str, Any], answer: Mapping[str, Any], earlier: Held | None = None) -> ChatForm:
        found = Findings()
        asked = chat_request(request, earlier, found)
        return ChatForm(asked, chat_completion(answer, found), found.problem)

    def chat_request(self, request: Mapping[str, Any], earlier: Held | None = None) -> dict[str, Any]:
        found = Findings()
        asked = chat_request(request, earlier, found)
        if found.first is not None:
            raise Unsayable(*found.first)
        return asked

    def answer(self, completion: Mapping[str, Any], request: Mapping[str, Any]) -> dict[str, Any]:
        return message_object(completion, request)

    def stream(self, answer: Mapping[str, Any]) -> Iterator[bytes]:
        return stream.stream(answer)

    def error(self, status: int, message: str, code: str | None, param: str | None) -> dict[str, Any]:
        kind = _ERROR_TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
        # the code and the place as in all errors of the sidecar, and the code where Anthropic's SDK looks for one
        error: dict[str, Any] = {"type": kind, "message": message, "code": code, "param": param}
        if code is not None:
            error["details"] = {"error_code": _ERROR_CODES.get(code, code)}
        return {"type": "error", "error": error}
