"""Where the cluster is and who we are there, by the official client's reading of kubeconfigs and service accounts.

Only its configuration is used: what comes out is an address, a TLS context, and a header that stays fresh.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from logging.handlers import BufferingHandler
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar
from urllib.parse import urlsplit

from orchestrator.errors import SpecError, nearest

if TYPE_CHECKING:
    from kubernetes.client import Configuration

_T = TypeVar("_T")
_TOKEN_SECONDS = 60.0
"""A token is read again after this long: service account tokens are replaced long before they expire."""
_LOGGED = 1000
"""Lines of its log that are kept."""
_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class Credentials(Protocol):
    """Who we are. All methods may be called at any time, by many requests at once."""

    async def header(self) -> str | None:
        """Return the Authorization header, or None. Raises SpecError when a plugin fails."""
        ...

    async def refresh(self) -> None:
        """Make new ones, since the server refused the last (401). Raises SpecError."""
        ...

    def tls(self) -> ssl.SSLContext | None:
        """Return the context for new connections; another object after a certificate was replaced. None: no TLS."""
        ...


@dataclass(frozen=True, kw_only=True)
class Connection:
    """One API server as one identity sees it."""

    server: str
    """``https://HOST:PORT``, with a path where a proxy has one; no slash at the end."""
    credentials: Credentials
    namespace: str = "default"
    """The context's namespace, or the pod's own."""
    where: str
    """In words, for people."""
    server_name: str | None = None
    """Name that the server's certificate has, where it is not the address."""
    proxy: str | None = None
    """``http://HOST:PORT`` of a proxy to go through."""


async def connect(*, context: str | None = None, file: str | None = None) -> Connection:
    """Read how to reach the cluster: a kubeconfig (``file``, else ``$KUBECONFIG``, else ``~/.kube/config``), else the pod's own account.

    Raises SpecError: unknown context, unusable file, failing plugin, or neither kubeconfig nor service account.
    """
    return await asyncio.to_thread(_connect, context, file)


def plain(server: str, *, token: str | None = None) -> Connection:
    """Return a connection without TLS, to a proxy that adds identity (``kubectl proxy``) or to a server in this process."""
    return Connection(server=server.rstrip("/"), credentials=_Fixed(token), where=server)


class _Fixed:
    def __init__(self, token: str | None) -> None:
        self._header = None if token is None else f"Bearer {token}"

    async def header(self) -> str | None:
        return self._header

    async def refresh(self) -> None:
        """Nothing newer can be had."""

    def tls(self) -> ssl.SSLContext | None:
        return None


class _Loaded:
    """Credentials out of the official client's configuration: loaded anew when they are old or refused."""

    def __init__(self, first: Configuration, load: Callable[[], Configuration]) -> None:
        self._load = load
        self._lock = asyncio.Lock()
        self._generation = 0
        self._read = 0.0
        self._take(first, _stamps(first))

    async def header(self) -> str | None:
        if self._header is not None and time.monotonic() - self._read > _TOKEN_SECONDS:
            try:
                await self._again(self._renewed)
            except SpecError:  # whether the old one still serves is the server's to say
                self._read = time.monotonic()
        return self._header

    async def refresh(self) -> None:
        await self._again(self._load)

    def tls(self) -> ssl.SSLContext | None:
        return self._tls

    async def _again(self, load: Callable[[], Configuration]) -> None:
        """Load once, however many requests ask for it at the same time."""
        generation = self._generation
        async with self._lock:
            if generation == self._generation:
                configuration = await asyncio.to_thread(_complaining, load)
                stamps = _stamps(configuration)
                if stamps != self._stamps:
                    self._take(configuration, stamps)
                else:
                    self._keep(configuration)

    def _renewed(self) -> Configuration:
        """Let the loader's own hook decide whether the token has expired: it reads files again and asks plugins only when they must."""
        with _heard() as said:
            self._configuration.get_api_key_with_prefix("BearerToken")
        if said:
            raise SpecError(said[-1])
        return self._configuration

    def _take(self, configuration: Configuration, stamps: tuple[object, ...]) -> None:
        self._tls = _context(configuration)
        self._stamps = stamps
        self._keep(configuration)

    def _keep(self, configuration: Configuration) -> None:
        key = configuration.api_key.get("BearerToken")
        # The loaders write the scheme themselves, in small letters or not.
        self._header = None if not key else f"Bearer {key[7:].strip()}" if key[:7].lower() == "bearer " else str(key)
        self._configuration = configuration
        self._read = time.monotonic()
        self._generation += 1


