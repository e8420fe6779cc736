"""The asyncio client against the real daemon: the answers of the sync client, many calls at once."""

import asyncio

import numpy as np
import pytest

import hyperserve


def test_answers_are_those_of_the_sync_client(daemon):
    start = np.array([[0.5, -1.0]])
    image = np.zeros((1, 1, 28, 28), np.uint8)

    async def calls():
        async with hyperserve.AsyncClient(daemon.address) as client:
            return (
                (await client.sample("pinwheel", 64, seed=2)).samples,
                (await client.log_prob("pinwheel", start)).log_prob,
                (await client.solve("pinwheel", state=start, save_at=[0.5])).saved,
                (await client.classify("fashion", image, logits=True)).logits,
                await client.models(),
                await client.model("rings"),
                (await client.server_info()).limits,
            )

    found = asyncio.run(calls())
    with hyperserve.Client(daemon.address) as client:
        np.testing.assert_array_equal(found[0], client.sample("pinwheel", 64, seed=2).samples)
        np.testing.assert_array_equal(found[1], client.log_prob("pinwheel", start).log_prob)
        np.testing.assert_array_equal(found[2], client.solve("pinwheel", state=start, save_at=[0.5]).saved)
        np.testing.assert_array_equal(found[3], client.classify("fashion", image, logits=True).logits)
        assert found[4:] == (client.models(), client.model("rings"), client.server_info().limits)


def test_many_calls_at_once(daemon):
    async def calls():
        async with hyperserve.AsyncClient(daemon.address) as client:
            jobs = [client.sample("pinwheel", 8, seed=seed, plan="euler:2") for seed in range(50)]
            return [result.samples for result in await asyncio.gather(*jobs)]

    found = asyncio.run(calls())
    with hyperserve.Client(daemon.address) as client:
        np.testing.assert_array_equal(found[49], client.sample("pinwheel", 8, seed=49, plan="euler:2").samples)
    assert len(found) == 50


def test_a_stream_with_progress_and_an_end_before_its_end(daemon):
    async def calls():
        async with hyperserve.AsyncClient(daemon.address) as client:
            stream = client.sample_stream("rings", 600, seed=3, plan="euler:4", chunk_rows=128)
            parts = [chunk.samples async for chunk in stream]
            assert stream.done == stream.rows == 600 and stream.info.plan == "euler:4"
            left = client.sample_stream("rings", 100_000, plan="euler:4", chunk_rows=128)
            await anext(left)
            await left.aclose()
            assert left.done < 100_000 and left.info is None
            return np.concatenate(parts)

    found = asyncio.run(calls())
    with hyperserve.Client(daemon.address) as client:
        np.testing.assert_array_equal(found, client.sample("rings", 600, seed=3, plan="euler:4").samples)


def test_a_call_that_is_cancelled_ends(daemon):
    async def calls():
        async with hyperserve.AsyncClient(daemon.address) as client:
            await client.models()
            call = asyncio.create_task(client.sample("pinwheel", 4000, plan="rk4:5000"))
            await asyncio.sleep(0.2)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert len((await client.sample("pinwheel", 2)).samples) == 2

    asyncio.run(calls())


def test_failures(daemon):
    async def calls():
        async with hyperserve.AsyncClient(daemon.address) as client:
            with pytest.raises(hyperserve.NotFoundError, match="nobody"):
                await client.sample("nobody", 1)
            with pytest.raises(hyperserve.DeadlineExceededError):
                await client.sample("pinwheel", 4000, plan="rk4:5000", timeout=0.1)

    asyncio.run(calls())


def test_an_asyncio_client_goes_from_one_event_loop_to_the_next(daemon):
    client = hyperserve.AsyncClient(daemon.address)
    for _ in range(3):
        assert len(asyncio.run(client.sample("pinwheel", 2)).samples) == 2
    asyncio.run(client.close())
    with pytest.raises(hyperserve.UnavailableError, match="the client is closed"):
        asyncio.run(client.sample("pinwheel", 2))


def test_an_asyncio_client_in_two_event_loops_at_once_fails_in_words(daemon):
    async def calls():
        client = hyperserve.AsyncClient(daemon.address)
        await client.sample("pinwheel", 2)
        for call in (client.sample("pinwheel", 2), anext(client.sample_stream("pinwheel", 2)), client.close()):
            with pytest.raises(hyperserve.FailedPreconditionError, match="one client for each loop"):
                await asyncio.to_thread(asyncio.run, as_coroutine(call))
        assert len((await client.sample("pinwheel", 2)).samples) == 2
        await client.close()

    asyncio.run(calls())


async def as_coroutine(awaitable):
    return await awaitable
