"""What a Kafka client's properties ask of the client library, and which are refused."""

from __future__ import annotations

import re
import ssl

import pytest

from recovery.describe.client_config import client_options
from recovery.errors import UsageError
from tests import ROOT
from tests.documents.texts import section_of
from tests.servers.certificates import Authority, Certified

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


def sasl(mechanism: str, jaas: str) -> dict[str, str]:
    return {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, "sasl.jaas.config": jaas}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def client(authority: Authority) -> Certified:
    return authority.certify("client", password="secret")


def test_nothing_is_asked_for() -> None:
    assert client_options({}) == {
        "client_id": "kafka-log-recovery",
        "security_protocol": "PLAINTEXT",
        "request_timeout_ms": 30_000,
        "bootstrap_timeout_ms": 10_000,
        "reconnect_backoff_ms": 1000,
    }


def test_timeouts_and_name() -> None:
    given = {"request.timeout.ms": " 5000 ", "default.api.timeout.ms": "7000", "client.id": "me"}
    options = client_options(given)
    assert (options["request_timeout_ms"], options["bootstrap_timeout_ms"]) == (5000, 7000)
    assert options["client_id"] == "me"
    assert client_options({"request.timeout.ms": "5000"})["bootstrap_timeout_ms"] == 5000


@pytest.mark.parametrize(
    ("jaas", "username", "password"),
    [
        (f'{PLAIN} required username="u" password="p";', "u", "p"),
        (f"  {PLAIN}  REQUIRED\n  username='u'\n  password='p q' ;\n", "u", "p q"),
        (f'{PLAIN} required password="a\\"b;=\\\\" username=u;', "u", 'a"b;=\\'),
    ],
)
def test_plain(jaas: str, username: str, password: str) -> None:
    options = client_options(sasl("PLAIN", jaas))
    assert options["sasl_mechanism"] == "PLAIN"
    assert (options["sasl_plain_username"], options["sasl_plain_password"]) == (username, password)


def test_protocol_and_mechanism_in_small_letters() -> None:
    properties = sasl("plain", f'{PLAIN} required username="u" password="p";')
    options = client_options(properties | {"security.protocol": "sasl_plaintext"})
    assert (options["security_protocol"], options["sasl_mechanism"]) == ("SASL_PLAINTEXT", "PLAIN")


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram_names_are_escaped(mechanism: str) -> None:
    options = client_options(sasl(mechanism, f'{SCRAM} required username="a=b,c" password="p=,";'))
    assert (options["sasl_plain_username"], options["sasl_plain_password"]) == ("a=3Db=2Cc", "p=,")


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"sasl.kerberos.service.name": "kafka"}, "sasl.kerberos.service.name: not supported here"),
        ({"acks": "all"}, "acks: not supported here. Remedy: leave it out"),
        ({"security.protocl": "SSL"}, "security.protocl: not supported here; is security.protocol meant?"),
        ({"security.protocol": "TLS"}, "security.protocol=TLS: expected PLAINTEXT"),
        ({"request.timeout.ms": "0"}, "request.timeout.ms=0: expected an int32"),
        ({"security.protocol": "SASL_SSL"}, "sasl.mechanism=GSSAPI: expected PLAIN"),
        (sasl("OAUTHBEARER", ""), "sasl.mechanism=OAUTHBEARER"),
        (sasl("PLAIN", ""), "sasl.jaas.config: expected `MODULE required"),
        (sasl("PLAIN", f'{PLAIN} required username="u" password="secret" x'), "sasl.jaas.config: expected"),
        (sasl("PLAIN", f'{PLAIN} required username="u" password="secret"'), "sasl.jaas.config: expected"),
        (sasl("PLAIN", f'{PLAIN} required username="u";'), "password is missing"),
        (
            sasl("PLAIN", f'{SCRAM} required username="u" password="secret";'),
            "expected org.apache.kafka.common",
        ),
        (
            sasl("SCRAM-SHA-256", f'{SCRAM} required username="u" password="secret" tokenauth=true;'),
            "tokenauth",
        ),
        (
            {"security.protocol": "SSL", "ssl.truststore.location": "/t.jks"},
            "ssl.truststore.type=JKS: only PEM",
        ),
        ({"security.protocol": "SSL", "ssl.keystore.type": "PKCS12"}, "ssl.keystore.type=PKCS12: only PEM"),
        (
            {"security.protocol": "SSL", "ssl.truststore.type": "PEM", "ssl.truststore.location": "/no/file"},
            "ssl.truststore.location=/no/file: no certificates to trust",
        ),
        ({"security.protocol": "SSL", "ssl.truststore.certificates": "x"}, "ssl.truststore.certificates=..."),
        (
            {"security.protocol": "SSL", "ssl.keystore.key": "x"},
            "needs ssl.keystore.certificate.chain as well",
        ),
        ({"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "ldap"}, "expected https"),
        ({"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "HTTPS"}, "expected https"),
        (sasl("PLAIN", f'{PLAIN} required username="" password="secret";'), "username is missing"),
    ],
)
def test_what_is_refused(properties: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError) as refused:
        client_options(properties)
    assert str(refused.value).startswith("--command-config: ")
    assert words in str(refused.value)
    assert "Remedy: " in str(refused.value) or "correct it there" in str(refused.value)
    assert "secret" not in str(refused.value)


def test_pem_files(authority: Authority, client: Certified) -> None:
    properties = {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.file),
        "ssl.keystore.type": "pem",
        "ssl.keystore.location": str(client.store),
        "ssl.key.password": "secret",
    }
    context = client_options(properties)["ssl_context"]
    assert [one["subject"] for one in context.get_ca_certs()] == [((("commonName", "authority"),),)]
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED
    with pytest.raises(UsageError, match=r"ssl\.keystore\.location=.*: no key with its certificates"):
        client_options(properties | {"ssl.key.password": "wrong"})


def test_pem_as_text(authority: Authority, client: Certified) -> None:
    properties = {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.certificates": authority.file.read_text(),
        "ssl.keystore.certificate.chain": client.chain_text,
        "ssl.keystore.key": client.key_text,
        "ssl.key.password": "secret",
        "ssl.endpoint.identification.algorithm": "",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{PLAIN} required username="u" password="p";',
    }
    context = client_options(properties)["ssl_context"]
    assert len(context.get_ca_certs()) == 1
    assert not context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED
    with pytest.raises(UsageError, match=r"ssl\.keystore\.certificate\.chain=\.\.\.: no key"):
        client_options(properties | {"ssl.key.password": "wrong"})


def test_the_document_has_every_property() -> None:
    section = section_of(ROOT / "docs/reference/log-dirs.md", "## From brokers")
    documented = {
        name
        for row in re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
        for name in re.findall(r"`([\w.]+)`", row)
    }
    with pytest.raises(UsageError) as refused:
        client_options({"x": ""})
    assert set(str(refused.value).partition("supported are ")[2].split(", ")) == documented
