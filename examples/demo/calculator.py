"""The agent's one tool, and what an answer of the model comes to when the agent has carried it out."""

from __future__ import annotations

import ast
import json
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "calculator",
        "parameters": {
            "type": "object",
            "properties": {"expression": {"type": "string"}},
            "required": ["expression"],
        },
    },
}
_LONGEST_EXPRESSION = 200  # characters: far more than a task needs, and too little to make big numbers with
_OPERATORS: dict[type[ast.AST], Callable[..., Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}


@dataclass(frozen=True)
class Reply:
    """Answer to the user.

    Attributes:
        calculated: whether it is the calculator's result, and not the model's own text.
    """

    text: str
    calculated: bool


def calculate(expression: str) -> str:
    """The value of an expression of numbers, + - * / and parentheses, as the shortest decimal number.

    Raises:
        ValueError: it is something else, or divides by zero.
    """
    if len(expression) > _LONGEST_EXPRESSION:
        raise ValueError("the expression is too long")
    try:
        value = _value(ast.parse(expression.strip(), mode="eval").body)
    except (SyntaxError, ZeroDivisionError, RecursionError, MemoryError) as error:
        raise ValueError(f"not to be calculated: {error}") from error
    return str(value.numerator) if value.denominator == 1 else repr(float(value))


def reply_to_user(text: str, tool_calls: Sequence[Mapping[str, Any]]) -> Reply:
    """The result of the model's tool call, where it made one that can be carried out; otherwise its text.

    Args:
        tool_calls: of the assistant's message, in OpenAI's form.
    """
    for call in tool_calls[:1]:
        try:
            arguments = json.loads(call["function"]["arguments"])
            if call["function"]["name"] == "calculator" and isinstance(arguments["expression"], str):
                return Reply(calculate(arguments["expression"]), calculated=True)
        except (ValueError, KeyError, TypeError):
            break  # a tool or arguments that do not exist: the agent has nothing to carry out
    return Reply(text.strip(), calculated=False)


def _value(node: ast.AST) -> Fraction:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return Fraction(str(number))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_value(left), _value(right))
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_value(operand))
    raise ValueError(f"not arithmetic: {ast.unparse(node)}")
