"""What cannot be sent is refused in words that name it, before any call."""

import numpy as np
import pytest

import hyperserve
from hyperserve import requests, wire

STATE = np.zeros((2, 2))


def sample(rows=1, seed=0, first_row=0, **options):
    return requests.sample("m", rows, seed, first_row, False, options)


def solve(span=None, **options):
    return requests.solve("m", None, STATE, span, (), False, "", options).request


@pytest.mark.parametrize("kind, words, call", [
    (TypeError, "rows=10.0: 'float'", lambda: sample(rows=10.0)),
    (ValueError, "rows=1000000000000000000000: ", lambda: sample(rows=10**21)),
    (ValueError, "seed=-1: ", lambda: sample(seed=-1)),
    (TypeError, "first_row='a': ", lambda: sample(first_row="a")),
    (TypeError, "top_k=1.5: ", lambda: requests.classify("m", STATE, 1.5, False, False, False, {})),
    (TypeError, "chunk_rows=1.5: ", lambda: requests.sample_stream("m", 1, 0, 0, False, 1.5, {})),
    (ValueError, "first_row=-1: ", lambda: requests.log_prob("m", STATE, -1, {})),
    (TypeError, "max_steps=1.5: ", lambda: sample(max_steps=1.5)),
    (TypeError, "model=5: ", lambda: requests.sample(5, 1, 0, 0, False, {})),
    (ValueError, "model='.ud800': ", lambda: requests.sample("\ud800", 1, 0, 0, False, {})),
    (TypeError, "plan=5: a text is wanted, as in 'euler:4'", lambda: sample(plan=5)),
    (ValueError, "two depths are wanted", lambda: solve(span=(0, 0.5, 1))),
    (ValueError, "span=.0.; two depths", lambda: solve(span=[0])),
])
def test_what_cannot_be_sent_is_named(kind, words, call):
    with pytest.raises(kind, match=words):
        call()


def test_options_that_are_none_are_absent():
    plain = solve(condition=[0.0, 1.0], request_id="a")
    assert solve(condition=[0.0, 1.0], knots=None, interpolation="", plan=None, guidance=None, request_id="a") == plain
    assert list(plain.options.condition.shape) == [1, 2] and not plain.options.HasField("condition_knots")


@pytest.mark.parametrize("address, hint", [
    ("127.0.0.1:8500", False), ("[::1]:8500", False), ("unix:/tmp/socket", False), ("unix-abstract:name", False),
    ("127.0.0.1", True), ("", True), ("http://127.0.0.1:8500", True),
])
def test_an_address_without_a_port_is_told(address, hint):
    assert ("an address is HOST:PORT" in wire.no_connection(address).message) == hint


@pytest.mark.parametrize("client", [hyperserve.Client, hyperserve.AsyncClient])
def test_an_address_that_is_no_text_is_named(client):
    with pytest.raises(TypeError, match="address=8500; HOST:PORT is wanted, as in '127.0.0.1:8500'"):
        client(8500)
