"""Requests that are made of the policy out of captured ones."""

from __future__ import annotations

from typing import Any

from slipstream.explorer.client import case_request


def test_a_case_of_an_evaluation_is_sampled_as_it_says_but_for_ids_of_another_tokenizer() -> None:
    own: dict[str, Any] = {"seed": 0, "top_p": 0.9, "presence_penalty": 1, "frequency_penalty": 0.5}
    messages = [{"role": "user", "content": "hello"}]
    asked = {"model": "prod", "messages": messages, "user": "u", "n": 3, "logit_bias": {"50256": -100}, **own}
    assert case_request(asked, "policy") == {"model": "policy", "messages": messages, "n": 1, "stream": False, **own}
