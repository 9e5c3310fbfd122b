"""Where the API key comes from. It is held as a `SecretStr` and named in messages by its source, never by its value."""

from __future__ import annotations

import functools
import shlex
import stat
from collections.abc import Mapping
from pathlib import Path

from pydantic import SecretStr

from agent.llm.types import LLMSettings
from backends.process import run_process

USUAL_ENV = {"anthropic": "ANTHROPIC_API_KEY", "openai": "OPENAI_API_KEY"}
"""Where each provider's key usually is. None for openai-compatible: one server's key is not sent to another."""

_COMMAND_S = 30.0


class KeyProblem(Exception):
    """No usable key; the message is one line and holds nothing of the key."""


def key_source(settings: LLMSettings) -> str | None:
    """Where the key is to come from, in words for a message; None when none is needed or named."""
    if settings.api_key_command:
        return f"the command `{settings.api_key_command}`"
    if settings.api_key_file:
        return f"the file {settings.api_key_file}"
    name = settings.api_key_env or USUAL_ENV.get(settings.provider)
    return f"the environment variable {name}" if name else None


def read_key(settings: LLMSettings, environ: Mapping[str, str]) -> SecretStr | None:
    """The key, whitespace around it stripped (files end in a newline). None where none is needed or named.

    Raises:
        KeyProblem: the variable or file is missing, empty, readable by everyone, or not one word of ASCII; the command
            fails.
    """
    source = key_source(settings)
    if source is None:
        return None
    if settings.api_key_command:
        text = _said(settings.api_key_command).get_secret_value()
    elif settings.api_key_file:
        text = _file_text(Path(settings.api_key_file))
    else:
        name = settings.api_key_env or USUAL_ENV[settings.provider]
        if not name.isidentifier():  # most likely the key itself, so it is not shown
            raise KeyProblem("llm.api_key_env must be the name of an environment variable, not the key")
        if name not in environ:
            others = "llm.api_key_env, llm.api_key_file or llm.api_key_command"
            raise KeyProblem(f"no API key: set {source}, or name another with {others}")
        text = environ[name]
    key = text.strip()
    if not key:
        raise KeyProblem(f"no API key: {source} is empty")
    if not (key.isascii() and key.isprintable()) or " " in key:
        # It would be an illegal header, which the SDKs report as a connection error.
        raise KeyProblem(f"{source} does not hold an API key: it must be one word of plain ASCII")
    return SecretStr(key)


@functools.cache
def _said(command: str) -> SecretStr:
    """What a command prints, asked for once: it may unlock a store, and be slow. It runs without a shell."""
    try:
        words = shlex.split(command)
        done = run_process(words, timeout_s=_COMMAND_S)
    except (ValueError, IndexError) as error:
        raise KeyProblem(f"API key command `{command}` cannot be read: {error}") from None
    except OSError as error:
        raise KeyProblem(f"API key command `{command}` cannot be run: {error.strerror}") from None
    if done.timed_out:
        raise KeyProblem(f"API key command `{command}` gave no answer within {_COMMAND_S:.0f} s")
    if done.returncode != 0:  # what it printed may hold what it found
        raise KeyProblem(f"API key command `{command}` ended with exit code {done.returncode}")
    return SecretStr(done.stdout)


def _file_text(path: Path) -> str:
    try:
        mode = path.stat().st_mode
        text = path.read_bytes().decode("utf-8", errors="replace")
    except OSError as error:
        raise KeyProblem(f"API key file {path} cannot be read: {error.strerror}") from None
    if mode & (stat.S_IROTH | stat.S_IWOTH):
        raise KeyProblem(f"API key file {path} is open to every user of this machine: run chmod 600 {path}")
    return text
