"""Proxies and certificates for one server, from an environment that is handed in.

A daemon serves programs of many environments and has its own, which must not decide for them; so nothing here reads ``os.environ``. The names are those that
curl and Python's own libraries read.
"""

from __future__ import annotations

import functools
import ipaddress
import ssl
from collections.abc import Mapping
from pathlib import Path

import httpx

from openprogram.errors import ConfigurationError

_CA_FILES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


def proxy_for(url: httpx.URL, environ: Mapping[str, str]) -> httpx.Proxy | None:
    """The proxy that the environment names for that address. Raises ConfigurationError for one that cannot be used."""
    named = _either(environ, f"{url.scheme}_proxy") or _either(environ, "all_proxy")
    if not named or any(_is_spared(url, name.strip()) for name in _either(environ, "no_proxy").split(",")):
        return None
    try:
        proxy = httpx.Proxy(named if "://" in named else f"http://{named}")
    except (httpx.InvalidURL, ValueError):  # its text may quote a password
        raise ConfigurationError(f"the proxy that {url.scheme}_proxy or all_proxy names is no http:// address") from None
    if proxy.url.scheme.startswith("socks"):
        raise ConfigurationError(f"the environment names a SOCKS proxy, which is not supported: name an http:// one, or {url.host} in no_proxy")
    return proxy


def _is_spared(url: httpx.URL, name: str) -> bool:
    """Whether an entry of no_proxy means this address: ``*``, a host with or without its port, a domain with all below it, or a range of addresses."""
    host, _, port = name.rpartition(":") if name.rpartition(":")[2].isdigit() and name.count(":") == 1 else (name, "", "")
    if not host or (port and port != str(url.port or {"http": 80, "https": 443}[url.scheme])):
        return False
    domain = host.lower().removeprefix("*").removeprefix(".")
    if host == "*" or url.host == domain or url.host.endswith(f".{domain}"):
        return True
    try:
        return ipaddress.ip_address(url.host) in ipaddress.ip_network(host, strict=False)
    except ValueError:
        return False


def _either(environ: Mapping[str, str], name: str) -> str:
    return (environ.get(name) or environ.get(name.upper()) or "").strip()


def verification(url: httpx.URL, environ: Mapping[str, str]) -> ssl.SSLContext | bool:
    """What certificates are checked against. Raises ConfigurationError for a file or folder that cannot be read."""
    if url.scheme == "http" and proxy_for(url, environ) is None:
        return _unused()  # loading certificates costs more than a request to this machine
    file = next((value for name in _CA_FILES if (value := environ.get(name))), None)
    folder = environ.get("SSL_CERT_DIR") or None
    return True if file is None and folder is None else _trusting(file, folder)


def context_of(verify: ssl.SSLContext | bool) -> ssl.SSLContext:
    """The context itself: the usual one is made once for all, since that takes longer than a request."""
    return verify if isinstance(verify, ssl.SSLContext) else _usual()


@functools.cache
def _usual() -> ssl.SSLContext:
    return httpx.create_ssl_context(trust_env=False)


@functools.cache
def _unused() -> ssl.SSLContext:
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def _trusting(file: str | None, folder: str | None) -> ssl.SSLContext:
    if file is not None and Path(file).is_dir():  # requests' variable may name either
        file, folder = None, file
    try:
        return ssl.create_default_context(cafile=file, capath=folder)
    except (OSError, ssl.SSLError) as error:
        named = f"{', '.join(_CA_FILES)} or SSL_CERT_DIR"
        raise ConfigurationError(f"the certificates that {named} names cannot be read: {file or folder}: {error}") from None
