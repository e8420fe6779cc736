"""Retries, deadlines, resumed streams and connections of both clients, against a server that does as it is told."""

import asyncio
import concurrent.futures
import contextlib
import copy
import pickle
import socket
import time

import grpc
import numpy as np
import pytest

import hyperserve
from fake_daemon import FakeDaemon, Relay, chunks, fails, numbers, samples
from hyperserve.v1 import hyperserve_pb2 as v1

UNAVAILABLE, FULL = grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.fixture
def fake():
    fake = FakeDaemon()
    yield fake
    fake.stop()


class Sync:
    @staticmethod
    def sample(address, rows=2, **words):
        with hyperserve.Client(address, timeout=20) as client:
            return client.sample("m", rows, **words)

    @staticmethod
    def stream(address, rows, on_chunk=lambda: None, **words):
        with hyperserve.Client(address, timeout=20) as client:
            stream = client.sample_stream("m", rows, **words)
            seen = []
            for chunk in stream:
                seen.append((chunk, stream.done))
                on_chunk()
            return seen, stream.info


class Async:
    @staticmethod
    def sample(address, rows=2, **words):
        async def call():
            async with hyperserve.AsyncClient(address, timeout=20) as client:
                return await client.sample("m", rows, **words)

        return asyncio.run(call())

    @staticmethod
    def stream(address, rows, on_chunk=lambda: None, **words):
        async def call():
            async with hyperserve.AsyncClient(address, timeout=20) as client:
                stream = client.sample_stream("m", rows, **words)
                seen = []
                async for chunk in stream:
                    seen.append((chunk, stream.done))
                    on_chunk()
                return seen, stream.info

        return asyncio.run(call())


@pytest.fixture(params=[Sync, Async], ids=["sync", "asyncio"])
def calls(request):
    return request.param


def test_a_full_server_is_called_again_when_it_says(fake, calls):
    fake.script = [fails(FULL, pushback="30"), fails(FULL, pushback="30"), samples]
    begin = time.monotonic()
    result = calls.sample(fake.address)
    assert len(fake.requests) == 3 and time.monotonic() - begin >= 0.03 + 0.06
    assert len({request.options.request_id for request in fake.requests}) == 1
    np.testing.assert_array_equal(result.samples, [[0], [1]])
    np.testing.assert_array_equal(result.info.nfe, [7, 7])


@pytest.mark.parametrize("failure", [
    fails(FULL), fails(FULL, pushback="-1"), fails(UNAVAILABLE), fails(grpc.StatusCode.INTERNAL)])
def test_what_the_server_may_have_done_is_not_repeated(fake, calls, failure):
    fake.script = [failure, samples]
    with pytest.raises(hyperserve.HyperserveError):
        calls.sample(fake.address)
    assert len(fake.requests) == 1


def test_a_server_that_loads_is_waited_for(fake, calls):
    fake.script = [fails(UNAVAILABLE, "loading", pushback="1")] * 8 + [samples]
    calls.sample(fake.address)
    assert len(fake.requests) == 9


def test_attempts_end(fake, calls):
    fake.script = [fails(FULL, "the queue is full", pushback="1")]
    with pytest.raises(hyperserve.ResourceExhaustedError, match="the queue is full"):
        calls.sample(fake.address)
    assert len(fake.requests) == 5


KINDS = [kind for kind in hyperserve.HyperserveError.__subclasses__() if kind is not hyperserve.CancelledError]


@pytest.mark.parametrize("kind", KINDS)
def test_each_code_has_its_class_and_the_servers_words(fake, calls, kind):
    fake.script = [fails(kind.code, "in so many words")]
    with pytest.raises(hyperserve.HyperserveError) as caught:
        calls.sample(fake.address, request_id="r-1")
    assert type(caught.value) is kind and caught.value.message == "in so many words"
    assert str(caught.value) == f"{kind.code.name}: in so many words (request r-1)"


def test_a_call_that_the_server_cancels_was_cut_off(fake, calls):
    fake.script = [fails(grpc.StatusCode.CANCELLED)]
    with pytest.raises(hyperserve.UnavailableError, match="closed while the call was under way"):
        calls.sample(fake.address)


def test_classes_cover_all_codes():
    named = {kind.code for kind in hyperserve.HyperserveError.__subclasses__()}
    assert named == set(grpc.StatusCode) - {grpc.StatusCode.OK}
    assert issubclass(hyperserve.DeadlineExceededError, TimeoutError)


def test_nobody_listens(calls):
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    begin = time.monotonic()
    with pytest.raises(hyperserve.UnavailableError, match=f"no connection to {address}; check that a daemon runs"):
        calls.sample(address)
    assert 0.3 < time.monotonic() - begin < 10  # five attempts, not the whole deadline


