"""The built-in certificate authority: its key and certificate on disk, what it signs, and what a node keeps of it.

    HAL_HOME/authority/authority.pem       certificate of the authority
    HAL_HOME/authority/authority.key       its private key
    HAL_HOME/authority/controller.pem      certificate and key of this controller, for agents
    HAL_HOME/authority/rest.pem            the same for people, with the names of this machine
    HAL_HOME/nodes/NODE/identity/          what a node was given: authority.pem, node.pem (certificate and key)
    DIRECTORY/                             what a process of another role was given: authority.pem, certificate.pem

All files have mode 0600 in directories of mode 0700. `cryptography` is imported when it is first needed.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote, unquote

from hal.core.model.errors import DeniedError, InternalError, SpecError
from hal.runtime.interface import Credentials
from hal.runtime.privacy import check_secret, make_private, write_private
from hal.runtime.regular_files import read_regular
from hal.runtime.tls import CONTROLLER_HOST, URI_PREFIX
from hal.wire.peer import CertifiedName
from hal.wire.roles import UNCERTIFIED, Role, dials, host_name, listens

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.x509 import (
        Certificate,
        CertificateBuilder,
        GeneralName,
        KeyUsage,
        ObjectIdentifier,
        UniformResourceIdentifier,
    )

AUTHORITY_DAYS: Final = 3_650
CONTROLLER_DAYS: Final = 90
"""The controller's own certificate is renewed after two thirds of this time."""
BACKDATED: Final = timedelta(hours=1)
"""A certificate is valid from this long before it was signed, because clocks of machines differ."""
MAX_PEM_CHARS: Final = 16 << 10
"""Longest certificate signing request that is read."""
MAX_PEM_FILE_BYTES: Final = 1 << 20
FINGERPRINT_KIND: Final = "sha256"
JOIN_AGAIN: Final = "join again with a token"
RENEW_AT: Final = (2, 3)
"""The part of its lifetime after which a certificate is renewed."""


class Issued(NamedTuple):
    """A signed certificate."""

    certificate: str
    """PEM."""
    serial: str
    """Lower-case hex digits."""
    expires_ms: int


class Authority:
    """The authority of one HAL, with its private key; created by `open_authority`."""

    def __init__(self, directory: Path, key: EllipticCurvePrivateKey, certificate: Certificate) -> None:
        from cryptography.hazmat.primitives.serialization import Encoding

        self._directory = directory
        self._key = key
        self._certificate = certificate
        self.pem = certificate.public_bytes(Encoding.PEM).decode()
        """Its certificate."""
        self.fingerprint = fingerprint(self.pem)
        self.public_fingerprint = public_fingerprint(self.pem)

    @property
    def credentials(self) -> Credentials:
        """The credentials of this HAL's controller; `certify_controller` writes them."""
        return Credentials(self._directory / "authority.pem", self._directory / "controller.pem")

    def certify_controller(self, name: str, now_ms: int) -> int:
        """Write a new key and certificate for the controller; returns when the next ones are due."""
        from cryptography import x509
        from cryptography.x509.oid import ExtendedKeyUsageOID

        key = _new_key()
        names: list[GeneralName] = [x509.DNSName(CONTROLLER_HOST), _uri(Role.CONTROLLER, name)]
        usage = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = self._leaf("hal controller", names, usage, now_ms, timedelta(days=CONTROLLER_DAYS))
        issued = self._sign(builder.public_key(key.public_key()))
        path = self._directory / "controller.pem"
        write_private(path, issued.certificate + _key_pem(key), durable=True)
        return renewal_ms(now_ms, issued.expires_ms)

    @property
    def rest_file(self) -> Path:
        """Certificate and key for REST; `certify_rest` writes them."""
        return self._directory / "rest.pem"

    def certify_rest(self, hosts: Sequence[str], now_ms: int, file: Path | None = None) -> int:
        """Write a new key and certificate for REST, valid for these names and addresses too; returns when the next
        ones are due.

        Args:
            file: where to; None: the controller's.
        """
        from cryptography import x509
        from cryptography.x509.oid import ExtendedKeyUsageOID

        names: list[GeneralName] = [x509.DNSName(CONTROLLER_HOST)]
        for host in dict.fromkeys(hosts):
            try:
                names.append(x509.IPAddress(ip_address(host)))
            except ValueError:
                names += [x509.DNSName(host)] if host.isascii() else []
        key, lifetime = _new_key(), timedelta(days=CONTROLLER_DAYS)
        builder = self._leaf("hal controller", names, [ExtendedKeyUsageOID.SERVER_AUTH], now_ms, lifetime)
        issued = self._sign(builder.public_key(key.public_key()))
        write_private(file or self.rest_file, issued.certificate + _key_pem(key), durable=True)
        return renewal_ms(now_ms, issued.expires_ms)

    def certify(self, request: str, role: Role, name: str, now_ms: int, lifetime_ms: int) -> Issued:
        """Sign the key of a signing request; its other fields are ignored. What the certificate is good for, to dial
        or to serve, follows from the role (`hal.wire.roles`).

        Args:
            role: any but a controller's, who certifies itself, and those that use Unix sockets only.
        Raises:
            InternalError: that role has no such certificate.
            SpecError: it is not a signing request, not signed with its own key, or its key is of an unsupported kind.
        """
        from cryptography import x509
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, SECP384R1, EllipticCurvePublicKey
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        from cryptography.x509.oid import ExtendedKeyUsageOID

        if role is Role.CONTROLLER or role in UNCERTIFIED:
            raise InternalError(f"no certificate is issued on request to a {role}")
        what = "the certificate signing request"
        if len(request) > MAX_PEM_CHARS:
            raise SpecError(f"{what} is longer than {MAX_PEM_CHARS} characters")
        try:
            asked = x509.load_pem_x509_csr(request.encode())
            key = asked.public_key()
            good = asked.is_signature_valid
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise SpecError(f"{what} cannot be read: {error}") from error
        taken = isinstance(key, Ed25519PublicKey) or (
            isinstance(key, EllipticCurvePublicKey) and isinstance(key.curve, SECP256R1 | SECP384R1)
        )
        if not taken or not good:
            raise SpecError(f"{what} is not signed with a key of P-256, P-384 or Ed25519")
        names: list[GeneralName] = [_uri(role, name)]
        usage = [ExtendedKeyUsageOID.CLIENT_AUTH] if dials(role) else []
        if listens(role):
            names.append(x509.DNSName(host_name(role)))
            usage.append(ExtendedKeyUsageOID.SERVER_AUTH)
        lifetime = timedelta(milliseconds=lifetime_ms)
        builder = self._leaf(f"hal {role} {name}", names, usage, now_ms, lifetime)
        return self._sign(builder.public_key(key))

    def _leaf(
        self, subject: str, names: list[GeneralName], usage: list[ObjectIdentifier], now_ms: int, lifetime: timedelta
    ) -> CertificateBuilder:
        from cryptography import x509
        from cryptography.x509.oid import NameOID

        now = datetime.fromtimestamp(now_ms / 1000, UTC)
        ends = min(now + lifetime, self._certificate.not_valid_after_utc)
        common = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject[:64])])
        return (
            x509.CertificateBuilder()
            .subject_name(common)
            .issuer_name(self._certificate.subject)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - BACKDATED)
            .not_valid_after(ends)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.ExtendedKeyUsage(usage), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )

    def _sign(self, builder: CertificateBuilder) -> Issued:
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.serialization import Encoding

        certificate = builder.sign(self._key, SHA256())
        ends_ms = int(certificate.not_valid_after_utc.timestamp() * 1000)
        return Issued(certificate.public_bytes(Encoding.PEM).decode(), f"{certificate.serial_number:x}", ends_ms)


