"""Regressors and trajectories against the real daemon: models whose answers numpy can compute."""

import asyncio
import json

import numpy as np
import pytest

import hyperserve
from conftest import Daemon, write_model
from hyperserve.tensor_files import read_tensors

A = np.array([[-0.5, -1.0], [1.0, -0.25]])  # f(z) = A z
HEAD, BIAS = np.array([[1.0, 2.0], [-1.0, 0.5], [0.25, -3.0]]), np.array([0.5, -1.0, 2.0])
DEPTHS = [0.0, 0.25, 0.7, 1.0]
COMMON = {"format": 1, "span": [0, 1], "input": {"shape": [2], "mean": [1, 2], "deviation": [2, 4]},
          "field": [{"linear": {"in": 2, "out": 2, "bias": False}}]}
MODELS = {
    "numbers": COMMON | {"kind": "regressor", "head": [{"linear": {"in": 2, "out": 3}}], "labels": ["mass", "drag", "lift"]},
    "path": COMMON | {"kind": "trajectory", "save_at": DEPTHS},
}
INPUTS = np.random.default_rng(1).standard_normal((6, 2)).astype(np.float32)
EXACT = "dopri5:1e-9/double"


def states(inputs, depth):
    """e^(A s) z(0) of each row."""
    values, vectors = np.linalg.eig(A)
    flow = (vectors @ np.diag(np.exp(values * depth)) @ np.linalg.inv(vectors)).real
    return (inputs.astype(np.float64) - [1, 2]) / [2, 4] @ flow.T


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kinds")
    field, head = {"field.0.weight": A}, {"head.0.weight": HEAD, "head.0.bias": BIAS}
    for name, spec in MODELS.items():
        write_model(folder / "repository" / name, spec, field | head if "head" in spec else field)
    daemon = Daemon(folder, folder / "repository")
    yield daemon
    daemon.stop()


def test_a_regressor_answers_with_its_outputs(client):
    answer = client.predict("numbers", INPUTS, plan=EXACT)
    assert answer.states is None and answer.depths is None
    np.testing.assert_allclose(answer.outputs, states(INPUTS, 1.0) @ HEAD.T + BIAS, atol=1e-7)
    solved = client.solve("numbers", INPUTS, plan="rk4:8")
    assert solved.outputs.dtype == np.float32 and solved.saved is None
    np.testing.assert_allclose(solved.outputs, states(INPUTS, 1.0) @ HEAD.T + BIAS, atol=1e-4)
    half = client.solve("numbers", state=INPUTS, span=(0, 0.5), save_at=[0.25], plan=EXACT)
    start = INPUTS * np.array([2, 4]) + [1, 2]  # so that preprocessing makes it INPUTS again
    np.testing.assert_allclose(half.outputs, states(start, 0.5) @ HEAD.T + BIAS, atol=1e-6)
    assert half.saved.shape == (6, 1, 2) and half.saved_at.tolist() == [0.25]


def test_a_trajectory_answers_with_the_states_at_its_depths(client):
    answer = client.predict("path", INPUTS, plan=EXACT)
    assert answer.outputs is None and answer.depths.tolist() == DEPTHS
    wanted = np.stack([states(INPUTS, depth) for depth in DEPTHS], 1)
    np.testing.assert_allclose(answer.states, wanted, atol=1e-7)
    np.testing.assert_allclose(client.predict("path", INPUTS, plan="rk4:8").states, wanted, atol=1e-3)
    other = client.predict("path", INPUTS, save_at=[0.1, 0.2], plan=EXACT)
    assert other.depths.tolist() == [0.1, 0.2]
    np.testing.assert_allclose(other.states[:, 1], states(INPUTS, 0.2), atol=1e-7)
    assert client.solve("path", INPUTS, span=(0, 0.5), plan=EXACT).saved is None, "its depths belong to its span"


