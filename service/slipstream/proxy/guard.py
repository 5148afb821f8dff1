"""The one question that a worker asks before a request goes anywhere: who is this, and may they?"""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import unquote_to_bytes

import msgspec
import structlog

from slipstream.access.carried import Carried, bearer, carried, password
from slipstream.access.foreign_pages import READS, Sender, is_of_script, telling
from slipstream.access.forwarded import Forwarded
from slipstream.access.keyring import Keyring
from slipstream.access.keys import KEY
from slipstream.access.ledger import NOBODY, Book
from slipstream.access.page_session import COOKIE, cookie_name, hash_of
from slipstream.access.page_session import PATH as SESSION
from slipstream.access.rebinding import foreign_host
from slipstream.access.roles import OPEN, control_path, is_facade, needs_no_key, takes_sessions
from slipstream.access.scope import EVERYTHING, FACADE, LEAST, Scope
from slipstream.http.headers import Headers
from slipstream.proxy import rights
from slipstream.proxy.addresses import AddressLimits
from slipstream.proxy.refusal import SESSION_ENDED, Refusal, fails_too_often, too_often
from slipstream.proxy.request import Request
from slipstream.settings.sidecar import Settings

_log = structlog.get_logger(__name__)

_PRODUCTIONS = "/v1"

_QUIET = 1.0
"""Seconds after a line about a refusal until the next one."""

_MOST_SESSIONS = 1000
"""Sessions of the page of which a worker remembers that they hold: some 100 KiB."""

_CHALLENGE = b'www-authenticate: Bearer, Basic realm="slipstream"\r\n'
_CHALLENGE_OF_SCRIPT = b"www-authenticate: Bearer\r\n"

_MISSING = (
    "Slipstream: this sidecar asks for a key of its own, slp_..., in the header x-slipstream-key (or, where that is "
    "absent, as the Bearer token); slipstream_client sends that of SLIPSTREAM_API_KEY. The production model's key "
    "stays in Authorization."
)
_UNKNOWN = "Slipstream: this key is not valid here: mistyped, taken out, or of another sidecar."
_SEVERAL = "Slipstream: two different keys in one request; send one."
_IN_ADDRESS = "Slipstream: a key in an address ends up in logs: send it in a header, and have this one replaced."
_NO_PRODUCTION_KEY = (
    "Slipstream: Authorization holds Slipstream's own key, which does not go to production, and production.api_key is "
    "not set. Send Slipstream's key as x-slipstream-key and the production model's in Authorization, or set "
    "production.api_key."
)
_FOREIGN = (
    "Slipstream: this sidecar has no keys, so it answers to localhost and to addresses alone, and not to %s: a web "
    "page could have sent this (DNS rebinding). Give it keys (access.keys), or say access.insecure: true."
)
_PAGE = (
    "Slipstream: this request was sent by a page of another site (%s), which this sidecar does nothing for. A program "
    "that means it sends a key of ours in the header x-slipstream-key."
)
_PAGE_WITHOUT_KEYS = (
    "Slipstream: this request was sent by a page of another site (%s). This sidecar has no keys, so it does what "
    "programs of this machine and its own page ask for. Give it keys (access.keys) for others."
)
_FACADE = "the facade wants facade.api_key, as a Bearer token or as the password of Basic authentication"


@dataclass(frozen=True, slots=True)
class Admitted:
    """A request may go on.

    Attributes:
        scope: what it may reach of the store.
        key: the name of the key that it came with; None without one of ours.
        capture: whether whoever sent it lets it be stored.
    """

    scope: Scope
    key: str | None = None
    capture: bool = True


FREELY = Admitted(EVERYTHING)
"""No key is asked for."""
_KEYLESS = Admitted(LEAST)
"""Nobody's key: of a probe, or of a client of the facade."""


