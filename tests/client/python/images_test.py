"""Flows of images, and log-densities in more than 64 dimensions, against the real daemon and numpy."""

import asyncio
import json

import numpy as np
import pytest

import hyperserve
from conftest import Daemon, write_model
from hyperserve.tensor_files import read_tensors

SHAPE = (3, 5, 5)
NUMBERS = 75
# f(z) = A z at each pixel: a convolution of 1x1.
A = np.array([[-0.5, -1.0, 0.25], [1.0, -0.25, 0.5], [0.0, -0.75, 0.125]])
SPEC = {"format": 1, "kind": "flow", "span": [0, 1], "direction": "noise_to_data", "input": {"shape": list(SHAPE)},
        "field": [{"conv2d": {"in": 3, "out": 3, "kernel": 1, "bias": False}}]}
FEW = SPEC | {"input": {"shape": [3, 2, 2]}}  # dimensions, so that log-densities are exact
STILL = SPEC | {"input": {"shape": [NUMBERS]}, "field": [{"linear": {"in": NUMBERS, "out": NUMBERS, "bias": False}}]}
EXACT = "dopri5:1e-9/double"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    weights = {"pixels": A.reshape(3, 3, 1, 1), "few": A.reshape(3, 3, 1, 1), "still": np.zeros((NUMBERS, NUMBERS))}
    for name, spec in {"pixels": SPEC, "few": FEW, "still": STILL}.items():
        write_model(folder / "repository" / name, spec, {"field.0.weight": weights[name]})
    daemon = Daemon(folder, folder / "repository")
    yield daemon
    daemon.stop()


def moved(images, depth, matrix=A):
    """e^(A s) z at each pixel."""
    values, vectors = np.linalg.eig(matrix)
    flow = (vectors @ np.diag(np.exp(values * depth)) @ np.linalg.inv(vectors)).real
    return np.einsum("oc,nchw->nohw", flow, images.astype(np.float64))


def noise(client, rows, first_row=0):
    """The noise of a row is that of its flattened dimensions: a flow that stands still shows it."""
    samples = client.sample("still", rows, seed=7, first_row=first_row, plan="euler:1/double").samples
    return samples.reshape(rows, *SHAPE)


def test_samples_are_images_of_noise_by_flattened_dimension(client):
    drawn = client.sample("pixels", 5, seed=7, plan=EXACT)
    assert drawn.samples.shape == (5, *SHAPE) and drawn.log_density is None
    np.testing.assert_allclose(drawn.samples, moved(noise(client, 5), 1), atol=1e-7)
    chunks = list(client.sample_stream("pixels", 5, seed=7, chunk_rows=2, plan=EXACT))
    assert [chunk.samples.shape for chunk in chunks] == [(2, *SHAPE), (2, *SHAPE), (1, *SHAPE)]
    np.testing.assert_array_equal(np.concatenate([chunk.samples for chunk in chunks]), drawn.samples)


def test_solve_takes_images_both_ways(client):
    images = np.random.default_rng(1).standard_normal((4, *SHAPE)).astype(np.float32)
    forth = client.solve("pixels", images, save_at=[0.25, 1], plan=EXACT)
    assert forth.saved.shape == (4, 2, *SHAPE)
    np.testing.assert_allclose(forth.saved[:, 0], moved(images, 0.25), atol=1e-6)
    back = client.solve("pixels", forth.state, direction="data_to_noise", plan=EXACT)
    np.testing.assert_allclose(back.state, images, atol=1e-5)
    with pytest.raises(hyperserve.InvalidArgumentError, match=r"\[rows, 3, 5, 5\]"):
        client.solve("pixels", images.reshape(4, NUMBERS))


def exact_log_prob(images):
    start = moved(images, -1).reshape(len(images), NUMBERS)
    return -0.5 * (start**2).sum(1) - NUMBERS / 2 * np.log(2 * np.pi) - 25 * np.trace(A)


def test_log_densities_are_estimated_with_a_standard_error_that_covers(client):
    images = np.random.default_rng(2).standard_normal((64, *SHAPE)).astype(np.float32)
    answer = client.log_prob("pixels", images, probes=32, probe_seed=3, plan="dopri5:1e-7/double")
    assert answer.info.probes == 32 and answer.info.log_density_error.shape == (64,)
    score = (answer.log_prob - exact_log_prob(images)) / answer.info.log_density_error
    assert abs(score.mean()) < 3.5 / 8, "unbiased"
    assert 0.5 < np.mean(score**2) < 1.8, "the standard error is that of the estimate"
    few = client.log_prob("pixels", images, plan="dopri5:1e-7/double").info
    assert few.probes == 8 and np.median(few.log_density_error) > 1.6 * np.median(answer.info.log_density_error)


