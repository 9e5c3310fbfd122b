"""What a reply costs: a dated table in `configs/prices.yaml`, and arithmetic that keeps unknown apart from free."""

from __future__ import annotations

import datetime
import fnmatch
import math
import re
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat, PositiveInt, ValidationError

from agent.llm.types import Request, Usage

SHIPPED = Path(__file__).resolve().parents[2] / "configs" / "prices.yaml"
FREE_PROVIDERS = frozenset({"replay", "file"})

_DATED = re.compile(r"-(?:\d{8}|\d{4}-\d{2}-\d{2}|latest)")
_PER_MILLION = 1e-6
CHARS_PER_TOKEN = 3.0
"""English prose has about four, code about three."""


class Price(BaseModel):
    """US dollars per million tokens.

    Attributes:
        input: uncached input tokens.
        output: output tokens, reasoning included.
        cache_read: input served from the prompt cache; None: billed as input.
        cache_write: input written to it; None: billed as input.
        up_to: longest prompt in tokens that the row holds for; None: any.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    input: NonNegativeFloat
    output: NonNegativeFloat
    cache_read: NonNegativeFloat | None = None
    cache_write: NonNegativeFloat | None = None
    up_to: PositiveInt | None = None


FREE = Price(input=0.0, output=0.0)


class ProviderPrices(BaseModel):
    """The prices of one provider and where they were read.

    Attributes:
        source: page that they were read from.
        batch: share of every price that its batch API takes (0.5: half); None: not known, or it has none.
        models: prices by name.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str
    batch: Annotated[float, Field(gt=0, le=1)] | None = None
    models: dict[str, Price]


class PriceTable(BaseModel):
    """The whole table."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    as_of: datetime.date
    providers: dict[str, ProviderPrices]


def load_prices(path: str | None = None) -> PriceTable:
    """Read a price table.

    Args:
        path: YAML file; None takes the shipped one.

    Raises:
        ValueError: one line, when the file cannot be read or is not a price table.
    """
    file = Path(path) if path else SHIPPED
    try:
        return PriceTable.model_validate(yaml.safe_load(file.read_text(encoding="utf-8")))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise ValueError(f"price table {file}: {where}: {first['msg']}") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ValueError(f"price table {file} cannot be read: {' '.join(str(error).split())}") from None


def price_for(provider: str, model: str, table: PriceTable, *, batch: bool = False) -> Price | None:
    """The price of a model, None when the table does not know it. `replay` and `file` are free.

    A name in the table matches the model itself and its dated versions; a `*` matches anything; the longest name wins.

    Args:
        provider: registered name.
        model: model id.
        table: the prices.
        batch: the price in the provider's batch API instead.
    """
    if provider in FREE_PROVIDERS:
        return FREE
    known = table.providers.get(provider)
    if known is None:
        return None
    matching = [name for name in known.models if _matches(name, model)]
    price = known.models[max(matching, key=len)] if matching else None
    if not batch or price is None:
        return price
    return None if known.batch is None else _times(price, known.batch)


def _times(price: Price, share: float) -> Price:
    rates = {name: rate * share for name, rate in price if rate is not None and name != "up_to"}
    return price.model_copy(update=rates)


def _matches(name: str, model: str) -> bool:
    if "*" in name:
        return fnmatch.fnmatchcase(model, name)
    return model == name or (model.startswith(name) and _DATED.fullmatch(model[len(name) :]) is not None)


def cost_usd(usage: Usage, price: Price | None) -> float | None:
    """What the tokens cost in US dollars.

    None when it cannot be known: no price, input or output not reported, or a prompt longer than the price holds for.
    A provider that does not report cached tokens counts them as input, so that unknown cache kinds add nothing.
    """
    if price is None:
        return None
    if price == FREE:
        return 0.0
    if usage.input is None or usage.output is None:
        return None
    read, write = usage.cache_read or 0, usage.cache_write or 0
    if price.up_to is not None and usage.input + read + write > price.up_to:
        return None
    cached = read * _or_input(price.cache_read, price) + write * _or_input(price.cache_write, price)
    return (usage.input * price.input + cached + usage.output * price.output) * _PER_MILLION


def worst_case_usd(request: Request, price: Price | None) -> float | None:
    """The most a request can cost in US dollars: the whole prompt at its dearest rate, the whole output limit used.

    None when no price is known for a request of that size.
    """
    if price is None:
        return None
    prompt = estimate_tokens(request.system) + estimate_tokens(request.user)
    if price.up_to is not None and prompt > price.up_to:
        return None
    dearest = max(price.input, _or_input(price.cache_write, price))
    return (prompt * dearest + request.max_output_tokens * price.output) * _PER_MILLION


def estimate_tokens(text: str) -> int:
    """Tokens in a text, without a tokenizer: one per three characters, and one per character outside ASCII.

    English prose has about four characters to a token and code about three, so this errs on the high side, as an
    estimate that guards a budget should.
    """
    outside = sum(1 for character in text if ord(character) > 127)
    return math.ceil((len(text) - outside) / CHARS_PER_TOKEN) + outside


def _or_input(rate: float | None, price: Price) -> float:
    return price.input if rate is None else rate
