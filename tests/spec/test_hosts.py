"""Rules of hosts: one canonical form, and nothing that means another host than it says."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.gateway.addresses import is_public, reachable
from orchestrator.spec.hosts import HostRule, allows, authority, canonical_host

NAMES = st.from_regex(r"[a-z]([a-z0-9-]{0,8}[a-z0-9])?(\.[a-z]([a-z0-9-]{0,8}[a-z0-9])?){0,3}", fullmatch=True).filter(
    lambda name: not any(label[2:4] == "--" for label in name.split("."))
)


@pytest.mark.parametrize(
    ("rule", "target", "allowed"),
    [
        ("example.com", "EXAMPLE.com.:443", True),
        ("example.com", "example.com:80", False),
        ("example.com:80", "example.com:80", True),
        ("example.com:*", "example.com:8443", True),
        ("example.com", "www.example.com:443", False),
        ("*.example.com", "www.example.com:443", True),
        ("*.example.com", "example.com:443", False),
        ("*.example.com", "badexample.com:443", False),
        ("bücher.example", "xn--bcher-kva.example:443", True),
        ("*", "anything.example:443", True),
        ("*", "anything.example:22", False),
        ("*:*", "[2606:4700::1]:22", True),
        ("8.8.8.8", "8.8.8.8:443", True),
        ("[2606:4700:0::1]:53", "[2606:4700::1]:53", True),
    ],
)
def test_a_rule_allows_what_it_says(rule, target, allowed):
    assert allows([HostRule.parse(rule)], *authority(target)) is allowed


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a..b",
        "-a.com",
        "a b.com",
        "a.com/x",
        "a.com:0",
        "a.com:65536",
        "a.com:x",
        "127.1",
        "0x7f000001",
        "2130706433",
        "1.2.3",
        "*a.com",
        "a.*",
    ],
)
def test_what_is_no_host_is_refused(text):
    with pytest.raises(ValueError, match=r"host|port|address"):
        HostRule.parse(text)


@pytest.mark.parametrize(
    "text", ["a.com", "a@b.com:443", "a.com:443/", "http://a.com:443", "[::1]", ":443", "a.com:99999", "[::1%eth0]:80"]
)
def test_what_is_no_authority_is_refused(text):
    with pytest.raises(ValueError, match=r"HOST:PORT|host"):
        authority(text)


@given(NAMES)
def test_the_canonical_form_stays(name):
    once = canonical_host(name.upper() + ".")
    assert canonical_host(once) == once == name


@given(NAMES, NAMES)
def test_a_rule_of_a_name_means_that_name_alone(one, other):
    assert allows([HostRule.parse(one)], canonical_host(other), 443) is (one == other)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.1.2.3", "172.31.0.1", "192.168.1.1", "169.254.169.254", "100.100.100.200", "168.63.129.16", "192.0.0.192",
        "0.0.0.0", "224.0.0.1", "255.255.255.255", "198.18.0.1", "::1", "::", "fe80::1", "fd00:ec2::254", "ff02::1", "::ffff:8.8.8.8",
        "64:ff9b::808:808", "2002:a00:1::1", "2001:0:1::1", "2001:db8::1",
    ],
)  # fmt: skip
def test_addresses_that_are_not_of_the_open_internet(address):
    assert not is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize("address", ["8.8.8.8", "1.1.1.1", "2606:4700::1111", "2a00:1450:4001::1"])
def test_public_addresses(address):
    assert is_public(ipaddress.ip_address(address))


@given(st.lists(st.ip_addresses(), max_size=5))
def test_only_public_addresses_are_reachable(addresses):
    assert all(is_public(address) for address in reachable(addresses, (), ()))


def test_whoever_runs_the_gateway_names_exceptions():
    mirror, outside = ipaddress.ip_address("10.0.0.5"), ipaddress.ip_address("8.8.8.8")
    allowed, denied = [ipaddress.ip_network("10.0.0.5/32")], [ipaddress.ip_network("8.0.0.0/8")]
    assert reachable([mirror, outside, mirror], denied, allowed) == [mirror]
