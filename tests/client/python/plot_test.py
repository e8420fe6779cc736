"""Pictures show what they are given; matplotlib draws them into memory."""

import dataclasses

import numpy as np
import pytest

matplotlib = pytest.importorskip("matplotlib", reason="no matplotlib")
matplotlib.use("agg")

import hyperserve
from hyperserve import plot  # noqa: E402


def test_samples(client):
    result = client.sample("pinwheel", 50, seed=1, plan="euler:2")
    axes = plot.samples(result, s=4)
    np.testing.assert_allclose(axes.collections[0].get_offsets(), result.samples)
    assert plot.samples([[0.0, 1.0]], axes=axes) is axes and len(axes.collections) == 2
    with pytest.raises(ValueError, match="2 or more"):
        plot.samples([1.0])


def test_density(client):
    axes = plot.density(client, "rings", plan="rk4:2", bounds=(-3, 3, -2, 2), points=10)
    (image,) = axes.images
    grid = image.get_array()
    assert grid.shape == (10, 10) and image.get_extent() == [-3, 3, -2, 2]
    corner = client.log_prob("rings", [[3.0, -2.0]], plan="rk4:2").log_prob  # right and bottom
    np.testing.assert_allclose(grid[0, -1], np.exp(corner[0]), rtol=1e-4)  # float32 in another batch


def test_density_under_a_condition(client):
    axes = plot.density(client, "two_moons", plan="rk4:2", bounds=(-1, 1, -1, 1), points=5, condition=[0.2, -0.3])
    middle = client.log_prob("two_moons", [[0.0, 0.0]], plan="rk4:2", condition=[0.2, -0.3]).log_prob
    np.testing.assert_allclose(axes.images[0].get_array()[2, 2], np.exp(middle[0]), rtol=1e-4)
    with pytest.raises(hyperserve.InvalidArgumentError, match="needs one of"):
        plot.density(client, "two_moons", points=2)


def test_a_front_tells_learned_plans_from_classical_ones(client):
    detail = client.model("rings")
    plan = detail.plans[0]
    plans = [dataclasses.replace(plan, plan=name, error_mean=0.1, macs=float(macs))
             for macs, name in enumerate(("rk4:2", "hyper_heun:2", "learned:3", "learned:1/double", "dopri5:1e-3"), 1)]
    axes = plot.front(dataclasses.replace(detail, plans=tuple(plans)))
    drawn = {part.get_label(): sorted(np.asarray(part.get_offsets())[:, 0]) for part in axes.collections}
    assert drawn == {"classical": [1, 5], "with a correction": [2], "learned": [3, 4]}


def test_front(client):
    detail = client.model("fashion")
    axes = plot.front(detail)
    drawn = {point for part in axes.collections for point in map(tuple, np.asarray(part.get_offsets()))}
    assert drawn == {(plan.macs, plan.error_mean) for plan in detail.plans}
    named = {text.get_text() for text in axes.texts}
    cheapest = min(detail.plans, key=lambda plan: (plan.macs, plan.error_mean))
    assert cheapest.plan in named and len(named) < len(detail.plans)
