"""Conditions and grids against the real daemon: a conditional flow whose answers numpy can compute."""

import hashlib
import json
import shutil

import numpy as np
import pytest

import hyperserve
from conftest import Daemon, write_model

# f(z, c) = A z + B c + b, and a classifier of the same field.
A = np.array([[-0.5, -1.0], [1.0, -0.25]])
B = np.array([[1.0, 0.0, -2.0], [0.5, 3.0, 0.25]])
SHIFT = np.array([0.125, -0.5])
FIELD = [{"condition_cat": {"features": 3}}, {"linear": {"in": 5, "out": 2}}]
MODELS = {
    "flow": {"format": 1, "kind": "flow", "span": [0, 1], "direction": "noise_to_data", "input": {"shape": [2]},
             "condition": {"shape": [3]}, "field": FIELD},
    "classifier": {"format": 1, "kind": "classifier", "span": [0, 1], "input": {"shape": [2]}, "condition": {"shape": [3]},
                   "field": FIELD, "head": [{"linear": {"in": 2, "out": 3}}]},
}
NONE = np.array([0.5, -1.0, 2.0])
MODELS["guided"] = MODELS["flow"] | {"condition": {"shape": [3], "none": NONE.tolist()}}
HEAD = np.array([[1.0, 2.0], [-1.0, 0.5], [0.25, -3.0]])
STATES = np.random.default_rng(1).standard_normal((6, 2)).astype(np.float32)
CONDITIONS = np.random.default_rng(2).standard_normal((6, 3)).astype(np.float32)
# Plans that the calibration of the model "calibrated" holds, and where their steps end.
MEASURED = {
    "euler:4": [0, 0.25, 0.5, 0.75, 1],
    "euler:4@sway(-0.5)": [k / 4 - (np.cos(np.pi * k / 8) - 1 + k / 4) / 2 for k in range(5)],
    "euler:8@cosine": [(1 - np.cos(np.pi * k / 8)) / 2 for k in range(9)],
}


def euler(z, condition, shares):
    for begin, end in zip(shares, shares[1:]):
        z = z + (end - begin) * (z @ A.T + condition @ B.T + SHIFT)
    return z


def errors():
    """The mean relative errors of the measured plans."""
    exact = euler(STATES, CONDITIONS, np.linspace(0, 1, 100_001))
    norms = np.linalg.norm(exact, axis=1)
    return {plan: np.mean(np.linalg.norm(euler(STATES, CONDITIONS, shares) - exact, axis=1) / norms)
            for plan, shares in MEASURED.items()}


def calibrate(folder):
    digests = (hashlib.sha256((folder / name).read_bytes()).digest() for name in ("model.json", "weights.safetensors"))
    calibration = {
        "format": 1, "base_digest": hashlib.sha256(b"".join(digests)).hexdigest(), "default_plan": "euler:8@cosine",
        "reference": "dopri5:1e-7/double", "device": "numpy", "rows": len(STATES),
        "plans": [{"plan": plan, "error_mean": error, "nfe": len(MEASURED[plan]) - 1, "macs": 10 * (len(MEASURED[plan]) - 1),
                   "seconds_per_row": 1e-6, "batch": 1} for plan, error in errors().items()],
    }
    (folder / "calibration.json").write_text(json.dumps(calibration))


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    folder = tmp_path_factory.mktemp("conditional")
    for name, spec in MODELS.items():
        tensors = {"field.1.weight": np.concatenate([A, B], 1), "field.1.bias": SHIFT}
        if name == "classifier":
            tensors |= {"head.0.weight": HEAD, "head.0.bias": np.zeros(3)}
        write_model(folder / "repository" / name, spec, tensors)
    shutil.copytree(folder / "repository" / "flow", folder / "repository" / "calibrated")
    calibrate(folder / "repository" / "calibrated")
    daemon = Daemon(folder, folder / "repository")
    yield daemon
    daemon.stop()


def test_a_solve_is_numpys(client):
    assert client.model("flow").model.condition_shape == (3,)
    found = client.solve("flow", state=STATES, plan="euler:4", condition=CONDITIONS).state
    np.testing.assert_allclose(found, euler(STATES, CONDITIONS, [0, 0.25, 0.5, 0.75, 1]), rtol=1e-5, atol=1e-5)
    double = client.solve("flow", state=STATES, plan="euler:4/double", condition=CONDITIONS[0]).state
    np.testing.assert_allclose(double, euler(STATES.astype(float), CONDITIONS[0].astype(float), [0, 0.25, 0.5, 0.75, 1]), rtol=1e-12)


