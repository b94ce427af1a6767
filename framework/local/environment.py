"""An environment that leads to no AWS account."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["REGION", "fake_environment"]

REGION = "us-east-1"

_OURS = ("AWS_", "MOTO_ACCOUNT_ID")
_FAKE = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_SESSION_TOKEN": "testing",
    "AWS_DEFAULT_REGION": REGION,
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_EC2_METADATA_DISABLED": "true",
    # Otherwise the SDK goes to an account's own host, which moto does not answer (AWS facts: local engines).
    "AWS_ACCOUNT_ID_ENDPOINT_MODE": "disabled",
}


@contextmanager
def fake_environment() -> Iterator[None]:
    """Fake credentials and nothing else of AWS in the environment; at the end it is as it was.

    Nothing of the surroundings may lead to a real account or to another engine: no profile, role, file or
    endpoint.
    """
    kept = _taken()
    os.environ.update(_FAKE)
    try:
        yield
    finally:
        _taken()
        os.environ.update(kept)


def _taken() -> dict[str, str]:
    names = [name for name in os.environ if name.startswith(_OURS)]
    return {name: os.environ.pop(name) for name in names}
