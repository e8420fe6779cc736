"""Decides whether a failed call is repeated: a pure function of the failed attempt, by the rules of client/retry.h.

Two failures are repeated, and no other: UNAVAILABLE where the server cannot have done the work (the request was never
sent, or a stream goes on after its last row, or the server loads its models and says when to try again), and
RESOURCE_EXHAUSTED where the server says when to try again.
Times are seconds.
"""

from __future__ import annotations

import dataclasses
import math
import random
import re

import grpc

PUSHBACK_KEY = "grpc-retry-pushback-ms"
_INT32_MAX = 2**31 - 1


@dataclasses.dataclass(frozen=True)
class RetryPolicy:
    # In a row that end in the same code, with the first one; 1: no repetition. Those that a server refuses because it is
    # loading do not count: more than 1 waits for it until the deadline.
    attempts_max: int = 5
    attempts_max_full: int | None = None  # for RESOURCE_EXHAUSTED; None: attempts_max
    delay_first: float = 0.05  # doubled for each further attempt
    delay_max: float = 1.0


NEVER_AGAIN = RetryPolicy(attempts_max=1)


@dataclasses.dataclass(frozen=True)
class Failure:
    """A failed attempt."""

    code: grpc.StatusCode
    message: str
    repeatable: bool = False  # nothing was sent, or the next attempt asks for missing rows only
    progressed: bool = False  # rows arrived; the count of attempts starts again
    pushback: float | None = None  # the server's wait


def decide_retry(
    policy: RetryPolicy, failure: Failure, attempts: int, time_left: float, jitter: float
) -> float | None:
    """The wait before the next attempt; None: report the failure. Always shorter than `time_left`.

    `attempts` in a row ended in this code without progress. `jitter` in [0, 1) spreads clients that failed together: it
    scales delays by 1/2 + jitter/2, and a pushback, which is never shortened, by 1 + jitter/2.
    """
    loading = failure.code == grpc.StatusCode.UNAVAILABLE and failure.pushback is not None
    if failure.code == grpc.StatusCode.UNAVAILABLE and failure.repeatable and not loading:
        if attempts >= policy.attempts_max:
            return None
        delay = _grown(policy, policy.delay_first, attempts) * (0.5 + jitter / 2)
    elif failure.pushback is not None and (loading or failure.code == grpc.StatusCode.RESOURCE_EXHAUSTED):
        if attempts >= _patience(policy, loading):
            return None
        # A pushback of 0 must grow as well, so that a full server is not called without a pause.
        delay = _grown(policy, max(failure.pushback, 0.001), attempts) * (1 + jitter / 2)
    else:
        return None
    return delay if delay < time_left else None


def _patience(policy: RetryPolicy, loading: bool) -> float:
    """Attempts with a server that says when to try again."""
    if loading:
        return math.inf if policy.attempts_max > 1 else 1
    return policy.attempts_max if policy.attempts_max_full is None else policy.attempts_max_full


def _grown(policy: RetryPolicy, first: float, attempts: int) -> float:
    return max(first, min(first * (1 << min(attempts - 1, 20)), policy.delay_max))


def parse_pushback(value: str | bytes) -> float | None:
    """Seconds. None for a negative value or a text that is no number: both mean "do not try again"."""
    text = value.decode("ascii", "replace") if isinstance(value, bytes) else value
    match = re.fullmatch(r"0*([0-9]{1,10})", text)
    if match is None or int(match[1]) > _INT32_MAX:
        return None
    return int(match[1]) / 1000


class Attempts:
    """Counts the attempts of one call. Not thread-safe."""

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy
        self._count = 0
        self._code: grpc.StatusCode | None = None

    def wait_after(self, failure: Failure, time_left: float) -> float | None:
        self._count = 1 if failure.progressed or failure.code != self._code else self._count + 1
        self._code = failure.code
        return decide_retry(self._policy, failure, self._count, time_left, random.random())
