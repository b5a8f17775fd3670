"""Whose act a provider's error is: typed words decide, and nothing that an agent can have a provider repeat."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.gateway.blame import blame, told

UNPAID = "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or purchase credits."
SPENT = "You have reached your specified API usage limits. You will regain access on 2026-04-01 at 00:00 UTC."
TOO_LARGE = "Request too large for gpt-x (for limit gpt-x) in organization org-a on tokens per min (TPM): Limit {}, Requested {}. Less."


def judged(status, headers=None, **error):
    found = blame(status, told(json.dumps({"error": error}).encode(), headers or {}))
    return "ours" if found.is_ours else found.status


@pytest.mark.parametrize("code", ["content_filter", "content_policy_violation", "moderation_blocked", "refusal"])
def test_moderation_is_the_agents(code):
    assert judged(403, code=code, message="no") == 403
    assert judged(403, code=None, type=code) == 403
    assert judged(400, code=code) == 400


def test_moderation_is_found_where_providers_put_it():
    assert judged(403, code=403, metadata={"reasons": ["x"], "flagged_input": "go"}) == 403
    cut = {"code": 403, "metadata": {"reasons": ["x"], "flagged_input": "cut \ud83d"}}
    assert judged(403, **cut) == 403
    assert judged(403, code="403", innererror={"code": "ResponsibleAIPolicyViolation"}) == 403


@pytest.mark.parametrize(
    "error",
    [
        {"code": "unsupported_country_region_territory", "type": "request_forbidden"},
        {"code": "invalid_api_key", "type": "invalid_request_error"},
        {"code": None, "type": "invalid_request_error", "message": "You are not allowed to sample from this model"},
        {"type": "permission_error", "message": "content_filter"},
        {"code": 403, "message": "content_policy_violation", "metadata": {"raw": "flagged_input"}},
        {},
    ],
)
def test_other_403_are_ours(error):
    assert judged(403, **error) == "ours"


@pytest.mark.parametrize("status", [401, 402, 408, 429, 500, 529])
def test_no_word_makes_other_failures_the_agents(status):
    assert judged(status, code="content_filter", message=TOO_LARGE.format(1, 2)) == "ours"


@pytest.mark.parametrize(("limit", "requested", "whose"), [(30000, 61337, 413), (30000, 29999, "ours"), (0, 9, "ours")])
def test_a_request_larger_than_all_that_may_be_sent_is_the_agents(limit, requested, whose):
    assert judged(429, code="rate_limit_exceeded", type="tokens", message=TOO_LARGE.format(limit, requested)) == whose
    assert judged(429, code="rate_limit_exceeded", message="x " + TOO_LARGE.format(limit, requested)) == "ours"
    assert judged(429, code="insufficient_quota", message=TOO_LARGE.format(limit, requested)) == "ours"


@pytest.mark.parametrize(
    "word", ["ServiceQuotaExceededException", "RequestExpired", "AccessDeniedException", "UnrecognizedClientException"]
)
def test_keys_and_quotas_of_aws_are_ours_whatever_the_status(word):
    headers = {"x-amzn-ErrorType": f"{word}:http://internal.amazon.com/"}
    assert judged(400, headers, message="no") == "ours"
    assert judged(400, {"x-amzn-ErrorType": "ValidationException"}, message=word) == 400


def test_a_quota_may_have_room_later():
    quota = told(b'{"message": "later"}', {"x-amzn-ErrorType": "ServiceQuotaExceededException"})
    assert blame(400, quota).is_retryable
    assert not blame(400, told(b"{}", {})).is_retryable


@pytest.mark.parametrize("sentence", [UNPAID, SPENT, "This organization has been disabled."])
def test_bills_without_a_typed_word_are_ours(sentence):
    assert judged(400, type="invalid_request_error", message=sentence) == "ours"
    assert judged(400, code="billing_hard_limit_reached", type="invalid_request_error") == "ours"


@given(st.one_of(st.sampled_from([UNPAID, SPENT, "Your credit balance is too low"]), st.text(max_size=40)))
def test_a_field_that_is_named_like_a_bill_is_the_agents(name):
    for message in (
        f"{name}: Extra inputs are not permitted",
        f"Invalid value: '{name}'. billing",
        f"tools.0.{name}: no",
    ):
        assert judged(400, type="invalid_request_error", message=message) == 400


@given(
    st.one_of(
        st.binary(max_size=60), st.recursive(st.none() | st.text(max_size=5), st.lists).map(json.dumps).map(str.encode)
    )
)
def test_anything_may_come(data):
    assert blame(400, told(data, {})).status == 400
    assert blame(503, told(data, {})).is_ours
