"""Derivatives by control signals and under guidance against the real daemon, and a signal that is fitted through the wire."""

import importlib.util
import json
import os
import subprocess
import sys

import numpy as np
import pytest

import hyperserve
from conftest import ROOT, Daemon, write_model

STATE, CONTROL, WIDTH, ROWS = 2, 2, 16, 5  # other than the number of knots, so that no axis passes for another
KNOTS = [0.0, 0.2, 0.55, 1.0]
SPEC = {"format": 1, "kind": "flow", "span": [0, 1], "direction": "noise_to_data", "input": {"shape": [STATE]},
        "condition": {"shape": [CONTROL], "none": [0.5, -0.25]},
        "field": [{"condition_cat": {"features": CONTROL}}, {"depth_cat": {}},
                  {"linear": {"in": STATE + CONTROL + 1, "out": WIDTH}}, {"tanh": {}}, {"linear": {"in": WIDTH, "out": STATE}}]}
RANDOM = np.random.default_rng(1)
WEIGHTS = {"field.2.weight": RANDOM.standard_normal((WIDTH, STATE + CONTROL + 1)) * 0.6,
           "field.2.bias": RANDOM.standard_normal(WIDTH) * 0.3,
           "field.4.weight": RANDOM.standard_normal((STATE, WIDTH)) * 0.6,
           "field.4.bias": RANDOM.standard_normal(STATE) * 0.3}
STATES, COTANGENTS = RANDOM.standard_normal((ROWS, STATE)), RANDOM.standard_normal((ROWS, STATE))
SIGNALS = RANDOM.standard_normal((ROWS, len(KNOTS), CONTROL))
PLAN = "rk4:3/double"
WAYS = [{}, {"interpolation": "cubic_hermite"}, {"interpolation": "cubic_hermite", "guidance": [2.5, 0, 1, -1, 0.5]}]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    folder = tmp_path_factory.mktemp("control")
    write_model(folder / "repository/flow", SPEC, WEIGHTS)
    daemon = Daemon(folder, folder / "repository")
    yield daemon
    daemon.stop()


def differences(value, at, h=1e-5):
    """Central differences of value(at), a number for each row, by every number of a row, in the shape of `at`."""
    columns = []
    for column in np.eye(at[0].size).reshape(-1, *at[0].shape):
        columns.append((value(at + h * column) - value(at - h * column)) / (2 * h))
    return np.stack(columns, 1).reshape(at.shape)


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_a_vjp_is_the_gradient_by_the_signal(client, way):
    terms = {"plan": PLAN, "knots": KNOTS, **way}

    def value(states, signals):
        return np.sum(COTANGENTS * client.solve("flow", state=states, condition=signals, **terms).state, 1)

    found = client.solve_vjp("flow", state=STATES, cotangent=COTANGENTS, condition=SIGNALS, **terms)
    assert found.condition_gradient.shape == SIGNALS.shape
    np.testing.assert_allclose(found.condition_gradient, differences(lambda u: value(STATES, u), SIGNALS), atol=1e-7)
    np.testing.assert_allclose(found.start_gradient, differences(lambda z: value(z, SIGNALS), STATES), atol=1e-7)
    single = client.solve_vjp("flow", state=STATES, cotangent=COTANGENTS, condition=SIGNALS, **terms | {"plan": "rk4:3"})
    np.testing.assert_allclose(single.condition_gradient, found.condition_gradient, rtol=1e-3, atol=1e-4)
    for row in range(ROWS):  # in tier exact too no bit depends on the other rows
        if "guidance" in way:
            terms["guidance"] = [way["guidance"][row]]
        alone = client.solve_vjp("flow", state=STATES[row:row + 1], cotangent=COTANGENTS[row:row + 1],
                                 condition=SIGNALS[row:row + 1], **terms | {"plan": "rk4:3"})
        np.testing.assert_array_equal(alone.condition_gradient[0], single.condition_gradient[row])
        np.testing.assert_array_equal(alone.start_gradient[0], single.start_gradient[row])


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_a_jvp_pushes_the_tangent_of_a_signal(client, way):
    tangent, of_signal = RANDOM.standard_normal(STATES.shape), RANDOM.standard_normal(SIGNALS.shape)
    terms = {"plan": PLAN, "knots": KNOTS, "condition": SIGNALS, **way}
    pushed = client.solve_jvp("flow", state=STATES, tangent=tangent, condition_tangent=of_signal, **terms)
    pulled = client.solve_vjp("flow", state=STATES, cotangent=COTANGENTS, **terms)
    np.testing.assert_allclose(
        np.sum(COTANGENTS * pushed.state_tangent, 1),
        np.sum(pulled.start_gradient * tangent, 1) + np.sum(pulled.condition_gradient * of_signal, (1, 2)), rtol=1e-9)
    one = client.solve_jvp("flow", state=STATES, condition_tangent=of_signal[0], **terms)  # for all rows
    each = client.solve_jvp("flow", state=STATES, condition_tangent=np.tile(of_signal[:1], (ROWS, 1, 1)), **terms)
    np.testing.assert_array_equal(one.state_tangent, each.state_tangent)


