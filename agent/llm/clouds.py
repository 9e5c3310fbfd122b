"""Models in a cloud: what each cloud needs beyond a key, checked before its SDK is loaded."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from agent.llm.types import LLMError, LLMSettings


@dataclass(frozen=True, slots=True)
class Cloud:
    """What a cloud needs.

    Attributes:
        modules: packages of the extra of the same name, those that its client cannot work without.
        needed: settings that must be there, each with the environment variables that may hold it and an example.
        key_env: variable that holds a key, if there is one; without one the cloud's own sign-in is used.
        sign_in: packages of the extra that signing in without a key takes.
        signs_in_by: what the cloud's own sign-in is, in words.
    """

    modules: tuple[str, ...]
    needed: Mapping[str, tuple[tuple[str, ...], str]]
    key_env: str | None
    sign_in: tuple[str, ...]
    signs_in_by: str


CLOUDS: Mapping[str, Cloud] = {
    "bedrock": Cloud(
        modules=("boto3", "botocore"),
        needed={"region": (("AWS_REGION", "AWS_DEFAULT_REGION"), "us-east-1")},
        key_env="AWS_BEARER_TOKEN_BEDROCK",
        sign_in=(),
        signs_in_by="the AWS credentials (environment, profile or role)",
    ),
    "vertex": Cloud(
        modules=("google.auth", "requests"),
        needed={
            "region": (("CLOUD_ML_REGION",), "global"),
            "project": (("ANTHROPIC_VERTEX_PROJECT_ID", "GOOGLE_CLOUD_PROJECT"), "my-project"),
        },
        key_env=None,
        sign_in=(),
        signs_in_by="Google's application default credentials (gcloud auth application-default login)",
    ),
    "azure": Cloud(
        modules=(),
        needed={
            "base_url": (("AZURE_OPENAI_ENDPOINT",), "https://my-resource.openai.azure.com"),
            "api_version": (("OPENAI_API_VERSION",), "2025-04-01-preview"),
        },
        key_env="AZURE_OPENAI_API_KEY",
        sign_in=("azure.identity",),
        signs_in_by="the Microsoft Entra sign-in (az login, environment or managed identity)",
    ),
}


def in_cloud(settings: LLMSettings, environ: Mapping[str, str]) -> LLMSettings:
    """The settings with what a cloud's environment variables say; of another provider, as they are."""
    cloud = CLOUDS.get(settings.provider)
    if cloud is None:
        return settings
    found: dict[str, Any] = {
        name: next((environ[variable] for variable in variables if environ.get(variable)), None)
        for name, (variables, _) in cloud.needed.items()
        if getattr(settings, name) is None
    }
    if not has_key(settings) and cloud.key_env is not None and environ.get(cloud.key_env):
        found["api_key_env"] = cloud.key_env
    return replace(settings, **found)


def has_key(settings: LLMSettings) -> bool:
    """Whether the settings name a key."""
    return any((settings.api_key_env, settings.api_key_file, settings.api_key_command))


def check_cloud(settings: LLMSettings) -> str | None:
    """What a cloud still lacks, in one line; None when nothing, or for another provider.

    Args:
        settings: as `in_cloud` returns them.
    """
    cloud = CLOUDS.get(settings.provider)
    if cloud is None:
        return None
    name = settings.provider
    install = f"pip install 'roofclimb[{name}]'"
    if not all(_is_there(module) for module in cloud.modules):
        return f"provider {name} needs packages that are not installed: {install}"
    if not has_key(settings) and not all(_is_there(module) for module in cloud.sign_in):
        return (
            f"provider {name}: no key, and signing in without one needs packages that are not installed: "
            f"{install}, or set {cloud.key_env}"
        )
    for key, (variables, example) in cloud.needed.items():
        if getattr(settings, key) is None:
            return f"llm.{key} is missing: provider {name} needs it, such as {example}; or set {' or '.join(variables)}"
    return None


def not_signed_in(settings: LLMSettings, why: str) -> LLMError:
    """The cloud's own sign-in did not work."""
    where = CLOUDS[settings.provider].signs_in_by
    context = {"provider": settings.provider, "model": settings.model}
    return LLMError(
        "auth", f"{settings.provider} {settings.model}: {' '.join(why.split())[:300]}. Check {where}", context
    )


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # the package that it is a part of
        return False
