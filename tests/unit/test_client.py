"""The client that the framework makes: a reply that was damaged on the way is none."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from zlib import crc32

import pytest
from botocore.awsrequest import AWSResponse
from botocore.parsers import ResponseParserError

from framework.client import dynamodb
from framework.control import Control
from framework.errors import DeliveryError

WHOLE = json.dumps({"Item": {"pk": {"S": "delivery"}, "sk": {"S": "T"}, "delivery": {"S": "lanes"}}}).encode()


class Raw:
    """What a connection gives."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    def stream(self) -> Iterator[bytes]:
        yield self._body


def client(body: bytes, checksum: int | None, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A client of whose requests each gets the same reply."""
    monkeypatch.setattr("botocore.retries.standard.ExponentialBackoff.delay_amount", lambda *_: 0)
    headers = {} if checksum is None else {"x-amz-crc32": str(checksum)}
    found = dynamodb.__wrapped__()
    found.meta.events.register("before-send", lambda request, **_: AWSResponse("", 200, headers, Raw(body)))
    return found


def asked(a_client: Any) -> Any:
    return a_client.get_item(TableName="T", Key={"pk": {"S": "x"}}).get("Item")


@pytest.mark.parametrize("checksum", [crc32(WHOLE), None])
def test_a_whole_reply_is_taken(checksum: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked(client(WHOLE, checksum, monkeypatch)) == json.loads(WHOLE)["Item"]


@pytest.mark.parametrize("body", [WHOLE[:20], b"", WHOLE.replace(b"lanes", b"boats")])
def test_a_damaged_reply_does_not_pass_for_an_empty_one(body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    damaged = client(body, crc32(WHOLE), monkeypatch)
    with pytest.raises(ResponseParserError, match="expected a reply with the checksum"):
        asked(damaged)
    with pytest.raises(DeliveryError, match="control table 'C': expected an answer"):
        Control(damaged, "C", lambda name, content: None).check("T", "lanes")
