"""JSON Schema as the calculators use it: of the dialect that a schema names, and never fetched from the network."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import regex
from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.protocols import Validator
from jsonschema.validators import Draft202012Validator, extend, validator_for
from referencing import Registry
from referencing.exceptions import Unresolvable

_PATTERN_TIMEOUT = 1.0  # seconds


def checked_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema as it is. Raises ValueError when it is none."""
    try:
        validator_for(schema, default=Draft202012Validator).check_schema(schema)
    except SchemaError as error:
        raise ValueError(f"a JSON Schema ({error.message} at {error.json_path})") from error
    return schema


def conforms(value: Any, schema: dict[str, Any]) -> bool:
    """Return whether a JSON value is valid by the schema.

    An empty registry, because by default the library would fetch a remote `$ref`, and schemas come with requests.

    Raises:
        ValueError: the schema is none, refers to what it does not contain or endlessly to itself, or has a pattern
            that takes too long on this value.
    """
    kind: type[Validator] = validator_for(checked_schema(schema), default=Draft202012Validator)
    kind = extend(kind, {"pattern": _pattern})  # type: ignore[no-untyped-call]
    try:
        return kind(schema, registry=Registry()).is_valid(value)
    except OverflowError:  # a number that is too large to be compared is no valid one
        return False
    except Unresolvable as error:
        raise ValueError(f"a JSON Schema that contains what it refers to ({error})") from error
    except RecursionError as error:
        raise ValueError("a JSON Schema that does not refer to itself without end") from error
    except TimeoutError as error:
        raise ValueError(f"a JSON Schema whose patterns take less than {_PATTERN_TIMEOUT:g} s") from error


def _pattern(validator: Validator, pattern: str, instance: Any, schema: dict[str, Any]) -> Iterator[ValidationError]:
    """The keyword `pattern` by the `regex` package, which can give up: the library's `re` would stop the process."""
    if isinstance(instance, str) and not regex.search(pattern, instance, concurrent=True, timeout=_PATTERN_TIMEOUT):
        yield ValidationError(f"the text does not match {pattern!r}")


def no_json_number(name: str) -> None:
    """For `json.loads(parse_constant=...)`, which by itself takes NaN and Infinity. Raises ValueError."""
    raise ValueError(f"{name} is no JSON")