def test_steps_end_where_the_grid_says(client):
    result = client.solve("flow", state=STATES, plan="euler:3@[0,0.1,0.3,1]", condition=CONDITIONS)
    assert result.info.plan == "euler:3@[0,0.1,0.3,1]" and (result.info.nfe == 3).all()
    np.testing.assert_allclose(result.state, euler(STATES, CONDITIONS, [0, 0.1, 0.3, 1]), rtol=1e-5, atol=1e-5)
    shares = [(1 - np.cos(np.pi * k / 5)) / 2 for k in range(6)]
    found = client.solve("flow", state=STATES, plan="euler:5@cosine", condition=CONDITIONS).state
    np.testing.assert_allclose(found, euler(STATES, CONDITIONS, shares), rtol=1e-5, atol=1e-5)


def test_a_plan_on_a_grid_is_calibrated_like_any(client):
    measured = errors()
    exact = client.solve("calibrated", state=STATES, plan="dopri5:1e-10/double", condition=CONDITIONS).state
    norms = np.linalg.norm(exact, axis=1)
    for plan, error in measured.items():
        result = client.solve("calibrated", state=STATES, plan=plan, condition=CONDITIONS)
        assert result.info.plan == plan and result.info.calibrated_error == pytest.approx(error)
        assert np.mean(np.linalg.norm(result.state - exact, axis=1) / norms) == pytest.approx(error, rel=1e-3)
    best = min(("euler:4", "euler:4@sway(-0.5)"), key=measured.get)
    chosen = client.solve("calibrated", state=STATES, plan=f"auto:{measured[best] * 1.0001:.6f}", condition=CONDITIONS)
    assert chosen.info.plan == best and chosen.info.plan_reason
    assert client.solve("calibrated", state=STATES, condition=CONDITIONS).info.plan == "euler:8@cosine"


def test_a_batch_is_a_loop_of_single_requests(client):
    def loop(call):
        return np.concatenate([call(slice(row, row + 1)) for row in range(6)])

    calls = {
        "sample": lambda rows: client.sample(
            "flow", rows.stop - rows.start, seed=4, first_row=rows.start, plan="dopri5:1e-4", condition=CONDITIONS[rows]).samples,
        "log_prob": lambda rows: client.log_prob("flow", STATES[rows], plan="rk4:2", condition=CONDITIONS[rows]).log_prob,
        "solve": lambda rows: client.solve("flow", state=STATES[rows], plan="heun:3@cosine", condition=CONDITIONS[rows]).state,
        "classify": lambda rows: client.classify(
            "classifier", STATES[rows], logits=True, plan="euler:2", condition=CONDITIONS[rows]).logits,
    }
    for name, call in calls.items():
        np.testing.assert_array_equal(call(slice(0, 6)), loop(call), name)


def test_logits_are_those_of_the_condition(client):
    found = client.classify("classifier", STATES, logits=True, plan="euler:2", condition=CONDITIONS).logits
    np.testing.assert_allclose(found, euler(STATES, CONDITIONS, [0, 0.5, 1]) @ HEAD.T, rtol=1e-4, atol=1e-4)


def test_a_stream_takes_each_row_its_condition(client):
    conditions = np.random.default_rng(3).standard_normal((300, 3)).astype(np.float32)
    whole = client.sample("flow", 300, seed=2, plan="euler:2", condition=conditions)
    stream = client.sample_stream("flow", 300, seed=2, plan="euler:2", condition=conditions, chunk_rows=64)
    np.testing.assert_array_equal(np.concatenate([chunk.samples for chunk in stream]), whole.samples)
    one = client.sample("flow", 300, seed=2, plan="euler:2", condition=conditions[7])
    stream = client.sample_stream("flow", 300, seed=2, plan="euler:2", condition=conditions[7], chunk_rows=64)
    np.testing.assert_array_equal(np.concatenate([chunk.samples for chunk in stream]), one.samples)
    np.testing.assert_array_equal(one.samples[7], whole.samples[7])


