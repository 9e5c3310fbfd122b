"""The clouds' own clients, as far as the loopback goes: no real cloud was ever asked."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from tenacity import wait_none

from agent.llm import clouds
from agent.llm.registry import check_settings, make_provider
from agent.llm.types import LLMSettings, Provider
from tests.loopback import Fault, in_turn
from tests.loopback_clouds import CloudLoopback
from tests.unit.agent.llm.support import REQUEST, failure_of

AWS = {"AWS_ACCESS_KEY_ID": "AKIATEST", "AWS_SECRET_ACCESS_KEY": "only-for-the-loopback", "AWS_REGION": "eu-west-1"}
CLAUDE = "anthropic.claude-opus-5-v1:0"


@pytest.fixture(autouse=True)
def _no_clouds_of_ones_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in os.environ:
        if name.startswith(("AWS_", "AZURE_", "GOOGLE_", "CLOUD_ML_", "ANTHROPIC_", "OPENAI_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))


def made(settings: LLMSettings, environ: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> Provider:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    return make_provider(settings, wait=wait_none())


def bedrock(server: CloudLoopback) -> LLMSettings:
    return LLMSettings("bedrock", CLAUDE, server.base_url, max_attempts=3)


def test_bedrock_signs_its_requests_and_reads_amazons_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    with CloudLoopback(in_turn("a plan \u2028 for you")) as server:
        reply = made(bedrock(server), AWS, monkeypatch).complete(REQUEST)
        asked = server.asked[0]
    assert reply.text == "a plan \u2028 for you"
    assert (reply.stop, reply.model) == ("end", CLAUDE)
    assert reply.usage.output is not None
    assert asked.headers["authorization"].startswith("AWS4-HMAC-SHA256 Credential=AKIATEST/")
    assert "/eu-west-1/bedrock/" in asked.headers["authorization"]
    assert asked.system == REQUEST.system


def test_bedrock_takes_a_key_of_its_own_and_that_goes_before_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    with CloudLoopback(in_turn("ok")) as server:
        environ = {**AWS, "AWS_BEARER_TOKEN_BEDROCK": "bedrock-key"}
        made(bedrock(server), environ, monkeypatch).complete(REQUEST)
        assert server.asked[0].headers["authorization"] == "Bearer bedrock-key"


def test_bedrocks_throttling_inside_a_stream_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = Fault("overloaded", error={"message": "Too many requests, please wait"})
    with CloudLoopback(in_turn(busy, "ok")) as server:
        assert made(bedrock(server), AWS, monkeypatch).complete(REQUEST).text == "ok"
        assert len(server.asked) == 2


def test_no_aws_credentials_end_the_request_with_a_line_that_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    with CloudLoopback(in_turn("ok")) as server:
        provider = made(bedrock(server), {"AWS_REGION": "us-east-1"}, monkeypatch)
        error = failure_of(provider)
        assert server.asked == []
    assert error.kind == "auth"
    assert "Check the AWS credentials" in str(error)


def test_a_model_that_may_not_be_used_points_at_the_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    denied = Fault("status", status=403, error={"message": "You don't have access to the model"})
    with CloudLoopback(in_turn(denied)) as server:
        error = failure_of(made(bedrock(server), AWS, monkeypatch))
    assert error.kind == "auth"
    assert "access to the model. Check the AWS credentials" in str(error)


def service_account(folder: Path, token_uri: str) -> Path:
    from cryptography.hazmat.primitives.asymmetric import rsa
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    account = {
        "type": "service_account",
        "project_id": "elsewhere",
        "private_key_id": "1",
        "private_key": pem,
        "client_email": "run@elsewhere.iam.gserviceaccount.com",
        "token_uri": token_uri,
    }
    path = folder / "account.json"
    path.write_text(json.dumps(account))
    return path


def test_vertex_signs_in_with_application_default_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with CloudLoopback(in_turn("a plan")) as server:
        account = service_account(tmp_path, f"{server.base_url}/token")
        settings = LLMSettings("vertex", "claude-opus-5", server.base_url, region="europe-west1", project="kernels")
        provider = made(settings, {"GOOGLE_APPLICATION_CREDENTIALS": str(account)}, monkeypatch)
        assert [provider.complete(REQUEST).text for _ in range(2)] == ["a plan", "a plan"]
        assert server.where[0] == ("vertex", "kernels", "europe-west1")
        assert server.asked[0].headers["authorization"] == "Bearer token-1"
        assert server.tokens_given == 1


def test_vertex_without_credentials_says_where_they_come_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = LLMSettings("vertex", "claude-opus-5", "http://127.0.0.1:9", region="global", project="kernels")
    environ = {"GOOGLE_APPLICATION_CREDENTIALS": str(tmp_path / "none.json")}
    error = failure_of(made(settings, environ, monkeypatch))
    assert error.kind == "auth"
    assert "gcloud auth application-default login" in str(error)


def test_azure_sends_its_key_to_the_deployment(monkeypatch: pytest.MonkeyPatch) -> None:
    with CloudLoopback(in_turn("a plan")) as server:
        settings = LLMSettings("azure", "my-deployment", server.base_url, api_version="2025-04-01-preview")
        reply = made(settings, {"AZURE_OPENAI_API_KEY": "azure-key"}, monkeypatch).complete(REQUEST)
        asked = server.asked[0]
        assert server.where == [("azure", "2025-04-01-preview")]
    assert reply.text == "a plan"
    assert asked.body["model"] == "my-deployment"
    assert asked.headers["api-key"] == "azure-key"


def test_azure_without_a_key_signs_in_by_entra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for `az`, which prints a token as the real one does."""
    pytest.importorskip("azure.identity", reason="azure-identity is not installed")
    token = json.dumps(
        {"accessToken": "entra-token", "expiresOn": "2099-01-01 00:00:00.000000", "expires_on": 4070908800}
    )
    az = tmp_path / "az"
    az.write_text(f"#!/bin/sh\necho '{token}'\n")
    az.chmod(az.stat().st_mode | stat.S_IXUSR)
    environ = {"PATH": f"{tmp_path}:/usr/bin:/bin", "AZURE_TOKEN_CREDENTIALS": "AzureCliCredential"}
    with CloudLoopback(in_turn("a plan")) as server:
        settings = LLMSettings("azure", "my-deployment", server.base_url, api_version="2025-04-01-preview")
        assert made(settings, environ, monkeypatch).complete(REQUEST).text == "a plan"
        assert server.asked[0].headers["authorization"] == "Bearer entra-token"
        assert "api-key" not in server.asked[0].headers
    az.write_text("#!/bin/sh\necho 'Please run az login' >&2\nexit 1\n")
    error = failure_of(make_provider(settings, wait=wait_none()))
    assert error.kind == "auth"
    assert "az login" in str(error)