def test_a_schedule_of_guidance_is_differentiated_step_by_step(client):
    schedule = RANDOM.standard_normal((ROWS, 3)) + 1
    terms = {"plan": PLAN, "guidance": schedule}

    def value(conditions):
        return np.sum(COTANGENTS * client.solve("flow", state=STATES, condition=conditions, **terms).state, 1)

    found = client.solve_vjp("flow", state=STATES, cotangent=COTANGENTS, condition=SIGNALS[:, 0], **terms)
    np.testing.assert_allclose(found.condition_gradient, differences(value, SIGNALS[:, 0]), atol=1e-7)
    assert (found.info.nfe == 2 * 3 * 4).all()


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_the_gradient_of_a_density_is_that_of_the_density(client, way):
    terms = {"plan": PLAN, "knots": KNOTS, **way}

    def value(points, signals):
        return client.log_prob("flow", points, condition=signals, **terms).log_prob

    found = client.log_prob_gradient("flow", STATES, condition=SIGNALS, **terms)
    np.testing.assert_array_equal(found.log_prob, value(STATES, SIGNALS))
    np.testing.assert_allclose(found.gradient, differences(lambda x: value(x, SIGNALS), STATES), atol=1e-7)
    np.testing.assert_allclose(found.condition_gradient, differences(lambda u: value(STATES, u), SIGNALS), atol=1e-7)


def test_what_has_no_derivative_is_refused_in_words(client):
    terms = {"state": STATES, "cotangent": COTANGENTS, "condition": SIGNALS, "knots": KNOTS}
    with pytest.raises(hyperserve.FailedPreconditionError, match="chooses its steps by the state, so it has no derivative"):
        client.solve_vjp("flow", **terms, plan="dopri5:1e-5")
    with pytest.raises(hyperserve.FailedPreconditionError, match="takes no condition_knots"):
        client.solve_vjp("flow", **terms, plan="ab2:4")
    with pytest.raises(hyperserve.InvalidArgumentError, match=r"condition_tangent: shape \[5, 1, 2\] found, \[rows, 4, 2\] wanted"):
        client.solve_jvp("flow", state=STATES, condition=SIGNALS, knots=KNOTS, condition_tangent=SIGNALS[:, :1], plan=PLAN)


def test_torch_differentiates_by_the_signal(client):
    torch = pytest.importorskip("torch")
    import hyperserve.torch

    states, signals = torch.tensor(STATES, requires_grad=True), torch.tensor(SIGNALS, requires_grad=True)
    of_all = torch.tensor(SIGNALS[0], requires_grad=True)
    for way in WAYS:
        def solve(states, control):
            return hyperserve.torch.solve(client, "flow", states, condition=control, plan=PLAN, knots=KNOTS, **way)

        def density(states, control):
            return hyperserve.torch.log_prob(client, "flow", states, condition=control, plan=PLAN, knots=KNOTS, **way)

        for call in (solve, density):
            assert torch.autograd.gradcheck(call, (states, signals), eps=1e-5, atol=1e-7)
            assert torch.autograd.gradcheck(call, (states, of_all), eps=1e-5, atol=1e-7)
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(signals.detach(), torch.ones_like(signals))
            found = torch.autograd.forward_ad.unpack_dual(solve(states.detach(), dual)).tangent
        wanted = client.solve_jvp("flow", state=STATES, condition=SIGNALS, condition_tangent=np.ones_like(SIGNALS), plan=PLAN,
                                  knots=KNOTS, **way).state_tangent
        np.testing.assert_array_equal(found.numpy(), wanted)
    with pytest.raises(TypeError, match="guidance: there is no gradient for its weights; detach them"):
        hyperserve.torch.solve(client, "flow", states, condition=of_all, knots=KNOTS, plan=PLAN,
                               guidance=torch.ones(ROWS, requires_grad=True))


def test_a_fitted_signal_steers_the_field_to_its_target(client):
    pytest.importorskip("torch")
    path = ROOT / "client/python/fit_control.py"
    spec = importlib.util.spec_from_file_location("fit_control", path)
    example = importlib.util.module_from_spec(spec)
    beside = sys.path[0]
    sys.path.insert(0, str(path.parent))  # the example takes it away
    spec.loader.exec_module(example)
    assert sys.path[0] == beside
    start, target = [0.3, -0.2], np.array([1.0, 0.6])
    free = client.solve("flow", state=[start], condition=np.zeros(CONTROL), plan="rk4:8/double").state[0]
    depths, control, end = example.fit(client, "flow", start, target, energy=1e-6)
    assert np.linalg.norm(free - target) > 0.5 and np.linalg.norm(end - target) < 1e-3
    assert control.shape == (8, CONTROL) and depths[0] == 0 and depths[-1] == 1
    again = client.solve("flow", state=[start], condition=control, knots=depths, interpolation="cubic_hermite", plan="dopri5:1e-8/double")
    np.testing.assert_allclose(again.state[0], target, atol=5e-3)


def test_the_example_runs_on_a_model_that_ships(tmp_path):
    pytest.importorskip("torch")
    daemon = Daemon(tmp_path, ROOT / "models", copy=False)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, ROOT / "client/python/fit_control.py", f"--address={daemon.address}", "--start=0.1,-0.4", "--target=0.5,0.8"],
        capture_output=True, text=True, env=environment, timeout=120)
    daemon.stop()
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(json.loads(done.stdout)["end"], [0.5, 0.8], atol=0.05)
