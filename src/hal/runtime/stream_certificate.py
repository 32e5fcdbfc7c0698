"""A certificate for the streams of a node that has none from HAL's authority: those of the controller's own machine.

Clients compare its fingerprint, which the controller has from the node; nothing else of it is believed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from hal.runtime.privacy import write_private

YEARS: Final = 30


def own_certificate(path: Path) -> str:
    """Return the path of a file with a key and a certificate, which is made if it is not there. Blocks for about
    100 ms then.

    Raises:
        OSError: it cannot be written.
    """
    if not path.exists():
        write_private(path, _made(), durable=True)
    return str(path)


def _made() -> str:
    from datetime import UTC, datetime, timedelta

    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "hal streams")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=365 * YEARS))
        .sign(key, SHA256())
    )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return (private + certificate.public_bytes(Encoding.PEM)).decode()
