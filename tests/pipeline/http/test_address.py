from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline import Pipeline, PipelineError
from pipeline.http.address import Address, token_for


@pytest.mark.parametrize(
    ("text", "host", "port", "loopback"),
    [
        ("127.0.0.1:8080", "127.0.0.1", 8080, True),
        ("127.7.0.1:0", "127.7.0.1", 0, True),
        ("localhost:0", "localhost", 0, True),
        ("[::1]:8080", "::1", 8080, True),
        ("0.0.0.0:80", "0.0.0.0", 80, False),
        ("[::]:80", "::", 80, False),
        ("127.0.0.1.evil.example:80", "127.0.0.1.evil.example", 80, False),
        ("localhost.evil.example:80", "localhost.evil.example", 80, False),
    ],
)
def test_addresses(text: str, host: str, port: int, loopback: bool) -> None:
    address = Address.parse(text)
    assert (address.host, address.port, address.is_loopback) == (host, port, loopback)
    assert str(address) == text


@pytest.mark.parametrize("text", ["8080", ":8080", "127.0.0.1", "127.0.0.1:65536", "http://[::1]:80", "a b:1", 80])
def test_what_is_no_address_is_refused_with_where_it_comes_from(text: object) -> None:
    with pytest.raises(PipelineError, match=r"http must be an address and a port, as in .* \(from WEIR_HTTP\)"):
        Address.parse(text, " (from WEIR_HTTP)")


@given(st.ip_addresses(), st.integers(0, 65535))
def test_every_ip_address_is_one_and_only_loopback_is(ip: ipaddress.IPv4Address, port: int) -> None:
    address = Address.parse(str(Address(str(ip), port)))
    assert ipaddress.ip_address(address.host) == ip
    assert address.is_loopback == ip.is_loopback


@pytest.mark.parametrize(
    ("host", "browser"),
    [("0.0.0.0", "localhost"), ("::", "localhost"), ("127.0.0.1", "127.0.0.1"), ("orders.example", "orders.example")],
)
def test_a_browser_is_led_to_no_address_that_stands_for_all(host: str, browser: str) -> None:
    assert Address(host, 80).for_browser == Address(browser, 80)


def test_a_job_has_a_token_of_its_own_and_none_for_other_hosts() -> None:
    loopback, open_ = Address("127.0.0.1", 0), Address("0.0.0.0", 0)
    assert len(token_for(loopback, {})) >= 32
    assert token_for(loopback, {}) != token_for(loopback, {"WEIR_HTTP_TOKEN": ""})
    with pytest.raises(PipelineError, match=r"can be reached from other hosts: set the variable WEIR_HTTP_TOKEN"):
        token_for(open_, {})
    own = "t" * 16
    assert token_for(open_, {"WEIR_HTTP_TOKEN": own}) == own
    for short, why in ((own[1:], "at least 16 bytes"), (f"{own} x", "visible ASCII"), (f"{own}é", "visible ASCII")):
        with pytest.raises(PipelineError, match=why):
            token_for(loopback, {"WEIR_HTTP_TOKEN": short})


def test_outside_wins_over_the_script(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIR_HTTP", "nonsense")
    with pytest.raises(PipelineError, match=r"not 'nonsense' \(from WEIR_HTTP\)"):
        Pipeline("job")._web_server("127.0.0.1:0")
    monkeypatch.setenv("WEIR_HTTP", "null")
    assert Pipeline("job")._web_server("127.0.0.1:0") is None


@pytest.mark.parametrize("value", [-1, "soon"])
def test_ready_within_is_a_duration(value: object) -> None:
    with pytest.raises(PipelineError, match="ready_within must be"):
        Pipeline("job", ready_within=value)  # type: ignore[arg-type]