def test_the_command_line_sends_the_same(client, daemon, tmp_path):
    np.savetxt(tmp_path / "conditions.csv", CONDITIONS, delimiter=",")
    (tmp_path / "weights.csv").write_text("1\n0\n2.5\n-1\n1\n3\n")
    for given, condition in ((str(tmp_path / "conditions.csv"), CONDITIONS), ("0.5,1,-2", [0.5, 1, -2])):
        for said, guidance in (("", 1), ("2", 2), ("2,0.5", [[2, 0.5]]), (str(tmp_path / "weights.csv"), [1, 0, 2.5, -1, 1, 3])):
            done = daemon.run("sample", "--model=guided", "--rows=6", "--seed=3", "--plan=euler:2", f"--condition={given}",
                              f"--guidance={said}", "--format=json")
            theirs = np.array(json.loads(done.stdout)["samples"], np.float32)
            ours = client.sample("guided", 6, seed=3, plan="euler:2", condition=condition, guidance=guidance).samples
            np.testing.assert_array_equal(theirs, ours)


def moved(weights):
    """The conditions that guide the linear field as these weights do."""
    return NONE + np.reshape(weights, (-1, 1)) * (CONDITIONS - NONE)


def test_guidance_weighs_the_condition(client):
    assert client.model("guided").model.no_condition == tuple(NONE)
    shares, weights = [0, 0.25, 0.5, 0.75, 1], [1, 0, 2.5, -1, 1, 3]
    for guidance in (weights, 2.0, [2.0]):
        found = client.solve("guided", state=STATES, plan="euler:4", condition=CONDITIONS, guidance=guidance)
        np.testing.assert_allclose(found.state, euler(STATES, moved(guidance), shares), rtol=1e-5, atol=1e-5)
    by_row = client.solve("guided", state=STATES, plan="euler:4", condition=CONDITIONS, guidance=weights)
    np.testing.assert_array_equal(by_row.info.nfe, [4, 4, 8, 8, 4, 8])
    np.testing.assert_array_equal(by_row.info.macs, by_row.info.nfe * 10)
    plain = client.solve("guided", state=STATES, plan="euler:4", condition=CONDITIONS, guidance=1)
    np.testing.assert_array_equal(plain.state, client.solve("flow", state=STATES, plan="euler:4", condition=CONDITIONS).state)
    assert (plain.info.nfe == 4).all()


def test_a_schedule_of_guidance(client):
    schedule, state = [3, 0, 1, 2], STATES
    for step, weight in enumerate(schedule):
        state = euler(state, moved(weight), [step / 4, (step + 1) / 4])
    for guidance in ([schedule], [schedule] * 6):
        found = client.solve("guided", state=STATES, plan="euler:4", condition=CONDITIONS, guidance=guidance)
        np.testing.assert_allclose(found.state, state, rtol=1e-5, atol=1e-5)
        assert (found.info.nfe == 6).all()


def test_guided_rows_are_a_loop_of_single_requests(client):
    weights = np.array([1, 0, 2.5, -1, 1, 3])
    calls = {
        "sample": lambda rows: client.sample("guided", rows.stop - rows.start, seed=4, first_row=rows.start, plan="dopri5:1e-4",
                                             condition=CONDITIONS[rows], guidance=weights[rows], log_density=True),
        "log_prob": lambda rows: client.log_prob("guided", STATES[rows], plan="rk4:2", condition=CONDITIONS[rows],
                                                 guidance=weights[rows]),
    }
    for name, call in calls.items():
        field = {"sample": "samples", "log_prob": "log_prob"}[name]
        alone = np.concatenate([getattr(call(slice(row, row + 1)), field) for row in range(6)])
        np.testing.assert_array_equal(getattr(call(slice(0, 6)), field), alone, name)
    whole = client.sample("guided", 6, seed=4, plan="euler:2", condition=CONDITIONS, guidance=weights)
    stream = client.sample_stream("guided", 6, seed=4, plan="euler:2", condition=CONDITIONS, guidance=weights, chunk_rows=4)
    np.testing.assert_array_equal(np.concatenate([chunk.samples for chunk in stream]), whole.samples)


def test_a_flow_may_be_asked_without_a_condition(client):
    found = client.sample("guided", 6, seed=4, plan="euler:2").samples
    np.testing.assert_array_equal(found, client.sample("guided", 6, seed=4, plan="euler:2", condition=NONE).samples)


def test_what_guidance_does_not_take_is_refused_in_words(client):
    def refused(words, error, **options):
        with pytest.raises(error) as caught:
            client.sample("guided", 2, **{"condition": CONDITIONS[0], "guidance": 2} | options)
        assert words in caught.value.message

    refused("2 weights a row for plan 'euler:3'", hyperserve.InvalidArgumentError, plan="euler:3", guidance=[[1, 2]])
    refused("guidance: 3 weights for 2 rows", hyperserve.InvalidArgumentError, guidance=[1, 2, 3])
    refused("guidance: it weighs a condition", hyperserve.InvalidArgumentError, condition=None)
    refused("none was measured for what is asked", hyperserve.FailedPreconditionError, plan="auto:1e-2")
    with pytest.raises(hyperserve.InvalidArgumentError, match="does not say what stands for no condition"):
        client.sample("flow", 2, condition=CONDITIONS[0], guidance=2)


