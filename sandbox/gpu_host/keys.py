"""SSH keys, made with the library that pyinfra brings: a bare machine has no ssh-keygen."""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives import serialization as form
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


def pair(path: Path) -> Path:
    """The private key at the path, made when absent; the public one lies beside it."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        key = Ed25519PrivateKey.generate()
        path.touch(mode=0o600)
        path.write_bytes(key.private_bytes(form.Encoding.PEM, form.PrivateFormat.OpenSSH, form.NoEncryption()))
        public_half = key.public_key().public_bytes(form.Encoding.OpenSSH, form.PublicFormat.OpenSSH)
        path.with_suffix(".pub").write_bytes(public_half + b"\n")
    return path


def public(path: Path) -> str:
    return path.with_suffix(".pub").read_text()
