"""The properties of a Kafka client, as `--command-config` takes them, for the client library that asks brokers.

PLAINTEXT; SSL with PEM files, or with PEM as text; SASL PLAIN and SCRAM. Whatever else there is in Kafka is an error
that names the key: a setting that is passed over might be the one that was to protect a password.

Kafka: SslConfigs, DefaultSslEngineFactory, SaslConfigs, JaasConfig.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Mapping
from typing import Any

from recovery.broker.settings import IntKind, Key, Layer, Settings, TextKind
from recovery.errors import UsageError
from recovery.misspelling import question, similar_names

OPTION = "--command-config"

_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
"""Login modules by mechanism."""

_TEXT = TextKind()
_PROTOCOL = Key("security.protocol", _TEXT)
_MECHANISM = Key("sasl.mechanism", _TEXT)
_JAAS = Key("sasl.jaas.config", _TEXT)
_ENDPOINT = Key("ssl.endpoint.identification.algorithm", _TEXT)
_TRUST_TYPE = Key("ssl.truststore.type", _TEXT)
_TRUST_FILE = Key("ssl.truststore.location", _TEXT)
_TRUST_TEXT = Key("ssl.truststore.certificates", _TEXT)
_KEY_TYPE = Key("ssl.keystore.type", _TEXT)
_KEY_FILE = Key("ssl.keystore.location", _TEXT)
_CHAIN_TEXT = Key("ssl.keystore.certificate.chain", _TEXT)
_KEY_TEXT = Key("ssl.keystore.key", _TEXT)
_KEY_PASSWORD = Key("ssl.key.password", _TEXT)
_CLIENT_ID = Key("client.id", _TEXT)
_REQUEST_TIMEOUT = Key("request.timeout.ms", IntKind(1))
_API_TIMEOUT = Key("default.api.timeout.ms", IntKind(1))
_KEYS: tuple[Key[object], ...] = (
    _PROTOCOL,
    _MECHANISM,
    _JAAS,
    _ENDPOINT,
    _TRUST_TYPE,
    _TRUST_FILE,
    _TRUST_TEXT,
    _KEY_TYPE,
    _KEY_FILE,
    _CHAIN_TEXT,
    _KEY_TEXT,
    _KEY_PASSWORD,
    _CLIENT_ID,
    _REQUEST_TIMEOUT,
    _API_TIMEOUT,
)
_CONTACT_MS = 10_000
_JAAS_HEAD = re.compile(
    r"\s*([\w.$]+)\s+(required|requisite|sufficient|optional)\s+(.*?)\s*;\s*", re.DOTALL | re.I
)
_JAAS_OPTION = re.compile(
    r"""\s*([\w.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s"';=]+))""", re.DOTALL
)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


def client_options(properties: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments of `kafka.KafkaAdminClient` that *properties* ask for, without the servers.

    Raises:
        UsageError: a setting that is not known here, or that cannot be what it is; names the key.
    """
    known = {key.name for key in _KEYS}
    if odd := [key for key in properties if key not in known]:
        meant = question(similar_names(odd[0], known, least=0.8)) or "."
        raise UsageError(
            f"{OPTION}: {odd[0]}: not supported here{meant} Remedy: leave it out; supported are "
            f"{', '.join(sorted(known))}"
        )
    settings = Settings((Layer(OPTION, properties),), override="a valid value")
    protocol = (settings.find(_PROTOCOL) or "PLAINTEXT").upper()
    if protocol not in _PROTOCOLS:
        raise _wrong(_PROTOCOL, protocol, f"expected {', '.join(_PROTOCOLS)}")
    request_timeout_ms = settings.find(_REQUEST_TIMEOUT) or 30_000
    options: dict[str, Any] = {
        "client_id": settings.find(_CLIENT_ID) or "kafka-log-recovery",
        "security_protocol": protocol,
        "request_timeout_ms": request_timeout_ms,
        "bootstrap_timeout_ms": settings.find(_API_TIMEOUT) or min(request_timeout_ms, _CONTACT_MS),
        "reconnect_backoff_ms": 1000,  # a wrong password tried ten times a second locks accounts
    }
    if protocol.endswith("SSL"):
        options["ssl_context"] = _ssl_context(settings)
    if protocol.startswith("SASL"):
        options |= _sasl(settings)
    return options


def _wrong(key: Key[object], value: str, what: str) -> UsageError:
    return UsageError(f"{OPTION}: {key.name}={value}: {what}. Remedy: correct it")


def _ssl_context(settings: Settings) -> ssl.SSLContext:
    """Return what a connection trusts and shows. Kafka: DefaultSslEngineFactory, with stores of type PEM."""
    for kind, place in ((_TRUST_TYPE, _TRUST_FILE), (_KEY_TYPE, _KEY_FILE)):
        given = settings.find(kind) or ("JKS" if settings.find(place) else "PEM")
        if given.upper() != "PEM":
            raise _wrong(
                kind, given, "only PEM is supported: export the store, with keytool and openssl, and set it"
            )
    trusted_file, trusted = settings.find(_TRUST_FILE), settings.find(_TRUST_TEXT)
    try:
        context = ssl.create_default_context(cafile=trusted_file or None, cadata=trusted or None)
    except (OSError, ValueError) as error:  # an SSLError is an OSError
        key = _TRUST_FILE if trusted_file else _TRUST_TEXT
        raise _wrong(
            key, trusted_file or "...", f"no certificates to trust can be read from it: {error}"
        ) from error
    algorithm = settings.find(_ENDPOINT)
    if algorithm not in (None, "", "https"):
        raise _wrong(_ENDPOINT, f"{algorithm}", "expected https, or nothing for no check of host names")
    context.check_hostname = algorithm != ""
    _show_certificate(context, settings)
    return context


def _show_certificate(context: ssl.SSLContext, settings: Settings) -> None:
    """Let *context* show the client's certificate, if there is one."""
    password = settings.find(_KEY_PASSWORD) or ""
    file, chain, key = settings.find(_KEY_FILE), settings.find(_CHAIN_TEXT), settings.find(_KEY_TEXT)
    if (chain is None) != (key is None):
        there, missing = (_CHAIN_TEXT, _KEY_TEXT) if key is None else (_KEY_TEXT, _CHAIN_TEXT)
        raise _wrong(there, "...", f"needs {missing.name} as well")
    try:
        if file:
            context.load_cert_chain(file, password=lambda: password)
        elif chain is not None:
            # The library takes files alone; this one has no name, and no disk ever sees the key.
            descriptor = os.memfd_create("pem")
            with open(descriptor, "w") as pem:
                pem.write(f"{chain}\n{key}\n")
                pem.flush()
                context.load_cert_chain(f"/proc/self/fd/{pem.fileno()}", password=lambda: password)
    except (OSError, ValueError) as error:
        where = _KEY_FILE if file else _CHAIN_TEXT
        raise _wrong(
            where, file or "...", f"no key with its certificates can be read from it: {error}"
        ) from error


def _sasl(settings: Settings) -> dict[str, Any]:
    """Return the arguments for SASL; the login module must be that of the mechanism."""
    mechanism = (settings.find(_MECHANISM) or "GSSAPI").upper()
    if mechanism not in _MODULES:
        raise _wrong(_MECHANISM, mechanism, f"expected {', '.join(_MODULES)}")
    module, options = _read_jaas(settings.find(_JAAS) or "")
    if module != _MODULES[mechanism]:
        raise _wrong(_JAAS, f"{module} ...", f"expected {_MODULES[mechanism]} for {mechanism}")
    if odd := [name for name in options if name not in ("username", "password")]:
        raise _wrong(_JAAS, f"... {odd[0]}=...", "not supported here")
    if missing := [name for name in ("username", "password") if not options.get(name)]:
        raise _wrong(_JAAS, f"{module} ...", f"{missing[0]} is missing")
    username = options["username"]
    if mechanism.startswith("SCRAM"):
        username = username.replace("=", "=3D").replace(",", "=2C")  # RFC 5802; the library sends it as it is
    return {
        "sasl_mechanism": mechanism,
        "sasl_plain_username": username,
        "sasl_plain_password": options["password"],
    }


def _read_jaas(text: str) -> tuple[str, dict[str, str]]:
    """Return login module and options of a JAAS configuration: `MODULE required name="value" ...;`.

    The text is never part of a message: it holds a password.
    """
    head = _JAAS_HEAD.fullmatch(text)
    options: dict[str, str] = {}
    rest = "" if head is None else head[3]
    position = 0
    while head is not None and (option := _JAAS_OPTION.match(rest, position)):
        quoted = option[2] if option[2] is not None else option[3]
        options[option[1]] = option[4] if quoted is None else _ESCAPED.sub(r"\1", quoted)
        position = option.end()
    if head is None or rest[position:].strip():
        raise UsageError(
            f'{OPTION}: {_JAAS.name}: expected `MODULE required username="..." password="...";`. Remedy: correct it'
        )
    return head[1], options
