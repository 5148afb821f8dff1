"""JSON Schema as the calculators use it: of the dialect that a schema names, and never fetched from the network."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from jsonschema.exceptions import SchemaError
from jsonschema.protocols import Validator
from jsonschema.validators import Draft202012Validator, validator_for
from referencing import Registry
from referencing.exceptions import Unresolvable

from slipstream.jsontext import to_json

_MOST_VALIDATORS = 32


def checked_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema as it is. Raises ValueError when it is none."""
    try:
        validator_for(schema, default=Draft202012Validator).check_schema(schema)
    except SchemaError as error:
        raise ValueError(f"a JSON Schema ({error.message} at {error.json_path})") from error
    return schema


def conforms(value: Any, schema: dict[str, Any]) -> bool:
    """Return whether a JSON value is valid by the schema.

    An empty registry, because by default the library would fetch a remote `$ref`, and schemas come with requests. It
    may take for ever, by a pattern or by `allOf` of `allOf`: call it in a process that can be killed.

    Raises:
        ValueError: the schema is none, or refers to what it does not contain or endlessly to itself.
    """
    try:
        return _validator(to_json(schema)).is_valid(value)
    except OverflowError:  # a number that is too large to be compared is no valid one
        return False
    except Unresolvable as error:
        raise ValueError(f"a JSON Schema that contains what it refers to ({error})") from error
    except RecursionError as error:
        raise ValueError("a JSON Schema that does not refer to itself without end") from error


@lru_cache(_MOST_VALIDATORS)
def _validator(schema: bytes) -> Validator:
    """The validator of a schema. Checking the schema takes some milliseconds, and a conversation repeats its tools."""
    checked = checked_schema(json.loads(schema))
    kind: type[Validator] = validator_for(checked, default=Draft202012Validator)
    return kind(checked, registry=Registry())


def no_json_number(name: str) -> None:
    """For `json.loads(parse_constant=...)`, which by itself takes NaN and Infinity. Raises ValueError."""
    raise ValueError(f"{name} is no JSON")
