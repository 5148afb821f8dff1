"""JSON Schema as the calculators use it: of the dialect that a schema names, and never fetched from the network."""

from __future__ import annotations

from typing import Any

from jsonschema.exceptions import SchemaError
from jsonschema.protocols import Validator
from jsonschema.validators import Draft202012Validator, validator_for
from referencing import Registry
from referencing.exceptions import Unresolvable


def checked_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema as it is. Raises ValueError when it is none."""
    try:
        validator_for(schema, default=Draft202012Validator).check_schema(schema)
    except SchemaError as error:
        raise ValueError(f"a JSON Schema ({error.message} at {error.json_path})") from error
    return schema


def conforms(value: Any, schema: dict[str, Any]) -> bool:
    """Whether a JSON value is valid by the schema.

    An empty registry, because by default the library would fetch a remote `$ref`, and schemas come with requests.

    Raises:
        ValueError: the schema is none, or refers to what it does not contain.
    """
    kind: type[Validator] = validator_for(checked_schema(schema), default=Draft202012Validator)
    try:
        return kind(schema, registry=Registry()).is_valid(value)
    except Unresolvable as error:
        raise ValueError(f"a JSON Schema that contains what it refers to ({error})") from error