def _connect(context: str | None, file: str | None) -> Connection:
    from kubernetes.config import KUBE_CONFIG_DEFAULT_LOCATION

    paths = file or KUBE_CONFIG_DEFAULT_LOCATION
    if any(Path(each).expanduser().exists() for each in paths.split(":") if each):
        return _complaining(lambda: _from_kubeconfig(context, paths), f"the kubeconfig {paths}")
    if file is not None or context is not None:
        raise SpecError(f"there is no kubeconfig at {paths}: set KUBECONFIG to its path")
    return _complaining(lambda: _from_pod(paths), "the pod's service account")


def _from_kubeconfig(context: str | None, paths: str) -> Connection:
    from kubernetes.client import Configuration
    from kubernetes.config import list_kube_config_contexts, load_kube_config

    contexts, current = list_kube_config_contexts(paths)
    known = {str(each["name"]): each.get("context") or {} for each in contexts}
    name = context or str(current["name"])
    if name not in known:
        raise SpecError(
            f"the kubeconfig {paths} has no context {name!r}{nearest(name, known)}; it has: {', '.join(sorted(known))}"
        )

    def load() -> Configuration:
        configuration = Configuration()
        with _heard() as said:
            load_kube_config(paths, context=name, client_configuration=configuration, persist_config=False)
        if said:  # a failing exec plugin is only logged there
            raise SpecError(f"no credentials for context {name!r} of {paths}: {said[-1]}")
        return configuration

    return _made(load, f"context {name} of {paths}", str(known[name].get("namespace") or "default"))


def _from_pod(paths: str) -> Connection:
    from kubernetes.client import Configuration
    from kubernetes.config import load_incluster_config
    from kubernetes.config.config_exception import ConfigException

    def load() -> Configuration:
        configuration = Configuration()
        try:
            load_incluster_config(client_configuration=configuration)
        except ConfigException:
            msg = f"there is no kubeconfig at {paths}: set KUBECONFIG to its path (and this is no pod with a service account)"
            raise SpecError(msg) from None
        return configuration

    try:
        namespace = (_SERVICE_ACCOUNT / "namespace").read_text().strip()
    except OSError:
        namespace = "default"
    return _made(load, "this pod's service account", namespace)


def _made(load: Callable[[], Configuration], where: str, namespace: str) -> Connection:
    configuration = load()
    return Connection(
        server=configuration.host.rstrip("/"),
        credentials=_Loaded(configuration, load),
        namespace=namespace,
        where=where,
        server_name=configuration.tls_server_name or None,
        proxy=_proxy(configuration),
    )


def _proxy(configuration: Configuration) -> str | None:
    """Return the proxy of the environment (the official client has read it), unless it excepts this server."""
    if not configuration.proxy:
        return None
    host = urlsplit(configuration.host).hostname or ""
    excepted = (each.strip().lstrip(".") for each in (configuration.no_proxy or "").split(","))
    spared = any(each in ("*", host) or host.endswith(f".{each}") for each in excepted if each)
    return None if spared else str(configuration.proxy)


def _context(configuration: Configuration) -> ssl.SSLContext | None:
    if not configuration.host.startswith("https:"):
        return None
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert or None)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, configuration.key_file or None)
    return context


def _stamps(configuration: Configuration) -> tuple[object, ...]:
    """Return what tells whether the TLS context is still right: files are written again when certificates are replaced."""
    files = (configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file)
    times = [Path(each).stat().st_mtime_ns for each in files if each and Path(each).exists()]
    return (*files, configuration.verify_ssl, *times)


def _complaining(load: Callable[[], _T], what: str = "what identifies us") -> _T:
    """Run a loader. Files that are none of theirs come out of the official client as whatever they broke."""
    from kubernetes.config.config_exception import ConfigException
    from yaml import YAMLError

    try:
        return load()
    except (ConfigException, YAMLError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        said = " ".join(str(error).split())[:300] or type(error).__name__
        raise SpecError(f"{what} cannot be used: {said}") from None


@contextmanager
def _heard() -> Iterator[list[str]]:
    """Collect what the official client only logs; it is there when the context is left."""
    said: list[str] = []
    handler = BufferingHandler(_LOGGED)
    handler.setLevel(logging.ERROR)
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield said
    finally:
        root.removeHandler(handler)
        said += [" ".join(record.getMessage().split())[:300] for record in handler.buffer]
