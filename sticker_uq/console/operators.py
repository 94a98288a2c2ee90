# SPDX-License-Identifier: Apache-2.0
"""The named operators of a cell: a file with a scrypt hash (RFC 7914) of each operator's secret."""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sticker_uq.io.files import atomic_write
from sticker_uq.io.reading import MIB, read_bytes
from sticker_uq.scene import InvalidInput

SHORTEST_SECRET = 8
LONGEST_TEXT = 100
_COST = 2**14
_BLOCK = 8
"""scrypt's N and r: 16 MiB and about 50 ms for each guess."""


class HashedSecret(BaseModel):
    """What is kept of an operator's secret: the salt and scrypt(secret, salt), both hexadecimal."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    salt: str = Field(pattern=r"^[0-9a-f]{32}$")
    hash: str = Field(pattern=r"^[0-9a-f]{64}$")

    @classmethod
    def of(cls, secret: str) -> HashedSecret:
        salt = secrets.token_bytes(16)
        return cls(salt=salt.hex(), hash=_scrypt(secret, salt).hex())

    def fits(self, secret: str) -> bool:
        """Whether the hash was made of the operator's ``secret``; takes equally long for every secret."""
        return hmac.compare_digest(_scrypt(secret, bytes.fromhex(self.salt)), bytes.fromhex(self.hash))


_NOBODY = HashedSecret(salt="0" * 32, hash="0" * 64)


class _File(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    operators: dict[str, HashedSecret]


def read_operators(path: Path) -> dict[str, HashedSecret]:
    """The operators and their hashed secrets by name. Raises :class:`InvalidInput` unless the file is one of
    :func:`write_operators`.
    """
    try:
        return dict(_File.model_validate_json(read_bytes(path, MIB)).operators)
    except ValidationError:
        raise InvalidInput(
            f"{path}: expected a file of operators, as 'sticker-uq operator add' writes it"
        ) from None


def write_operators(path: Path, operators: Mapping[str, HashedSecret]) -> None:
    plain = {"operators": {name: one.model_dump() for name, one in sorted(operators.items())}}
    with atomic_write(path, "w", private=True) as file:
        json.dump(plain, file, indent=1, ensure_ascii=False)


def checked_name(name: str) -> str:
    """An operator's sign-in ``name`` without spaces around it; raises :class:`InvalidInput` when it cannot be a name in a log."""
    name = name.strip()
    if not 1 <= len(name) <= LONGEST_TEXT or not name.isprintable():
        raise InvalidInput(f"name {name!r}: expected 1 to {LONGEST_TEXT} printable characters")
    return name


def checked_secret(secret: str) -> str:
    """An operator's ``secret``; raises :class:`InvalidInput`, which does not repeat it, when it is too short or too long."""
    if not SHORTEST_SECRET <= len(secret) <= LONGEST_TEXT:
        raise InvalidInput(
            f"the secret has {len(secret)} characters: expected {SHORTEST_SECRET} to {LONGEST_TEXT}"
        )
    return secret


def find_operator(operators: Mapping[str, HashedSecret], name: str, secret: str) -> HashedSecret | None:
    """The operator's entry of ``name`` if ``secret`` is theirs. An unknown name takes as long as a wrong secret."""
    entry = operators.get(name)
    fits = (entry or _NOBODY).fits(secret)
    return entry if fits else None


def _scrypt(secret: str, salt: bytes) -> bytes:
    return hashlib.scrypt(
        secret.encode("utf-8", "surrogatepass"), salt=salt, n=_COST, r=_BLOCK, p=1, dklen=32
    )
