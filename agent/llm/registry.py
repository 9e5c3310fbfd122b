"""Providers by literal name, imported when used: a run on recorded answers never loads an SDK."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import os
import re
import time
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from tenacity.wait import wait_base

from agent.llm.batches import Batches
from agent.llm.clouds import check_cloud, in_cloud
from agent.llm.keys import KeyProblem, read_key
from agent.llm.prices import load_prices, price_for
from agent.llm.recording import RecordingProvider
from agent.llm.remote import RemoteProvider
from agent.llm.retry import BACK_OFF, RetryPolicy, untold
from agent.llm.types import LLMSettings, Provider, Retried

PROVIDERS: Final[Mapping[str, str]] = {
    "anthropic": "agent.llm.anthropic_provider:AnthropicProvider",
    "openai": "agent.llm.openai_provider:OpenAIProvider",
    "openai-compatible": "agent.llm.openai_provider:OpenAICompatibleProvider",
    "bedrock": "agent.llm.bedrock_provider:BedrockProvider",
    "vertex": "agent.llm.vertex_provider:VertexProvider",
    "azure": "agent.llm.azure_provider:AzureProvider",
    "replay": "agent.llm.replay:ReplayProvider",
    "file": "agent.llm.file:FileProvider",
}
BATCHES: Final[Mapping[str, str]] = {
    "anthropic": "agent.llm.anthropic_batches:AnthropicBatches",
    "openai": "agent.llm.openai_batches:OpenAIBatches",
}
"""Batch APIs, by the provider whose they are."""
LOCAL: Final = frozenset({"replay", "file"})
"""Providers with no network, no key and no price."""

_USERINFO = re.compile(r"//[^/@]*@")
_BASE_URL_ENV = {
    "anthropic": "ANTHROPIC_BASE_URL",
    "openai": "OPENAI_BASE_URL",
    "bedrock": "ANTHROPIC_BEDROCK_BASE_URL",
    "vertex": "ANTHROPIC_VERTEX_BASE_URL",
    "azure": "AZURE_OPENAI_ENDPOINT",
}


def make_provider(
    settings: LLMSettings,
    *,
    environ: Mapping[str, str] = os.environ,
    wait: wait_base = BACK_OFF,
    sleep: Callable[[float], None] = time.sleep,
    retried: Callable[[Retried], None] = untold,
    rejected: Iterable[str] = (),
) -> Provider:
    """Make the provider that the settings name; with `settings.record` every exchange is recorded as well.

    Args:
        settings: the `llm` section.
        environ: where keys and base URLs are looked up.
        wait: seconds between attempts where the server does not say.
        sleep: how to wait between attempts.
        retried: told of each wait before it begins.
        rejected: parameters that models were found to reject, see `Reply.rejected`.

    Raises:
        ValueError: one line, what `check_settings` says.
    """
    problem = check_settings(settings, environ)
    if problem:
        raise ValueError(problem)
    settings = in_cloud(settings, environ)
    if settings.provider in LOCAL:
        provider: Provider = _named(PROVIDERS[settings.provider])(settings)
    else:
        policy = RetryPolicy(settings.max_attempts, settings.max_retry_s, wait, sleep, retried)
        price = price_for(settings.provider, settings.model, load_prices(settings.prices))
        arguments = (settings, read_key(settings, environ), _base_url(settings, environ), price, policy)
        remote: RemoteProvider = _named(PROVIDERS[settings.provider])(*arguments)
        remote.leave_out(rejected)
        provider = remote
    return RecordingProvider(provider, Path(settings.record)) if settings.record else provider


def make_batches(
    settings: LLMSettings,
    *,
    environ: Mapping[str, str] = os.environ,
    wait: wait_base = BACK_OFF,
    sleep: Callable[[float], None] = time.sleep,
) -> Batches | None:
    """The batch API of the settings' model; None where `llm.mode` does not ask for it or the provider has none.

    Args and Raises as `make_provider`.
    """
    if settings.mode != "batch" or settings.provider not in BATCHES:
        return None
    problem = check_settings(settings, environ)
    if problem:
        raise ValueError(problem)
    policy = RetryPolicy(settings.max_attempts, settings.max_retry_s, wait, sleep)
    price = price_for(settings.provider, settings.model, load_prices(settings.prices), batch=True)
    arguments = (settings, read_key(settings, environ), _base_url(settings, environ), price, policy)
    batches: Batches = _named(BATCHES[settings.provider])(*arguments)
    return batches


def _named(place: str) -> Callable[..., Any]:
    """The class at `module:name`."""
    module, _, name = place.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return found


def check_settings(settings: LLMSettings, environ: Mapping[str, str] = os.environ) -> str | None:
    """What is wrong with the `llm` section, in one line that says what to do; None when a provider can be made.

    Nothing is sent and no SDK is loaded. Whether the price is known is for the caller, who knows the budget.
    """
    name = settings.provider
    if name not in PROVIDERS:
        near = difflib.get_close_matches(name, PROVIDERS, n=1, cutoff=0.5)
        hint = f": did you mean {near[0]}?" if near else f"; there are {', '.join(PROVIDERS)}"
        return f"llm.provider {name!r} is unknown{hint}"
    if name in LOCAL:
        return _check_answers(settings)
    if not settings.model:
        return f"llm.model is missing: provider {name} needs the id of a model"
    settings = in_cloud(settings, environ)
    return (
        check_cloud(settings)
        or _check_base_url(settings, environ)
        or _check_proxy()
        or check_key(settings, environ)
        or _check_prices(settings)
    )


def _check_answers(settings: LLMSettings) -> str | None:
    if not settings.answers:
        what = "recorded answers" if settings.provider == "replay" else "prompts and answers"
        return f"llm.answers is missing: provider {settings.provider} needs the folder of {what}"
    folder = Path(settings.answers)
    if settings.provider == "replay" and not folder.is_dir():
        return f"llm.answers: there is no folder {folder}"
    if folder.exists() and not folder.is_dir():
        return f"llm.answers: {folder} is not a folder"
    return None


def _check_base_url(settings: LLMSettings, environ: Mapping[str, str]) -> str | None:
    url = _base_url(settings, environ)
    if url is None:
        if settings.provider == "openai-compatible":
            return "llm.base_url is missing: provider openai-compatible needs one, such as http://localhost:8000/v1"
        return None
    where = "llm.base_url" if settings.base_url else _BASE_URL_ENV[settings.provider]
    bare = _USERINFO.sub("//", url).rstrip("/")
    if not url.startswith(("http://", "https://")):
        return f"{where} {bare!r} must start with http:// or https://"
    if settings.provider == "anthropic" and bare.endswith("/v1"):
        return f"{where} {bare!r} must not end in /v1: the SDK adds it; use {bare.removesuffix('/v1')!r}"
    return None


def _check_proxy() -> str | None:
    """A SOCKS proxy needs a package that neither SDK installs; without it no client can be made, for any address."""
    for scheme, proxy in urllib.request.getproxies().items():
        if proxy.startswith("socks") and importlib.util.find_spec("socksio") is None:
            return f"the environment sets a SOCKS proxy ({scheme}_proxy): pip install 'httpx2[socks]', or unset it"
    return None


def check_key(settings: LLMSettings, environ: Mapping[str, str] = os.environ) -> str | None:
    """What is wrong with the key alone, in the words of `check_settings`; None when it will do or none is needed."""
    if settings.provider in LOCAL:
        return None
    try:
        read_key(in_cloud(settings, environ), environ)
    except KeyProblem as problem:
        return f"provider {settings.provider}: {problem}"
    return None


def _check_prices(settings: LLMSettings) -> str | None:
    try:
        load_prices(settings.prices)
    except ValueError as error:
        return f"llm.prices: {error}"
    return None


def _base_url(settings: LLMSettings, environ: Mapping[str, str]) -> str | None:
    """The server's address; None for the SDK's own. The SDKs' environment variables count, as everywhere else."""
    return settings.base_url or environ.get(_BASE_URL_ENV.get(settings.provider, "")) or None