def test_a_deadline_ends_a_call(fake, calls):
    fake.script = [lambda request, context: time.sleep(3) or samples(request, context)]
    begin = time.monotonic()
    with pytest.raises(hyperserve.DeadlineExceededError):
        calls.sample(fake.address, timeout=0.5)
    assert time.monotonic() - begin < 3


def test_a_silent_listener_does_not_hold_a_call(calls):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        begin = time.monotonic()
        with pytest.raises((hyperserve.UnavailableError, hyperserve.DeadlineExceededError)):
            calls.sample(f"127.0.0.1:{silent.getsockname()[1]}", timeout=0.5)
        assert time.monotonic() - begin < 5


def test_no_timeout_means_that_of_the_client(fake, calls):
    fake.script = [samples]
    assert len(calls.sample(fake.address, timeout=None).samples) == 2
    fake.script = [chunks(1)]
    assert len(calls.stream(fake.address, 2, timeout=None)[0]) == 1


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf")])
def test_every_call_has_a_deadline(calls, timeout):
    with pytest.raises(ValueError, match="timeout"):
        calls.sample("127.0.0.1:1", timeout=timeout)


def test_an_option_that_does_not_exist_is_refused(calls):
    with pytest.raises(TypeError, match="no option is called plam"):
        calls.sample("127.0.0.1:1", plam="euler:1")


def test_a_stream_reports_progress_and_its_summary(fake, calls):
    fake.script = [chunks(3)]
    seen, info = calls.stream(fake.address, 6)
    assert [(chunk.first_row, done) for chunk, done in seen] == [(0, 2), (2, 4), (4, 6)]
    assert info.generation == 3 and list(info.nfe) == [4] * 6


def test_a_broken_stream_goes_on_after_its_last_row(fake, calls):
    fake.script = [chunks(1, then=fails(UNAVAILABLE)), chunks(1, then=fails(UNAVAILABLE)), chunks(1)]
    seen, _ = calls.stream(fake.address, 6, seed=5)
    assert np.concatenate([chunk.samples for chunk, _ in seen]).ravel().tolist() == [0, 1, 2, 3, 4, 5]
    asked = [(one.sample.first_row, one.sample.rows, one.sample.options.generation) for one in fake.requests]
    assert asked == [(0, 6, 0), (2, 4, 3), (4, 2, 3)]
    assert {one.sample.seed for one in fake.requests} == {5}


@pytest.mark.parametrize("condition, sent", [([[0], [1], [2], [3], [4], [5]], [[0, 1, 2, 3, 4, 5], [2, 3, 4, 5], [4, 5]]),
                                             ([7], [[7], [7], [7]])])
def test_a_broken_stream_goes_on_with_the_conditions_of_its_rows(fake, calls, condition, sent):
    fake.script = [chunks(1, then=fails(UNAVAILABLE)), chunks(1, then=fails(UNAVAILABLE)), chunks(1)]
    calls.stream(fake.address, 6, condition=condition)
    tensors = [one.sample.options.condition for one in fake.requests]
    assert [np.frombuffer(one.data, np.float32).tolist() for one in tensors] == sent
    assert [list(one.shape) for one in tensors] == [[len(rows), 1] for rows in sent]


def test_failed_rows_of_a_stream_are_those_of_all_its_parts(fake, calls):
    fake.script = [chunks(1, failed=(1001,), then=fails(UNAVAILABLE)), chunks(3, failed=(1004, 1005))]
    seen, info = calls.stream(fake.address, 8, first_row=1000)
    assert info.failed_rows.tolist() == [1, 4, 5] and info.row_status.shape == (8,) and list(info.nfe) == [4] * 8
    assert [chunk.row_status.tolist() for chunk, _ in seen][0] == [
        hyperserve.RowStatus.CONVERGED, hyperserve.RowStatus.STEP_LIMIT]


def test_a_connection_that_breaks_within_a_stream(fake, calls):
    relay = Relay(fake.address)
    fake.script = [chunks(2, then=waits), chunks(1)]
    seen_chunks = []

    def on_chunk():
        seen_chunks.append(1)
        if len(seen_chunks) == 2:
            relay.cut()

    seen, _ = calls.stream(relay.address, 6, on_chunk)
    assert [chunk.first_row for chunk, _ in seen] == [0, 2, 4] and relay.connections == 2
    relay.close()


@pytest.mark.parametrize("script", [chunks(1), chunks(3, shift=2), chunks(4)])
def test_wrong_rows_of_a_stream_are_reported(fake, calls, script):
    fake.script = [script]
    with pytest.raises(hyperserve.InternalError):
        calls.stream(fake.address, 6)


def test_a_stream_that_is_left_ends_on_the_server(fake):
    ended = []

    def watched(request, context):
        context.add_callback(lambda: ended.append(1))
        yield from chunks(1000)(request, context)

    fake.script = [watched]
    with hyperserve.Client(fake.address) as client:
        stream = client.sample_stream("m", 2000)
        next(stream)
        stream.close()
        until(lambda: ended)


