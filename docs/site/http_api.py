"""The routes of the control API, from the OpenAPI description that the sidecar serves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from slipstream.access.roles import OPEN, roles_for
from slipstream.api.control import create_control

_LIMITS = {
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
    "minimum": "at least {}",
    "exclusiveMinimum": "more than {}",
    "maximum": "at most {}",
    "exclusiveMaximum": "less than {}",
    "pattern": "matches `{}`",
}


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
        yield f"Roles: {', '.join(f'`{role}`' for role in roles) or 'none is needed'}.\n"
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
        yield f"Answers: {', '.join(good)}; errors as [the control API](api.md#errors) lists them.\n"

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
        if kind == "array":
            kind = f"list of {self._type(schema.get('items', {}))}"
        limits = [text.format(_plain(schema[key])) for key, text in _LIMITS.items() if key in schema]
        return ", ".join([kind, *limits])

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


def _plain(limit: Any) -> Any:
    return int(limit) if isinstance(limit, float) and limit.is_integer() else limit


def _default(schema: dict[str, Any]) -> str:
    default = schema.get("default")
    return "" if default is None or default == [] else f"; default `{default}`"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def _paragraphs(text: str) -> str:
    return text.partition("\n\nArgs:")[0].strip()
