"""A certificate authority for a test, and keys with certificates of it, as PEM files."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_NOW = datetime.datetime.now(datetime.UTC)
_DAY = datetime.timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Certified:
    """A private key and its certificate.

    Attributes:
        store: file with both, as Kafka's stores of type PEM.
        key_text, chain_text: the same as text.
    """

    store: Path
    key_text: str
    chain_text: str


class Authority:
    """Signs certificates; `file` has its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named("authority")
        certificate = (
            _begun(self._name, self._name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.file = folder / "authority.pem"
        self.file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def certify(self, name: str, *, hosts: tuple[str, ...] = (), password: str = "") -> Certified:
        """Make a key, protected by *password* if there is one, and a certificate of *name* for *hosts*."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = _begun(_named(name), self._name, key)
        if hosts:
            names = x509.SubjectAlternativeName([x509.DNSName(host) for host in hosts])
            certificate = certificate.add_extension(names, critical=False)
        chain = certificate.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()
        protection: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password:
            protection = serialization.BestAvailableEncryption(password.encode())
        text = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, protection
        ).decode()
        store = self._folder / f"{name}.pem"
        store.write_text(text + chain)
        return Certified(store=store, key_text=text, chain_text=chain)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _begun(name: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_NOW - _DAY)
        .not_valid_after(_NOW + 365 * _DAY)
    )
