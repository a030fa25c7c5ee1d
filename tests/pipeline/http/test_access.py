from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pipeline.http.access import CODE_LIFE, SESSION_LIFE, Access, Asked

TOKEN = "a-token-of-the-job"
HOST = "127.0.0.1:8080"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def access(loopback: bool = True, clock: Clock | None = None) -> Access:
    return Access(TOKEN, loopback, clock or Clock())


def status(one: Access, **asked: str) -> int | None:
    refusal = one.refused(Asked(**{"method": "GET", "host": HOST, **asked}))
    return None if refusal is None else refusal.status


@given(st.text(), st.sampled_from(["Bearer", "bearer", "Basic", ""]))
def test_only_the_token_is_let_in(text: str, scheme: str) -> None:
    refused = status(access(), authorization=f"{scheme} {text}")
    assert (refused is None) == (scheme.lower() == "bearer" and text.strip() == TOKEN)


def test_the_token_and_how_to_send_it() -> None:
    one = access()
    assert status(one, authorization=f"Bearer {TOKEN}") is None
    assert status(one, authorization=f"bearer  {TOKEN} ") is None
    assert status(one) == 401
    refusal = one.refused(Asked("GET", HOST))
    assert refusal is not None
    assert "Authorization: Bearer TOKEN" in refusal.detail
    assert TOKEN not in refusal.detail


def test_a_code_begins_one_session() -> None:
    one = access()
    code = one.new_code()
    session = one.log_in(code, HOST)
    assert session is not None
    assert one.log_in(code, HOST) is None
    assert one.log_in("", HOST) is None
    assert status(one, session=session) is None
    assert status(one, session=code) == 401
    assert status(one, authorization=f"Bearer {session}") == 401


def test_codes_and_sessions_end() -> None:
    clock = Clock()
    one = access(clock=clock)
    late, code = one.new_code(), one.new_code()
    session = one.log_in(code, HOST)
    assert session is not None
    clock.now = CODE_LIFE
    assert one.log_in(late, HOST) is None
    clock.now = SESSION_LIFE - 1
    assert status(one, session=session) is None
    clock.now = SESSION_LIFE
    assert status(one, session=session) == 401


def test_the_oldest_of_too_many_codes_and_sessions_are_forgotten() -> None:
    one = access()
    codes = [one.new_code() for _ in range(17)]
    assert one.log_in(codes[0], HOST) is None
    sessions = [one.log_in(code, HOST) for code in codes[1:]]
    sessions.extend(one.log_in(one.new_code(), HOST) for _ in range(49))
    assert status(one, session=str(sessions[0])) == 401
    assert status(one, session=str(sessions[1])) is None


def test_a_session_holds_for_the_host_that_it_was_begun_by() -> None:
    one = access(loopback=False)
    session = str(one.log_in(one.new_code(), "orders.example:8080"))
    assert status(one, session=session, host="orders.example:8080") is None
    assert status(one, session=session, host="elsewhere.example:8080") == 401


def test_changes_come_from_the_servers_own_pages_only() -> None:
    one = access()
    session = str(one.log_in(one.new_code(), HOST))
    token = f"Bearer {TOKEN}"
    assert status(one, session=session, method="POST", origin=f"http://{HOST}") is None
    assert status(one, session=session, method="POST", origin="http://127.0.0.1:9999") == 403
    assert status(one, session=session, method="POST", origin="null") == 403
    assert status(one, session=session, method="POST") == 403
    assert status(one, authorization=token, method="POST") is None
    assert status(one, authorization=token, method="POST", origin="http://evil.example") == 403


def test_on_loopback_only_its_names_are_answered_to() -> None:
    one = access()
    for host in (HOST, "localhost:9", "[::1]:8080", "127.0.0.2"):
        assert one.misdirected(Asked("GET", host)) is None
    for host in ("evil.example:8080", "", "127.0.0.1.evil.example", "[::1", "10.0.0.1:8080", "localhost@evil.example"):
        refusal = one.misdirected(Asked("GET", host))
        assert refusal is not None
        assert refusal.status == 421
    assert access(loopback=False).misdirected(Asked("GET", "orders:8080")) is None
