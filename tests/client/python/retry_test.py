"""The decision to repeat, as tests/client/retry_test.cc has it for C++."""

import grpc
import pytest

from hyperserve.retry import Attempts, Failure, RetryPolicy, decide_retry, parse_pushback

UNAVAILABLE, FULL = grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED
POLICY = RetryPolicy()


def decide(failure, attempts=1, time_left=100.0, jitter=0.0, policy=POLICY):
    return decide_retry(policy, failure, attempts, time_left, jitter)


def test_only_what_was_not_sent_is_repeated():
    assert decide(Failure(UNAVAILABLE, "", repeatable=True)) == 0.025
    assert decide(Failure(UNAVAILABLE, "")) is None


@pytest.mark.parametrize("code", [code for code in grpc.StatusCode if code not in (UNAVAILABLE, FULL)])
def test_no_other_code_is_repeated(code):
    assert decide(Failure(code, "", repeatable=True, pushback=0.001)) is None


def test_a_full_server_is_called_again_only_if_it_says_when():
    assert decide(Failure(FULL, "", repeatable=True)) is None
    assert decide(Failure(FULL, "", pushback=0.02)) == 0.02  # never shortened
    assert decide(Failure(FULL, "", pushback=0.02), jitter=0.5) == pytest.approx(0.025)
    assert decide(Failure(FULL, "", pushback=0.0), attempts=3) == 0.004  # grows all the same
    assert decide(Failure(FULL, "", pushback=7.0), attempts=4) == 7.0  # above delay_max


def test_a_server_that_loads_is_waited_for_until_the_deadline():
    loading = Failure(UNAVAILABLE, "", pushback=0.05)
    assert decide(loading) == 0.05
    assert decide(loading, attempts=1_000_000) == 1.0
    assert decide(Failure(UNAVAILABLE, "", repeatable=True, pushback=0.05), attempts=1_000_000) == 1.0  # of a stream
    assert decide(loading, attempts=1_000_000, time_left=1.0) is None
    assert decide(loading, policy=RetryPolicy(attempts_max=1)) is None


def test_waits_double_up_to_the_limit():
    waits = [decide(Failure(UNAVAILABLE, "", repeatable=True), n, policy=RetryPolicy(attempts_max=100))
             for n in (1, 2, 3, 6, 99)]
    assert waits == [0.025, 0.05, 0.1, 0.5, 0.5]


def test_attempts_are_counted_by_code():
    unsent, full = Failure(UNAVAILABLE, "", repeatable=True), Failure(FULL, "", pushback=0.001)
    assert decide(unsent, 5) is None and decide(unsent, 4) is not None
    assert decide(full, 5) is None
    assert decide(full, 500, policy=RetryPolicy(attempts_max_full=1000)) is not None
    attempts = Attempts(RetryPolicy(attempts_max=2))
    assert attempts.wait_after(unsent, 9) is not None
    assert attempts.wait_after(full, 9) is not None  # another code begins a new count
    assert attempts.wait_after(full, 9) is None


def test_progress_begins_the_count_again():
    attempts = Attempts(RetryPolicy(attempts_max=2))
    for _ in range(10):
        assert attempts.wait_after(Failure(UNAVAILABLE, "", repeatable=True, progressed=True), 9) is not None
    assert attempts.wait_after(Failure(UNAVAILABLE, "", repeatable=True), 9) is None


def test_a_wait_ends_before_the_deadline():
    assert decide(Failure(UNAVAILABLE, "", repeatable=True), time_left=0.025) is None
    assert decide(Failure(UNAVAILABLE, "", repeatable=True), time_left=0.026) is not None


@pytest.mark.parametrize("text, seconds", [
    ("0", 0.0), ("25", 0.025), (b"25", 0.025), ("-1", None), ("", None), ("5x", None), ("99999999999", None),
    ("9" * 5000, None), ("0" * 5000 + "7", 0.007), ("2147483647", 2147483.647), ("2147483648", None),
    ("+5", None), (" 5", None), ("\u0665", None)], ids=lambda one: repr(one)[:20])
def test_pushback(text, seconds):
    assert parse_pushback(text) == seconds