def test_probes_are_those_of_the_seed_and_the_row(client, daemon):
    images = np.random.default_rng(2).standard_normal((6, *SHAPE)).astype(np.float32)
    ask = lambda rows, **more: client.log_prob("pixels", rows, plan="rk4:4", **more).log_prob
    all_rows = ask(images, probe_seed=5)
    np.testing.assert_array_equal(ask(images, probe_seed=5), all_rows)
    assert not np.array_equal(ask(images, probe_seed=6), all_rows)
    np.testing.assert_array_equal(ask(images[:2], probe_seed=5), all_rows[:2])
    np.testing.assert_array_equal(ask(images[2:], probe_seed=5, first_row=2), all_rows[2:])
    assert not np.array_equal(ask(images[2:], probe_seed=5), all_rows[2:])

    async def later():
        async with hyperserve.AsyncClient(daemon.address) as aio:
            return await aio.log_prob("pixels", images[4:], plan="rk4:4", probe_seed=5, first_row=4)

    np.testing.assert_array_equal(asyncio.run(later()).log_prob, all_rows[4:])
    drawn = client.sample("pixels", 6, seed=7, log_density=True, probe_seed=5, plan="rk4:4")
    later = client.sample("pixels", 2, seed=7, first_row=4, log_density=True, probe_seed=5, plan="rk4:4")
    np.testing.assert_array_equal(later.log_density, drawn.log_density[4:])
    np.testing.assert_array_equal(later.info.log_density_error, drawn.info.log_density_error[4:])
    chunks = list(client.sample_stream("pixels", 6, seed=7, log_density=True, probe_seed=5, chunk_rows=4, plan="rk4:4"))
    np.testing.assert_array_equal(np.concatenate([chunk.log_density for chunk in chunks]), drawn.log_density)
    np.testing.assert_array_equal(chunks[1].log_density_error, drawn.info.log_density_error[4:])
    error = np.abs(drawn.log_density - exact_log_prob(drawn.samples))
    assert (error < 5 * drawn.info.log_density_error + 1e-3).all()


def test_torch_differentiates_log_densities_of_images(client):
    torch = pytest.importorskip("torch")
    import hyperserve.torch

    images, weights = np.random.default_rng(4).standard_normal((5, 3, 2, 2)), np.arange(5) - 1.5
    points = torch.tensor(images, requires_grad=True)
    found = hyperserve.torch.log_prob(client, "few", points, plan="rk4:64/double")
    (gradient,) = torch.autograd.grad(found, points, torch.tensor(weights))
    start = moved(images, -1)  # log p = -|start|^2 / 2 - ..., and start = e^-A x
    np.testing.assert_allclose(found.detach(), -0.5 * (start**2).sum((1, 2, 3)) - 6 * np.log(2 * np.pi) - 4 * np.trace(A), atol=1e-6)
    np.testing.assert_allclose(gradient, -weights[:, None, None, None] * moved(start, -1, A.T), atol=1e-6)


def test_what_is_not_estimated_is_refused_in_words(client):
    images = np.zeros((1, *SHAPE), np.float32)
    with pytest.raises(hyperserve.InvalidArgumentError, match="probes: 65 is not within"):
        client.log_prob("pixels", images, probes=65)
    with pytest.raises(hyperserve.UnimplementedError, match="75 dimensions; the limit is 64"):
        client.log_prob_gradient("pixels", images, plan="rk4:2")
    with pytest.raises(hyperserve.FailedPreconditionError, match="ends at 64 dimensions; the model has 75"):
        client.sample("pixels", 1, log_density=True, plan="hyper_heun:2")


def test_the_command_line_samples_images_and_estimates(daemon, client, tmp_path):
    path = tmp_path / "x.safetensors"
    drawn = daemon.run("sample", "--model=pixels", "--rows=5", "--seed=7", f"--plan={EXACT}", f"--out={path}")
    assert drawn.returncode == 0, drawn.stderr
    images = read_tensors(path)["x"]
    np.testing.assert_allclose(images, client.sample("pixels", 5, seed=7, plan=EXACT).samples, atol=1e-6)
    told = daemon.run("log-prob", path, "--model=pixels", "--probes=16", "--probe_seed=2", "--batch=2", "--plan=rk4:8",
               "--format=json")
    told = json.loads(told.stdout)
    wanted = client.log_prob("pixels", images, probes=16, probe_seed=2, plan="rk4:8")
    np.testing.assert_allclose(told["log_prob"], wanted.log_prob, rtol=1e-12)
    np.testing.assert_allclose(told["log_density_error"], wanted.info.log_density_error, rtol=1e-12)
    assert told["probes"] == 16
    shown = daemon.run("log-prob", path, "--model=pixels").stdout
    assert "log-densities estimated by 8 probes a row, median standard error" in shown