def test_the_asyncio_client_predicts_too(daemon):
    async def ask():
        async with hyperserve.AsyncClient(daemon.address) as client:
            return await client.predict("numbers", INPUTS, plan=EXACT)

    np.testing.assert_allclose(asyncio.run(ask()).outputs, states(INPUTS, 1.0) @ HEAD.T + BIAS, atol=1e-7)


def test_models_tell_their_kind(client):
    assert {model.name: model.kind for model in client.models()} == {"numbers": "regressor", "path": "trajectory"}
    assert client.model("numbers").labels == ("mass", "drag", "lift")


def test_calls_for_other_kinds_say_which_ones_there_are(client):
    with pytest.raises(hyperserve.InvalidArgumentError, match="Classify needs a classifier; model 'path' is a trajectory .Solve."):
        client.classify("path", INPUTS)
    with pytest.raises(hyperserve.InvalidArgumentError, match="is a regressor"):
        client.sample("numbers", 3)
    with pytest.raises(hyperserve.FailedPreconditionError, match="gives no states on its way"):
        client.predict("path", INPUTS, plan="ab2:4")
    with pytest.raises(hyperserve.InvalidArgumentError, match="known: forward"):
        client.solve("path", INPUTS, direction="noise_to_data")


def test_a_head_that_overflows_fails_its_row_alone(tmp_path_factory):
    folder = tmp_path_factory.mktemp("overflow")
    spec = COMMON | {"kind": "regressor", "head": [{"linear": {"in": 2, "out": 1, "bias": False}}]}
    write_model(folder / "repository/steep", spec, {"field.0.weight": A, "head.0.weight": np.full((1, 2), 3e38)})
    daemon = Daemon(folder, folder / "repository")
    with hyperserve.Client(daemon.address) as client:
        rows = np.array([[1, 2], [9, 30]], np.float32)  # z(0) = 0, and one that is not
        answer = client.predict("steep", rows, plan="euler:2")
    daemon.stop()
    assert answer.info.failed_rows.tolist() == [1]
    assert answer.outputs[0, 0] == 0 and np.isnan(answer.outputs[1, 0])


def test_the_command_line_writes_outputs_and_trajectories(daemon, tmp_path):
    rows = tmp_path / "rows.csv"
    rows.write_text("".join(f"{a},{b}\n" for a, b in INPUTS.tolist()))
    shown = daemon.run("solve", rows, "--model=numbers", f"--plan={EXACT}")
    lines = shown.stdout.splitlines()
    assert lines[0] == "y0,y1,y2", shown.stderr
    np.testing.assert_allclose([[float(x) for x in line.split(",")] for line in lines[1:]],
                               states(INPUTS, 1.0) @ HEAD.T + BIAS, atol=1e-6)
    told = json.loads(daemon.run("solve", rows, "--model=path", f"--plan={EXACT}", "--format=json").stdout)
    assert told["saved_at"] == DEPTHS and np.shape(told["saved"]) == (6, 4, 2)
    refused = daemon.run("solve", rows, "--model=path", f"--out={tmp_path / 'path.csv'}")
    assert refused.returncode == 2 and "no place for the states of a trajectory" in refused.stderr
    written = daemon.run("solve", rows, "--model=path", f"--plan={EXACT}", f"--out={tmp_path / 'path.safetensors'}")
    assert written.returncode == 0, written.stderr
    saved = read_tensors(tmp_path / "path.safetensors")["saved"]
    np.testing.assert_allclose(saved[:, 2], states(INPUTS, 0.7), atol=1e-6)
    compared = daemon.run("compare", rows, "--model=path", "--plans=rk4:4 euler:4", f"--reference={EXACT}", "--format=json")
    plans = json.loads(compared.stdout)["plans"]
    assert plans[1]["error_mean"] < 1e-2 < plans[2]["error_mean"], compared.stderr
    assert "regressor" in daemon.run("models").stdout
    assert daemon.run("bench", rows, "--model=numbers", "--count=3").returncode == 0
