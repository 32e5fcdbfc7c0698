"""When a certificate in a file ends. The library is imported when there is one to read."""

from __future__ import annotations

from pathlib import Path

from hal.runtime.regular_files import read_regular

MAX_PEM_BYTES = 1 << 20


def read_expiry_s(path: Path) -> float | None:
    """When the first certificate of a PEM file ends, in seconds since 1970; None where none can be read. Blocking."""
    if not path.exists():
        return None
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificate(
            read_regular(path, MAX_PEM_BYTES, follow=True)
        ).not_valid_after_utc.timestamp()
    except (OSError, ValueError):
        return None
