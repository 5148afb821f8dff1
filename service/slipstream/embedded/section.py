"""Sections of `explorer.yaml` and `trainer.yaml`, and the kinds of numbers that they hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


def _no_boolean(value: Any) -> Any:
    """pydantic would read `true` as the number 1."""
    if isinstance(value, bool):
        raise ValueError("Input should be a number, not a boolean")  # noqa: TRY004 - pydantic reports ValueError
    return value


Count = Annotated[int, BeforeValidator(_no_boolean), Field(ge=0)]
Positive = Annotated[int, BeforeValidator(_no_boolean), Field(ge=1)]
Number = Annotated[float, BeforeValidator(_no_boolean), Field(allow_inf_nan=False)]


class Section(BaseModel):
    """A part of the file. What it does not know is kept apart in `model_extra`."""

    model_config = ConfigDict(extra="allow", frozen=True, protected_namespaces=())

    def unknown(self, prefix: str = "") -> Iterator[str]:
        """Yield the path of each key that the embedded engine does not know."""
        for name in self.model_extra or {}:
            yield f"{prefix}{name}"
        for name in type(self).model_fields:
            value = getattr(self, name)
            for index, item in enumerate(value if isinstance(value, list) else [value]):
                if isinstance(item, Section):
                    yield from item.unknown(
                        f"{prefix}{name}.{index}." if isinstance(value, list) else f"{prefix}{name}."
                    )
