"""What is asked of webhooks is signed, as Standard Webhooks has it."""

from __future__ import annotations

import base64
import hashlib
import hmac

from loops import RunLoop
from replay_endpoint import Endpoint, webhook_loop
from serving import until

from slipstream.webhooks.signature import signed, signing_key


async def test_each_request_is_signed(run_loop: RunLoop) -> None:
    endpoint = Endpoint((503, None), calls=0)
    async with webhook_loop(run_loop, endpoint) as loop:
        await loop.chat("hello", {"x-slipstream-task-id": "t"})
        await until(lambda: len(endpoint.told) == 2)
    for headers, body in zip(endpoint.headers, endpoint.bodies, strict=True):
        told = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
        digest = hmac.new(b"a key of some length", told, hashlib.sha256).digest()
        assert headers["webhook-signature"] == f"v1,{base64.b64encode(digest).decode()}"
    assert endpoint.headers[0]["webhook-id"] == endpoint.headers[1]["webhook-id"], "one name for all tries of a run"


def test_a_signature_is_that_of_the_specifications_example() -> None:
    key = signing_key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    headers = signed(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