class Guard:
    """
    Args:
        settings: of the whole sidecar.
        keyring: None where no key is asked for.
        clock: Unix seconds.
    """

    def __init__(
        self, settings: Settings, keyring: Keyring | None, book: Book, clock: Callable[[], float] = time.time
    ) -> None:
        facade_key = settings.facade.api_key
        self._facade_key = None if facade_key is None else facade_key.get_secret_value().encode()
        self._production_has_a_key = settings.production.api_key is not None
        self._keyring = keyring
        self._book = book
        self._clock = clock
        self._forwarded = Forwarded(settings.access.trusted_proxies)
        self._on_trust = settings.access.on_trust
        limits, workers = settings.limits, settings.proxy.workers
        self._addresses = AddressLimits(limits.address_requests, limits.address_failures, workers, clock)
        self._hold: dict[str, None] = {}
        """Sessions that the training side let in, by the hashes of their tokens; those of late are the last ones."""
        self._quiet_until = 0.0

    def admit(self, request: Request, productions: bool, peer: Callable[[], str]) -> Admitted | Refusal:
        """Say whether a request may go on, and take out of it what must not: keys of ours, forged `X-Forwarded-*`.

        Args:
            productions: it is for the production model.
            peer: tells the address at the other end of the connection.
        """
        if self._forwarded.configured:
            request.headers = self._forwarded.believed(request.headers, peer())
        answer = self._asked(request, productions, peer)
        if isinstance(answer, Refusal):
            caller = self._caller(request, peer)
            if answer.fields is _CHALLENGE and is_of_script(request.headers):
                answer = answer._replace(fields=_CHALLENGE_OF_SCRIPT)
            # A valid key passes all the same: callers behind one proxy or NAT must not shut each other out.
            if answer.status == HTTPStatus.UNAUTHORIZED and (wait := self._addresses.failure(caller)) is not None:
                answer = fails_too_often(caller, wait)
            self._tell(answer, caller)
        return answer

    def answered(self, request: Request, status: int, peer: Callable[[], str]) -> None:
        """The training side has answered a request in a session, and so said whether that holds."""
        session = request.scope.session or ""
        if status == HTTPStatus.UNAUTHORIZED:
            self._hold.pop(session, None)
            self._book.counts(NOBODY, "unauthorized")
            caller = self._caller(request, peer)
            self._addresses.failure(caller)
            self._tell(SESSION_ENDED, caller)
        elif status < HTTPStatus.BAD_REQUEST and control_path(request.target) != SESSION:  # that one answers anybody
            self._hold.pop(session, None)
            self._hold[session] = None
            if len(self._hold) > _MOST_SESSIONS:
                del self._hold[next(iter(self._hold))]

    def _caller(self, request: Request, peer: Callable[[], str]) -> str:
        """The caller's address. It costs some microseconds, so it is looked for where it counts only."""
        return self._forwarded.caller(request.headers, peer())

    def _asked(self, request: Request, productions: bool, peer: Callable[[], str]) -> Admitted | Refusal:
        path = _PRODUCTIONS if productions else control_path(request.target)
        facade = self._facade_key is not None and is_facade(path)
        opened = facade and self._opens_facade(request.headers)
        keyless = FREELY if self._keyring is None else _KEYLESS
        if opened:
            keyless = Admitted(msgspec.structs.replace(keyless.scope, key=FACADE))
        if self._on_trust and (refusal := self._foreign(request, productions)) is not None:
            return refusal
        if self._keyring is None:
            return self._unauthorized("unauthorized", _FACADE) if facade and not opened else keyless
        found = carried(request.headers)
        if found is not None:
            request.headers = found.headers
        if path in OPEN:
            return keyless
        caller = self._caller(request, peer)
        if (wait := self._addresses.request(caller)) is not None:
            return too_often(caller, wait)
        if opened:
            return keyless
        if facade and (found is None or not found.keys):
            return self._unauthorized("unauthorized", _FACADE)
        known = self._known(self._keyring, found, request, path, productions)
        if isinstance(known, Admitted) and known.key is None and path != SESSION:
            return self._in_session(known, caller)
        return known

    def _in_session(self, admitted: Admitted, caller: str) -> Admitted | Refusal:
        """Refuse a session that may be made up, where the caller's address has failed too often. One that holds passes
        all the same, as a valid key does."""
        scope = admitted.scope
        if not scope.to_be_resolved or scope.session in self._hold:
            return admitted
        wait = self._addresses.failed(caller)
        return admitted if wait is None else fails_too_often(caller, wait)

    def _foreign(self, request: Request, productions: bool) -> Refusal | None:
        """The answer, of a sidecar without keys, to what a web page of elsewhere may have sent."""
        fields = telling(request.headers)
        host = foreign_host(fields)
        if host is not None:
            return self._forbidden("slipstream_host_unknown", _FOREIGN % host)
        if len(fields) <= 1:
            return None
        if any(COOKIE in value for _, value in fields) and (found := carried(request.headers)) is not None:
            request.headers = found.headers  # a session with a sidecar of this host that has keys
        return self._of_page(request, productions, fields, _PAGE_WITHOUT_KEYS)

    def _of_page(
        self, request: Request, productions: bool, fields: Headers | None = None, text: str = _PAGE
    ) -> Refusal | None:
        """The answer to a write that a page of another site had sent; None for any other request.

        Args:
            fields: those that tell, where they are known.
        """
        if request.method in READS:
            return None
        sender = Sender(request.headers if fields is None else fields, proxied=self._forwarded.configured)
        page = sender.is_from_another_machine() if productions else sender.is_foreign()
        return None if page is None else self._forbidden("slipstream_origin_foreign", text % page)

    def _known(
        self, keyring: Keyring, found: Carried | None, request: Request, path: str, productions: bool
    ) -> Admitted | Refusal:
        if KEY.search(unquote_to_bytes(request.target)):
            return self._unauthorized("slipstream_key_in_address", _IN_ADDRESS)
        if found is None or not found.keys:
            return self._without_key(found, request, path, productions)
        if len(found.keys) > 1:
            return self._unauthorized("slipstream_keys_differ", _SEVERAL)
        key = keyring.holder(*found.keys)
        if key is None:
            return self._unauthorized("slipstream_key_unknown", _UNKNOWN)
        if (text := rights.expired(key, self._clock())) is not None:
            return self._unauthorized("slipstream_key_expired", text)
        if (found.basic or path == SESSION) and (refusal := self._of_page(request, productions)) is not None:
            return refusal
        if (refusal := rights.role_missing(key, request.method, path)) is not None:
            self._book.counts(key.name, "forbidden")
            return refusal
        if found.replaced and productions and not self._production_has_a_key:
            return self._unauthorized("production_key_missing", _NO_PRODUCTION_KEY)
        if (refusal := rights.too_often(key, self._book)) is not None:
            self._book.counts(key.name, "limited")
            return refusal
        self._book.counts(key.name, "admitted")
        scope = key.scope
        if path == SESSION and not productions:  # a new session takes the place of the browser's last one
            scope = msgspec.structs.replace(scope, digest=key.digest.hex(), session=_session(found, request))
        return Admitted(scope, key.name, key.capture)

    def _without_key(self, found: Carried | None, request: Request, path: str, productions: bool) -> Admitted | Refusal:
        """Take a request of the page, or of one who looks for it. The training side knows the sessions, and says
        whether this one still holds, and what it may."""
        method = request.method
        if not productions and takes_sessions(method, path) and (session := _session(found, request)) is not None:
            if (refusal := self._of_page(request, productions)) is not None:
                return refusal
            return Admitted(msgspec.structs.replace(LEAST, session=session))
        if not productions and needs_no_key(method, path):
            return _KEYLESS
        return self._unauthorized("slipstream_key_missing", _MISSING)

    def _opens_facade(self, headers: Headers) -> bool:
        """Return whether the request has `facade.api_key`, which does not have the form of our keys."""
        value = next((value for name, value in headers if name.lower() == b"authorization"), b"")
        given = bearer(value) or password(value) or b""
        return self._facade_key is not None and hmac.compare_digest(given, self._facade_key)

    def _unauthorized(self, code: str, message: str) -> Refusal:
        self._book.counts(NOBODY, "unauthorized")
        return Refusal(401, code, message, fields=_CHALLENGE)

    def _forbidden(self, code: str, message: str) -> Refusal:
        self._book.counts(NOBODY, "forbidden")
        return Refusal(403, code, message, kind="permission_error")

    def _tell(self, refusal: Refusal, caller: str) -> None:
        """One line a second at most: whoever tries keys must not fill the disk. The metric counts all."""
        now = time.monotonic()
        if now >= self._quiet_until:
            self._quiet_until = now + _QUIET
            _log.warning("access_refused", status=refusal.status, reason=refusal.code, caller=caller)


def _session(found: Carried | None, request: Request) -> str | None:
    """The hash of the token by which this sidecar's page is signed in; None without one."""
    if found is None or not found.sessions:
        return None
    host = next((value for name, value in request.headers if name.lower() == b"host"), b"")
    token = found.sessions.get(cookie_name(host))
    return None if token is None else hash_of(token)


def guard_for(settings: Settings, book: Book) -> Guard | None:
    """The guard of one worker; None where whoever reaches it may do everything, and nothing is to be taken out.

    Raises:
        ConfigError: `access.keys_file` cannot be used.
    """
    access = settings.access
    if not (access.asked_for or access.on_trust or access.trusted_proxies or settings.facade.api_key is not None):
        return None
    return Guard(settings, Keyring(access) if access.asked_for else None, book)
