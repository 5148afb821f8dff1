"""The routes of the control API, from the OpenAPI description that the sidecar serves."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, cast

from slipstream.access.roles import OPEN, is_facade, roles_for
from slipstream.api.control import create_control

_RANGES = (("minLength", "maxLength", " characters"), ("minItems", "maxItems", " items"), ("minimum", "maximum", ""))
_LIMITS = {"exclusiveMinimum": "above {}", "exclusiveMaximum": "below {}", "pattern": "matching `{}`"}


def page() -> str:
    description = create_control(cast(Any, None), None).openapi()  # the routes need no running sidecar
    return "\n".join(_Page(description).lines())


class _Page:
    """The description as Markdown.

    Args:
        description: an OpenAPI 3.1 document.
    """

    def __init__(self, description: dict[str, Any]) -> None:
        self._paths = description["paths"]
        self._schemas = description["components"]["schemas"]

    def lines(self) -> Iterator[str]:
        for path, methods in self._paths.items():
            for method, route in methods.items():
                yield from self._route(method.upper(), path, route)

    def _route(self, method: str, path: str, route: dict[str, Any]) -> Iterator[str]:
        yield f"## `{method} {path}`\n"
        yield f"{_paragraphs(route.get('description', ''))}\n"
        roles = () if path in OPEN else roles_for(method.encode(), path.replace("{run_id}", "0"))
        keys = [f"`{role}`" for role in roles] + ["or the key `facade.api_key`"] * is_facade(path)
        example = f"api.md#{_anchor(f'{method} {path}')}"
        yield f"Roles: {', '.join(keys) or 'none is needed'}. [Example and errors]({example}).\n"
        parameters = [(each, each["schema"]) for each in route.get("parameters", ())]
        yield from _table(
            "parameter",
            (
                (f"`{each['name']}` ({each['in']})", each["required"], self._type(schema), each | schema)
                for each, schema in parameters
            ),
        )
        for kind, content in route.get("requestBody", {}).get("content", {}).items():
            schema = self._resolved(content["schema"])
            needed = schema.get("required", ())
            yield f"Body: `{kind}`.\n"
            yield from _table(
                "field",
                (
                    (f"`{name}`", name in needed, self._type(field), field)
                    for name, field in schema.get("properties", {}).items()
                ),
            )
        good = [status for status in route["responses"] if status.startswith("2")]
        yield f"Status when it works: {', '.join(good)}.\n"

    def _resolved(self, schema: dict[str, Any]) -> dict[str, Any]:
        name = schema.get("$ref", "").rpartition("/")[2]
        return cast(dict[str, Any], self._schemas[name]) if name else schema

    def _type(self, schema: dict[str, Any]) -> str:
        """A schema in words: what a value may be, and its limits."""
        if "$ref" in schema:
            return self._named(schema)
        for several in ("anyOf", "oneOf"):
            if several in schema:
                return " or ".join(dict.fromkeys(self._type(each) for each in schema[several]))
        if "const" in schema:
            return f"`{schema['const']}`"
        if "enum" in schema:
            return " or ".join(f"`{each}`" for each in schema["enum"])
        kind = schema.get("type", "any JSON")
        limits = " ".join(_limits(schema))
        kind = f"{kind}, {limits}" if limits else kind
        return f"{kind}, of: {self._type(schema.get('items', {}))}" if schema.get("type") == "array" else kind

    def _named(self, schema: dict[str, Any]) -> str:
        name = schema["$ref"].rpartition("/")[2]
        below = self._schemas[name]
        if "properties" not in below:
            return name if name == "JsonValue" else self._type(below)
        return f"object with {', '.join(f'`{field}`' for field in below['properties'])}"


def _table(first: str, rows: Iterator[tuple[str, bool, str, dict[str, Any]]]) -> Iterator[str]:
    lines = [
        (name, f"{_cell(kind)}{_default(schema)}", "yes" if needed else "", _cell(schema.get("description", "")))
        for name, needed, kind, schema in rows
    ]
    columns = 4 if any(meaning for *_, meaning in lines) else 3
    for line in [(first, "type", "needed", "meaning"), ("---",) * 4, *lines] if lines else ():
        yield f"| {' | '.join(line[:columns])} |"
    yield ""


def _limits(schema: dict[str, Any]) -> Iterator[str]:
    for least, most, unit in _RANGES:
        low, high = _plain(schema.get(least)), _plain(schema.get(most))
        if low is not None and high is not None:
            yield f"{low} to {high}{unit}"
        elif low is not None:
            yield f"from {low}{unit}"
        elif high is not None:
            yield f"up to {high}{unit}"
    yield from (text.format(_plain(schema[key])) for key, text in _LIMITS.items() if key in schema)


def _plain(limit: Any) -> Any:
    return int(limit) if isinstance(limit, float) and limit.is_integer() else limit


def _default(schema: dict[str, Any]) -> str:
    default = schema.get("default")
    return "" if default is None or default == [] else f"; default `{json.dumps(default)}`"


def _anchor(heading: str) -> str:
    """The anchor that GitHub and MyST give to a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def _paragraphs(text: str) -> str:
    return text.partition("\n\nArgs:")[0].strip()