def test_calls_share_one_connection_and_survive_its_loss(fake):
    relay = Relay(fake.address)
    fake.script = [samples]
    with hyperserve.Client(relay.address) as client:
        for _ in range(20):
            client.sample("m", 2)
        assert relay.connections == 1
        relay.cut()
        for _ in range(20):
            with contextlib.suppress(hyperserve.UnavailableError):  # one that was under way when it broke
                client.sample("m", 2)
        client.sample("m", 2)
        assert relay.connections == 2
    relay.close()


def test_proxies_are_ignored(fake, calls, monkeypatch):
    for name in ("http_proxy", "https_proxy", "grpc_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
    fake.script = [samples]
    assert len(calls.sample(fake.address).samples) == 2


def test_a_tensor_that_does_not_fit_together(fake, calls):
    def broken(request, context):
        reply = samples(request, context)
        reply.samples.data = reply.samples.data[:-1]
        return reply

    fake.script = [broken]
    with pytest.raises(hyperserve.InternalError, match="shape"):
        calls.sample(fake.address)


def test_a_closed_client_fails_in_words(fake):
    fake.script = [samples]
    client = hyperserve.Client(fake.address)
    client.sample("m", 2)
    started = client.sample_stream("m", 2)
    client.close()
    for call in (lambda: client.sample("m", 2), client.models, lambda: next(started)):
        with pytest.raises(hyperserve.UnavailableError, match="the client is closed"):
            call()


def test_a_closed_asyncio_client_fails_in_words(fake):
    fake.script = [samples]

    async def calls(used):
        client = hyperserve.AsyncClient(fake.address)
        if used:
            await client.sample("m", 2)
        started = client.sample_stream("m", 2)
        await client.close()
        for call in (client.sample("m", 2), client.models(), anext(started)):
            with pytest.raises(hyperserve.UnavailableError, match="the client is closed"):
                await call

    for used in (False, True):
        asyncio.run(calls(used))


def waits(request, context):
    while context.is_active():
        time.sleep(0.01)


def test_close_ends_a_call_that_is_under_way(fake):
    fake.script = [waits]
    client = hyperserve.Client(fake.address, timeout=20)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        call = pool.submit(client.sample, "m", 2)
        until(lambda: fake.requests)
        client.close()
        with pytest.raises(hyperserve.UnavailableError, match="closed"):
            call.result(10)

    async def calls():
        asyncing = hyperserve.AsyncClient(fake.address, timeout=20)
        call = asyncio.ensure_future(asyncing.sample("m", 2))
        while len(fake.requests) < 2:
            await asyncio.sleep(0.01)
        await asyncing.close()
        with pytest.raises(hyperserve.UnavailableError, match="closed"):
            await call

    asyncio.run(calls())


def until(happened):
    end = time.monotonic() + 20
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_thread_that_connects_keeps_its_own_deadline():
    """Not that of another thread which waits for the same connection."""

    def seconds(timeout):
        begin = time.monotonic()
        with pytest.raises((hyperserve.UnavailableError, hyperserve.DeadlineExceededError)):
            client.sample("m", 2, timeout=timeout)
        return time.monotonic() - begin

    with socket.create_server(("127.0.0.1", 0)) as silent, concurrent.futures.ThreadPoolExecutor(12) as pool:
        with hyperserve.Client(f"127.0.0.1:{silent.getsockname()[1]}") as client:
            patient = [pool.submit(seconds, 6) for _ in range(4)]
            time.sleep(0.3)
            hasty = [pool.submit(seconds, 0.5) for _ in range(8)]
            assert max(call.result() for call in hasty) < 4
            assert min(call.result() for call in patient) > 5.9


@pytest.mark.parametrize("kind", hyperserve.HyperserveError.__subclasses__())
def test_errors_cross_processes(kind):
    error = kind("in so many words", "r-1")
    for copied in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(copied) is kind and str(copied) == str(error)
        assert (copied.message, copied.request_id, copied.code) == (error.message, "r-1", kind.code)


def test_bounds_are_asked_for_and_told(fake):
    def bounded(request, context):
        bounds = [0.5, float("nan")] if request.options.want_error_bound else []
        rows = [v1.PlanRows(plan="learned:2", rows=2, rows_ended=1), v1.PlanRows(plan="rk4:2", rows=1, rows_ended=1)]
        info = v1.SolveInfo(nfe=[2, 10], error_bound=bounds, plan_rows=rows)
        return v1.SampleReply(samples=numbers(0, request.rows), info=info)

    fake.script = [bounded]
    info = Sync.sample(fake.address, error_bound=True, plan="auto:1e-2,per_row").info
    np.testing.assert_array_equal(info.error_bound, [0.5, np.nan])
    assert [(one.plan, one.rows, one.rows_ended) for one in info.plan_rows] == [("learned:2", 2, 1), ("rk4:2", 1, 1)]
    assert Sync.sample(fake.address).info.error_bound is None