def signal(values, knots, depth):
    """A linear signal at a depth, [rows, features]."""
    return np.stack([[np.interp(depth, knots, values[row, :, i]) for i in range(3)] for row in range(len(values))])


def test_a_condition_changes_with_the_depth(client):
    knots, values = [0.1, 0.6, 0.8], np.random.default_rng(5).standard_normal((6, 3, 3)).astype(np.float32)
    state, shares = STATES, [0, 0.1, 0.25, 0.5, 0.6, 0.75, 0.8, 1]
    for begin, end in zip(shares, shares[1:]):
        state = euler(state, signal(values, knots, begin), [begin, end])
    found = client.solve("flow", state=STATES, plan="euler:4", condition=values, knots=knots)
    np.testing.assert_allclose(found.state, state, rtol=1e-5, atol=1e-5)
    assert (found.info.nfe == 7).all()
    alone = [client.solve("flow", state=STATES[i : i + 1], plan="euler:4", condition=values[i], knots=knots).state for i in range(6)]
    np.testing.assert_array_equal(np.concatenate(alone), found.state)
    exact = client.solve("flow", state=STATES, plan="euler:5000/double", condition=values, knots=knots, interpolation="cubic_hermite")
    quick = client.solve("flow", state=STATES, plan="dopri5:1e-8/double", condition=values, knots=knots, interpolation="cubic_hermite")
    np.testing.assert_allclose(quick.state, exact.state, atol=1e-3)
    back = client.solve("flow", state=quick.state, plan="dopri5:1e-8/double", direction="data_to_noise", condition=values,
                        knots=knots, interpolation="cubic_hermite")
    np.testing.assert_allclose(back.state, STATES, atol=1e-5)
    stream = client.sample_stream("flow", 6, seed=1, plan="heun:2", condition=values, knots=knots, chunk_rows=4)
    whole = client.sample("flow", 6, seed=1, plan="heun:2", condition=values, knots=knots)
    np.testing.assert_array_equal(np.concatenate([chunk.samples for chunk in stream]), whole.samples)


def test_knots_that_do_not_fit_are_refused_in_words(client):
    values = np.zeros((2, 3), np.float32)

    def refused(words, error=hyperserve.InvalidArgumentError, **options):
        with pytest.raises(error) as caught:
            client.sample("flow", 2, **{"condition": values, "knots": [0, 1], "plan": "heun:2"} | options)
        assert words in caught.value.message

    refused("shape [1, 2, 3] found, [rows, 3, 3] wanted", knots=[0, 0.5, 1])
    refused("condition_knots.depths[1]: 0; strictly increasing", knots=[0, 0])
    refused("condition_knots.depths: 1 depths; from 2", knots=[0], condition=values[:1])
    refused("interpolation: 'square' is none of linear, cubic_hermite", interpolation="square")
    refused("the request has no condition", condition=None)
    refused("'ab2:3' takes no condition_knots", hyperserve.FailedPreconditionError, plan="ab2:3")
    refused("none was measured for what is asked", hyperserve.FailedPreconditionError, plan="auto:1e-2")
    with pytest.raises(TypeError):
        client.sample("flow", 2, condition=values[0], interpolation="linear")


def test_what_does_not_fit_is_refused_in_words(client):
    def refused(words, call):
        with pytest.raises(hyperserve.InvalidArgumentError) as caught:
            call()
        assert words in caught.value.message

    refused("condition: model 'flow' needs one of [3]", lambda: client.sample("flow", 2))
    refused("condition: 6 conditions for 2 rows", lambda: client.sample("flow", 2, condition=CONDITIONS))
    refused("shape [1, 2] found, [rows, 3] wanted", lambda: client.sample("flow", 2, condition=[1, 2]))
    refused("row 0, element 1 is nan", lambda: client.log_prob("flow", STATES, condition=[1, float("nan"), 2]))
    refused("'ab2' takes no grid", lambda: client.sample("flow", 2, plan="ab2:4@cosine", condition=CONDITIONS[0]))
    with pytest.raises(TypeError):
        client.sample("flow", 2, condition=["red", "green", "blue"])