@pytest.mark.parametrize(
    ("provider", "settings", "environ", "wanted"),
    [
        ("bedrock", {}, {}, "llm.region is missing: provider bedrock needs it, such as us-east-1; or set AWS_REGION"),
        ("vertex", {"region": "global"}, {}, "llm.project is missing"),
        ("vertex", {"project": "p"}, {"CLOUD_ML_REGION": "global"}, None),
        ("azure", {"api_version": "v"}, {"AZURE_OPENAI_API_KEY": "k"}, "llm.base_url is missing"),
        ("azure", {"base_url": "https://x"}, {"AZURE_OPENAI_API_KEY": "k"}, "llm.api_version is missing"),
        ("azure", {"base_url": "https://x", "api_version": "v"}, {"AZURE_OPENAI_API_KEY": "k"}, None),
        ("bedrock", {"region": "r", "api_key_env": "NOT_THERE"}, {}, "provider bedrock: no API key"),
    ],
)
def test_what_a_cloud_lacks_is_one_line(
    provider: str, settings: dict[str, str], environ: dict[str, str], wanted: str | None
) -> None:
    found = check_settings(LLMSettings(provider, "m", **settings), environ)  # type: ignore[arg-type]
    if wanted is None:
        assert found is None
    else:
        assert found is not None
        assert found.startswith(wanted)
        assert "\n" not in found


@pytest.mark.parametrize(
    ("provider", "module", "line"),
    [
        (
            "bedrock",
            "botocore",
            "provider bedrock needs packages that are not installed: pip install 'roofclimb[bedrock]'",
        ),
        ("vertex", "google", "provider vertex needs packages that are not installed: pip install 'roofclimb[vertex]'"),
        (
            "azure",
            "azure",
            "provider azure: no key, and signing in without one needs packages that are not installed: "
            "pip install 'roofclimb[azure]', or set AZURE_OPENAI_API_KEY",
        ),
    ],
)
def test_a_missing_extra_is_one_line_that_installs_it(provider: str, module: str, line: str) -> None:
    """In a process that cannot see the package, as on a clean install."""
    script = (
        "import importlib.util, sys\n"
        "class Hidden:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.partition('.')[0] == {module!r}: raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Hidden())\n"
        "from agent.llm.registry import check_settings\n"
        "from agent.llm.types import LLMSettings\n"
        f"print(check_settings(LLMSettings({provider!r}, 'm', region='r', project='p', api_version='v', "
        "base_url='http://127.0.0.1:9'), {}))\n"
        "assert 'anthropic' not in sys.modules and 'openai' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout == f"{line}\n", done.stderr


def test_every_cloud_has_an_extra_of_its_name() -> None:
    text = (Path(__file__).parents[4] / "pyproject.toml").read_text()
    assert all(f"\n{name} = [" in text for name in clouds.CLOUDS)