def open_authority(directory: Path, now_ms: int) -> Authority:
    """Open the authority in a directory; create it if there is none.

    Raises:
        DeniedError: the files cannot be read, do not belong together, or the key is accessible to others.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    key_file, certificate_file = directory / "authority.key", directory / "authority.pem"
    if not certificate_file.exists():
        make_private(directory)
        _make_authority(key_file, certificate_file, now_ms)
    hint = "restore both files from a backup; without them, every node must join again"
    check_secret(key_file)
    try:
        key = load_pem_private_key(read_regular(key_file, MAX_PEM_FILE_BYTES, follow=True), None)
        certificate = x509.load_pem_x509_certificate(read_regular(certificate_file, MAX_PEM_FILE_BYTES, follow=True))
    except (OSError, ValueError, TypeError) as error:
        raise DeniedError(f"the certificate authority in {directory} cannot be read: {error}", hint=hint) from error
    if not isinstance(key, EllipticCurvePrivateKey) or certificate.public_key() != key.public_key():
        raise DeniedError(f"key and certificate in {directory} do not belong together", hint=hint)
    return Authority(directory, key, certificate)


def new_authority(now_ms: int) -> Authority:
    """Make an authority that is nowhere but in this process."""
    return Authority(Path(), *_signed_by_itself(now_ms))


def authority_file(directory: Path) -> Path:
    """The path of the authority's certificate."""
    return directory / "authority.pem"


def has_authority(directory: Path) -> bool:
    """Whether the directory holds an authority."""
    return authority_file(directory).exists()


def discard_authority(directory: Path) -> None:
    """Delete an authority that was just created and that nobody has seen."""
    for name in ("authority.pem", "authority.key"):
        (directory / name).unlink(missing_ok=True)


