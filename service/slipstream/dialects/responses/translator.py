"""The dialect as a `Translator`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from slipstream.dialects.body import Reason
from slipstream.dialects.form import ChatForm, Held, Unsayable
from slipstream.dialects.responses.answer import response_of
from slipstream.dialects.responses.assembly import assemble
from slipstream.dialects.responses.completion import completion_of, flaw
from slipstream.dialects.responses.request import chat_request, history, is_request
from slipstream.dialects.responses.stream import stream
from slipstream.errors import error_body


class ResponsesTranslator:
    """The `Translator` of `/v1/responses`."""

    def is_request(self, request: Mapping[str, Any]) -> bool:
        return is_request(request)

    def assemble(self, body: bytes, request: Mapping[str, Any]) -> dict[str, Any]:
        return assemble(body)

    def flaw(self, answer: Mapping[str, Any], request: Mapping[str, Any], *, whole: bool) -> Reason | None:
        return flaw(answer, whole=whole)

    def history(self, request: Mapping[str, Any]) -> str | None:
        return history(request)

    def chat_form(self, request: Mapping[str, Any], answer: Mapping[str, Any], earlier: Held | None = None) -> ChatForm:
        problems: list[Unsayable] = []
        form = ChatForm(chat_request(request, earlier, problems), completion_of(answer, problems))
        return form._replace(problem=problems[0].problem) if problems else form

    def chat_request(self, request: Mapping[str, Any], earlier: Held | None = None) -> dict[str, Any]:
        problems: list[Unsayable] = []
        asked = chat_request(request, earlier, problems)
        if problems:
            raise problems[0]
        return asked

    def answer(self, completion: Mapping[str, Any], request: Mapping[str, Any]) -> dict[str, Any]:
        return response_of(completion, request)

    def stream(self, answer: Mapping[str, Any]) -> Iterator[bytes]:
        return stream(answer)

    def error(self, status: int, message: str, code: str | None, param: str | None) -> dict[str, Any]:
        kinds = {429: "rate_limit_error"}
        kind = kinds.get(status, "server_error" if status >= 500 else "invalid_request_error")
        return error_body(message, kind=kind, code=code, param=param)
