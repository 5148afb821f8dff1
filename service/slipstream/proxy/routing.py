"""The decision on who answers a user's request: production, or a version of the policy in the lane.

A unit is what one user, one session or one conversation has in common: the number that `lot` draws by, with another
seed, the store's salt. Its hash decides on the arm, so a unit stays in its arm in each worker, in each sidecar and
after a restart, and a share that rises only adds units. What a request must be for the lane is looked at before that,
so that what the lane cannot serve leaves both arms.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from slipstream.dialects.form import Dialect, dialect_of
from slipstream.http.headers import Headers, content_length, has, own_fields
from slipstream.proxy.consent import may_capture
from slipstream.proxy.guard import Admitted
from slipstream.proxy.lane import Lane
from slipstream.proxy.lot import Lots
from slipstream.proxy.request import Request
from slipstream.proxy.serving_metrics import Ineligible
from slipstream.serving.breaker import LaneBreaker
from slipstream.serving.page import PRODUCTION, ServingPage, Split
from slipstream.serving.question import question_of
from slipstream.serving.served import Served
from slipstream.tenants import DEFAULT

HEADER = b"x-slipstream-variant"
"""In a request: the caller's wish; in an answer: who gave it."""

_TELL = b"?1"
"""Value by which a caller asks to be told who answered: true, in a structured field (RFC 9651)."""

_KILL = b"/serving/kill"

Wish = Literal["tell", "production"]


class Assigned(NamedTuple):
    """A request in an arm.

    Attributes:
        body: that the lane gets; None in the control arm.
    """

    served: Served
    body: bytes | None


class Routing:
    """
    Args:
        identity_headers: by which users are told apart, in lower case.
        max_body: bytes of a request that may go to the lane.
        max_context: tokens of a prompt and its answer; None for any number.
        outcomes: how an assigned call went is told of those too that `capture.rate` leaves out.

    Attributes:
        page: says which share is set.
        lane: where the version answers.
    """

    def __init__(
        self,
        page: ServingPage,
        lane: Lane,
        breaker: LaneBreaker,
        identity_headers: tuple[str, ...],
        *,
        max_body: int,
        max_context: int | None,
        outcomes: bool = True,
    ) -> None:
        self.outcomes = outcomes
        self.page = page
        self.lane = lane
        self.breaker = breaker
        self._identity_headers = identity_headers
        self._max_body = max_body
        self._max_context = max_context
        self._lots = Lots(identity_headers)
        self._salt: int | None = None
        self._epoch: int | None = None

    def split(self) -> Split | None:
        """Return the share that holds now; None where production answers everybody, or the page is of another lane."""
        split = self.page.split()
        return split if split is None or split.lane == self.lane.base_url else None

    def serves(self, version: int) -> bool:
        """Return whether a request that was assigned to this version may be sent to the lane now."""
        split = self.split()
        return split is not None and split.version == version

    def waits_for(self, request: Request) -> bool:
        """Return whether a request is kept until its body is whole, to be assigned: it states a length, and may go to
        the lane as far as its head tells."""
        return self._unfit_head(request) is None

    def assign(self, request: Request, admitted: Admitted, split: Split) -> Assigned | Ineligible | None:
        """The arm of a request; or why it has none; or None for one that asks for no answer of a model.

        Takes some microseconds, and as many more as a third of a nanosecond for each byte.
        """
        if split.epoch != self._epoch:
            self._epoch = split.epoch
            self.breaker.succeeded()  # what failed under another share says nothing about this one
        if _dialect(request) is None:
            return None
        if wish(request.headers) == "production":
            return "opted_out"
        if not may_capture(request.headers, key=admitted.capture):
            return "not_captured"
        if (unfit := self._unfit_head(request)) is not None:
            return unfit
        body = request.pieces[0] if len(request.pieces) == 1 else b"".join(request.pieces)
        tenant = admitted.scope.tenant or DEFAULT
        unit = self._lots_of(split).number(Dialect.CHAT, request.headers, body, True, tenant, admitted.key)
        question = question_of(body, self._max_context)
        if isinstance(question, str):
            return question
        if not isinstance(unit, int):
            return "content"
        treated = split.takes(unit)
        served = Served(
            variant=PRODUCTION,
            arm="treatment" if treated else "control",
            unit=unit,
            version=split.version,
            epoch=split.epoch,
        )
        return Assigned(served, question.of(split.model) if treated else None)

    def kills(self, request: Request, admitted: Admitted) -> bool:
        """Return whether this request to the control API is a kill by one who may: it holds here at once."""
        kill = request.method == b"POST" and request.target.partition(b"?")[0] == _KILL
        return kill and admitted.scope.tenant is None

    def close(self) -> None:
        """Close the idle connections to the lane."""
        self.lane.route.pool.close()

    def _unfit_head(self, request: Request) -> Ineligible | None:
        if _dialect(request) is not Dialect.CHAT:
            return "dialect"
        headers = request.headers
        if (
            not has(headers, b"content-length")
            or has(headers, b"transfer-encoding")
            or has(headers, b"content-encoding")
        ):
            return "encoding"
        return "too_large" if content_length(headers) > self._max_body else None

    def _lots_of(self, split: Split) -> Lots:
        if split.salt != self._salt:
            self._salt, self._lots = split.salt, Lots(self._identity_headers, split.salt)
        return self._lots


def wish(headers: Headers) -> Wish | None:
    """The caller's wish about who answers. Each value but one is taken for production: a word that we misread must not
    send a user to another model."""
    for name, value in own_fields(headers):
        if name == HEADER:
            return "tell" if value.strip() == _TELL else "production"
    return None


def _dialect(request: Request) -> Dialect | None:
    if request.method != b"POST":
        return None
    return dialect_of(request.target.partition(b"?")[0].decode("latin-1"))
