"""The translator of each dialect."""

from __future__ import annotations

from collections.abc import Mapping

from slipstream.dialects.chat import ChatTranslator
from slipstream.dialects.form import Dialect, Translator
from slipstream.dialects.messages.translator import MessagesTranslator
from slipstream.dialects.responses.translator import ResponsesTranslator

TRANSLATORS: Mapping[Dialect, Translator] = {
    Dialect.CHAT: ChatTranslator(),
    Dialect.RESPONSES: ResponsesTranslator(),
    Dialect.MESSAGES: MessagesTranslator(),
}