class Identity:
    """The files of a process that was given a certificate on request."""

    def __init__(self, directory: Path, certificate: str = "certificate.pem") -> None:
        self._directory = directory
        self._authority = directory / "authority.pem"
        self._own = directory / certificate
        self._pinned = directory / "joining.pem"

    @property
    def joined(self) -> bool:
        """Whether it was given one."""
        return self._own.exists() and self._authority.exists()

    @property
    def credentials(self) -> Credentials:
        """The credentials with which to connect, and to serve."""
        return Credentials(self._authority, self._own)

    @property
    def joining_credentials(self) -> Credentials:
        """The credentials with which to join: the controller is verified, and no certificate is presented."""
        return Credentials(self._pinned)

    def trust(self, authority: str) -> None:
        """Trust an authority's certificate, whose fingerprint was compared, for joining; existing files stay as they
        are."""
        make_private(self._directory.parent)
        make_private(self._directory)
        write_private(self._pinned, authority)

    def store_certificate(self, certificate: str, key: str, authority: str) -> None:
        """Store a certificate and its key, and the authority that signed it."""
        write_private(self._authority, authority, durable=True)
        write_private(self._own, certificate + key, durable=True)
        self._pinned.unlink(missing_ok=True)

    def renewal_ms(self) -> int:
        """When the certificate must be renewed.

        Raises:
            DeniedError: it cannot be read.
        """
        certificate = self._certificate()
        begins_ms = int((certificate.not_valid_before_utc + BACKDATED).timestamp() * 1000)
        return renewal_ms(begins_ms, int(certificate.not_valid_after_utc.timestamp() * 1000))

    def certified(self) -> CertifiedName:
        """What the certificate says.

        Raises:
            DeniedError: it cannot be read, or is not one of HAL.
        """
        from cryptography import x509

        certificate = self._certificate()
        try:
            names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except (x509.ExtensionNotFound, ValueError) as error:
            raise DeniedError(f"{self._own} is not a certificate of HAL: {error}", hint=JOIN_AGAIN) from error
        for uri in names.get_values_for_type(x509.UniformResourceIdentifier):
            role, slash, name = uri.removeprefix(URI_PREFIX).partition("/")
            if uri.startswith(URI_PREFIX) and slash:
                return CertifiedName(role, unquote(name), f"{certificate.serial_number:x}")
        raise DeniedError(f"{self._own} is not a certificate of HAL", hint=JOIN_AGAIN)

    def _certificate(self) -> Certificate:
        from cryptography import x509

        check_secret(self._own)
        try:
            return x509.load_pem_x509_certificate(read_regular(self._own, MAX_PEM_FILE_BYTES, follow=True))
        except (OSError, ValueError) as error:
            raise DeniedError(f"{self._own} cannot be read: {error}", hint=JOIN_AGAIN) from error


class NodeIdentity(Identity):
    """The identity files of one node: HAL_HOME/nodes/NODE/identity."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, "node.pem")


def new_request() -> tuple[str, str]:
    """Create a private key and a signing request for it, both PEM."""
    from cryptography import x509
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import Encoding

    key = _new_key()
    request = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).sign(key, SHA256())
    return _key_pem(key), request.public_bytes(Encoding.PEM).decode()


def fingerprint(certificate: str) -> str:
    """SHA-256 of a certificate (PEM), in base64url without padding.

    Raises:
        SpecError: it is not a certificate.
    """
    import ssl

    try:
        der = ssl.PEM_cert_to_DER_cert(certificate[:MAX_PEM_CHARS])
    except ValueError as error:
        raise SpecError(f"not a certificate: {error}") from error
    return base64.urlsafe_b64encode(hashlib.sha256(der).digest()).decode().rstrip("=")


def public_fingerprint(certificate: str) -> str:
    """The same for people: `sha256:` and hex digits, as openssl prints it.

    Raises:
        SpecError: it is not a certificate.
    """
    digest = base64.urlsafe_b64decode(fingerprint(certificate) + "=")
    return f"{FINGERPRINT_KIND}:{digest.hex()}"


def renewal_ms(begins_ms: int, expires_ms: int) -> int:
    """The instant at which two thirds of the lifetime have passed."""
    part, whole = RENEW_AT
    return begins_ms + (expires_ms - begins_ms) * part // whole


def _make_authority(key_file: Path, certificate_file: Path, now_ms: int) -> None:
    from cryptography.hazmat.primitives.serialization import Encoding

    key, certificate = _signed_by_itself(now_ms)
    # Write the certificate last: if this process dies earlier, nobody trusts what it left.
    write_private(key_file, _key_pem(key), durable=True)
    write_private(certificate_file, certificate.public_bytes(Encoding.PEM).decode(), durable=True)


def _signed_by_itself(now_ms: int) -> tuple[EllipticCurvePrivateKey, Certificate]:
    from cryptography import x509
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.x509.oid import NameOID

    key = _new_key()
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "hal authority")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + timedelta(days=AUTHORITY_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, SHA256())
    )
    return key, certificate


def _new_key() -> EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _key_pem(key: EllipticCurvePrivateKey) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def _uri(role: Role, name: str) -> UniformResourceIdentifier:
    from cryptography import x509

    return x509.UniformResourceIdentifier(f"{URI_PREFIX}{role}/{quote(name, safe='')}")


def _key_usage(*, signs_certificates: bool) -> KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )
