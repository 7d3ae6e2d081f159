"""HTTPS with a certificate of one's own: who names the authority gets in, others are told why not.

Slow: a server and several commands.
"""

import datetime
import ipaddress
import os
import socket
import subprocess
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.e2e.commands import EVERY_OPTION, PROGRAM, TIMEOUT_S, Done, tidewire
from tests.e2e.serving import serving

pytestmark = pytest.mark.slow

PASSWORD = "correct horse"


def named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def certificate(
    name: str, key: ec.EllipticCurvePrivateKey, issuer: str, signer: ec.EllipticCurvePrivateKey
) -> bytes:
    """A certificate for the loopback address, or an authority if it signs itself."""
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(named(name))
        .issuer_name(named(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=key is signer, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()),
            critical=False,
        )
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
            critical=False,
        )
        .add_extension(
            x509.KeyUsage(
                digital_signature=True,
                key_cert_sign=key is signer,
                crl_sign=key is signer,
                content_commitment=False,
                key_encipherment=False,
                data_encipherment=False,
                key_agreement=False,
                encipher_only=False,
                decipher_only=False,
            ),
            critical=True,
        )
    )
    return builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def make_files(directory: Path) -> tuple[Path, Path, Path]:
    """An authority, a server's certificate and its key."""
    authority, server = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    ca, cert, key = (directory / name for name in ("ca.pem", "cert.pem", "key.pem"))
    ca.write_bytes(certificate("our authority", authority, "our authority", authority))
    cert.write_bytes(certificate("127.0.0.1", server, "our authority", authority))
    key.touch(mode=0o600)
    key.write_bytes(
        server.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return ca, cert, key


def send(url: str, home: Path, *arguments: str | Path) -> Done:
    environment = {**os.environ, "TIDEWIRE_PASSWORD": PASSWORD, "XDG_DATA_HOME": str(home)}
    command = [*PROGRAM, "send", "@bob", "Hello", "--user", "alice", "--url", url, "--timeout", "9"]
    done = subprocess.run(
        [*command, *map(str, arguments)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=40,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return Done(done.returncode, done.stdout, done.stderr)


def test_private_authority_is_trusted_if_it_is_named(tmp_path: Path) -> None:
    ca, cert, key = make_files(tmp_path)
    with serving(tmp_path / "data", "--tls-cert", cert, "--tls-key", key) as server:
        assert server.url.startswith("https://")
        for name in ("alice", "bob"):
            added = subprocess.run(
                [*PROGRAM, "users", "add", name, "--password-stdin", "--data-dir", server.data_dir],
                input=PASSWORD,
                text=True,
                capture_output=True,
                check=False,
            )
            assert added.returncode == 0, added.stderr
        stranger = send(server.url, tmp_path / "home")
        assert stranger.exit_code == 2
        assert "certificate" in stranger.err
        friend = send(server.url, tmp_path / "home", "--ca-file", ca)
        assert (friend.exit_code, friend.out, friend.err) == (0, "1\n", "")


@pytest.mark.parametrize(
    ("text", "complaint"), [(None, "No such file"), ("nonsense", "holds no certificates")]
)
def test_file_that_is_no_authority_is_told(
    tmp_path: Path, text: str | None, complaint: str
) -> None:
    file = tmp_path / "ca.pem"
    if text is not None:
        file.write_text(text)
    done = tidewire("send", "@bob", "Hello", "--user", "alice", "--ca-file", file)
    assert done.exit_code == 2
    assert complaint in done.err


def test_handshake_that_does_not_go_on_is_ended(tmp_path: Path) -> None:
    _, cert, key = make_files(tmp_path)
    with (
        serving(
            tmp_path / "data",
            "--tls-cert",
            cert,
            "--tls-key",
            key,
            "--set",
            "server.tls_handshake_timeout_ms=300",
            program=EVERY_OPTION,
        ) as server,
        socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2]))) as peer,
    ):
        peer.settimeout(TIMEOUT_S)
        # The beginning of a handshake, and no more.
        peer.sendall(b"\x16\x03\x01\x02\x00\x01")
        assert peer.recv(1) == b""
