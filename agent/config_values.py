"""What the values of a config are made of."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer


def _whole(value: object) -> object:
    """`1e6` and `4096.0` are whole numbers; `4096,` and `true` are not."""
    if isinstance(value, bool):
        raise ValueError("is true or false, not a whole number")
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            raise ValueError(f"{value!r} is not a whole number") from None
    if isinstance(value, float):
        if not value.is_integer():
            raise ValueError(f"{value} is not a whole number")
        return int(value)
    return value


Whole = Annotated[int, BeforeValidator(_whole)]
Dim = Annotated[Whole, Field(ge=1, le=2**40)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[Whole, Field(ge=1)]
Gpu = Annotated[int, Field(ge=0)] | Annotated[str, Field(pattern=r"^(GPU|MIG)-[0-9a-zA-Z-]+$")]


def _all(value: object) -> object:
    """`all` names none, which stands for all."""
    return () if value == "all" else value


Gpus = Annotated[tuple[Gpu, ...], BeforeValidator(_all), PlainSerializer(lambda gpus: list(gpus) or "all")]


def _decade(value: object) -> object:
    """YAML reads `1e10` as a number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 1:
        return value
    return f"1e{len(str(int(value))) - 1}"


ShapeClass = Annotated[str, BeforeValidator(_decade), Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.+-]*$", max_length=100)]
"""A decade of work, `1e10`, or a word of one's own."""


class Section(BaseModel):
    """Base of every section: immutable, no unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")
