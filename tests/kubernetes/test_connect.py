"""Kubeconfigs, plugins and service accounts, read by the official client."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import ssl
import sys
from pathlib import Path

import pytest
from cluster_world import pod
from fault_server import FaultServer

from orchestrator.errors import SpecError
from orchestrator.sandbox.kubernetes import connect as module
from orchestrator.sandbox.kubernetes.api import Api
from orchestrator.sandbox.kubernetes.connect import connect
from orchestrator.sandbox.kubernetes.errors import ApiError
from orchestrator.sandbox.kubernetes.resources import PODS


def kubeconfig(path: Path, server: str, user: dict, **cluster: object) -> str:
    said = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [
            {"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "mine"}},
            {"name": "staging", "context": {"cluster": "c", "user": "u"}},
        ],
    }
    path.write_text(json.dumps(said))
    return str(path)


def plugin(folder: Path, lines: str) -> dict:
    program = folder / "plugin.py"
    program.write_text(lines)
    return {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": sys.executable,
            "args": [str(program)],
            "interactiveMode": "Never",
        }
    }


def credential(token: str, expires: str | None = None) -> str:
    said = {"token": token} | ({"expirationTimestamp": expires} if expires else {})
    return json.dumps({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": said})


def test_a_context_is_chosen_by_name(tmp_path: Path) -> None:
    file = kubeconfig(tmp_path / "k", "http://127.0.0.1:1/", {"token": "t"})
    here = asyncio.run(connect(file=file))
    assert (here.server, here.namespace, here.where) == ("http://127.0.0.1:1", "mine", f"context here of {file}")
    assert asyncio.run(here.credentials.header()) == "Bearer t"
    assert here.credentials.tls() is None
    assert asyncio.run(connect(file=file, context="staging")).namespace == "default"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "cannot be used"),
        ("a: [", "cannot be used"),
        ("[]", "cannot be used"),
        ("contexts: 3", "cannot be used"),
        (json.dumps({"contexts": [], "clusters": [], "users": [], "current-context": ""}), "cannot be used"),
    ],
)
def test_a_file_that_is_no_kubeconfig_is_named(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "k").write_text(text)
    with pytest.raises(SpecError, match=words) as error:
        asyncio.run(connect(file=str(tmp_path / "k")))
    assert str(tmp_path / "k") in str(error.value)


def test_an_unknown_context_is_told_with_those_that_exist(tmp_path: Path) -> None:
    file = kubeconfig(tmp_path / "k", "http://127.0.0.1:1", {"token": "t"})
    with pytest.raises(SpecError, match=r"no context 'stagin' \(did you mean 'staging'\?\); it has: here, staging"):
        asyncio.run(connect(file=file, context="stagin"))


def test_no_file_and_no_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SpecError, match="there is no kubeconfig at"):
        asyncio.run(connect(file=str(tmp_path / "none")))
    monkeypatch.setattr("kubernetes.config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "none"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(SpecError, match=r"set KUBECONFIG to its path .*no pod with a service account") as error:
        asyncio.run(connect())
    assert str(tmp_path / "none") in str(error.value)


def test_a_plugin_that_fails_is_quoted(tmp_path: Path) -> None:
    user = plugin(tmp_path, "import sys; sys.exit('please log in')")
    with pytest.raises(SpecError, match=r"no credentials for context 'here'.*please log in"):
        asyncio.run(connect(file=kubeconfig(tmp_path / "k", "http://127.0.0.1:1", user)))


def test_a_refused_token_is_asked_for_again_once(tmp_path: Path) -> None:
    """A plugin without an expiry is only asked when the server refuses what it gave."""
    count = tmp_path / "count"
    lines = f"import pathlib; p = pathlib.Path({str(count)!r}); n = len(p.read_text()) if p.exists() else 0\np.write_text('x' * (n + 1))\n"
    user = plugin(tmp_path, lines + f"print({credential('token-N')!r}.replace('N', str(n + 1)))")

    async def scenario() -> None:
        async with FaultServer(kubelet=False) as server:
            server.tokens = {"token-1"}
            async with Api(await connect(file=kubeconfig(tmp_path / "k", server.url, user))) as api:
                await api.create(PODS, "a", pod("t-1"))
                server.tokens = {"token-2"}  # rotated while we were working
                answers = await asyncio.gather(*(api.get(PODS, "a", "t-1") for _ in range(20)))
                assert len(answers) == 20
                assert count.read_text() == "xx"
                server.tokens = {"another"}
                with pytest.raises(ApiError) as error:
                    await api.get(PODS, "a", "t-1")
                assert error.value.cause == "api_credentials"
                assert "log in again" in str(error.value)

    asyncio.run(scenario())


def test_a_plugin_that_fails_later_is_an_api_error_with_its_words(tmp_path: Path) -> None:
    user = plugin(tmp_path, f"print({credential('one')!r})")

    async def scenario() -> None:
        async with FaultServer(kubelet=False) as server:
            server.tokens = {"two"}
            async with Api(await connect(file=kubeconfig(tmp_path / "k", server.url, user))) as api:
                (tmp_path / "plugin.py").write_text("import sys; sys.exit('session over')")
                with pytest.raises(ApiError, match="session over") as error:
                    await api.list(PODS, "a")
                assert (error.value.cause, error.value.status) == ("api_credentials", 401)

    asyncio.run(scenario())


def test_an_expired_token_is_renewed_before_it_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TOKEN_SECONDS", 0.0)
    soon = (dt.datetime.now(dt.UTC) + dt.timedelta(seconds=30)).strftime("%Y-%m-%dT%H:%M:%SZ")

    async def scenario() -> None:
        user = plugin(tmp_path, f"print({credential('one', soon)!r})")
        connection = await connect(file=kubeconfig(tmp_path / "k", "http://127.0.0.1:1", user))
        plugin(tmp_path, f"print({credential('two')!r})")
        assert await connection.credentials.header() == "Bearer two"
        plugin(tmp_path, "import sys; sys.exit(1)")
        assert await connection.credentials.header() == "Bearer two"

    asyncio.run(scenario())


def test_a_pods_own_token_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kubernetes.config import incluster_config

    authority = Path(ssl.get_default_verify_paths().cafile or "")
    if not authority.is_file():
        pytest.skip("this machine has no file of certificates")
    (tmp_path / "token").write_text("one\n")
    (tmp_path / "namespace").write_text("drivers")
    monkeypatch.setattr(module, "_SERVICE_ACCOUNT", tmp_path)
    monkeypatch.setattr(module, "_TOKEN_SECONDS", 0.0)
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(authority))
    monkeypatch.setattr("kubernetes.config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "none"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "198.18.96.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")

    async def scenario() -> None:
        connection = await connect()
        assert (connection.server, connection.namespace) == ("https://198.18.96.1:443", "drivers")
        assert await connection.credentials.header() == "Bearer one"
        tls = connection.credentials.tls()
        assert tls is not None
        (tmp_path / "token").write_text("two\n")
        await connection.credentials.refresh()
        assert await connection.credentials.header() == "Bearer two"
        assert connection.credentials.tls() is tls  # and connections stay
        (tmp_path / "token").unlink()
        assert await connection.credentials.header() == "Bearer two"

    asyncio.run(scenario())


def test_the_proxy_of_the_environment_and_its_exceptions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    file = kubeconfig(tmp_path / "k", "https://api.cluster.example:6443", {"token": "t"})
    for excepted, proxy in (
        ("", "http://proxy.example:3128"),
        (".cluster.example", None),
        ("*", None),
        ("example.org", "http://proxy.example:3128"),
    ):
        monkeypatch.setenv("NO_PROXY", excepted)
        monkeypatch.setenv("no_proxy", excepted)
        assert asyncio.run(connect(file=file)).proxy == proxy


def test_a_closed_client_opens_nothing_again() -> None:
    async def scene() -> None:
        async with FaultServer() as server:
            async with Api(server.connection) as api:
                await api.version()
            with pytest.raises(ApiError) as caught:
                await api.version()
            assert "the client was closed" in str(caught.value)

    asyncio.run(scene())
