"""Pictures of samples, densities and calibrated plans. Needs matplotlib: `pip install hyperserve[plot]`.

Each function draws on `axes`, or on new ones, and returns them.
"""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np

from hyperserve.arrays import as_numpy
from hyperserve.catalog import ModelDetail
from hyperserve.client import Client
from hyperserve.requests import Options
from hyperserve.results import SampleResult


def _axes(axes: Any) -> Any:
    if axes is not None:
        return axes
    import matplotlib.pyplot as pyplot

    return pyplot.subplots()[1]


def samples(points: Any, *, axes: Any = None, **style: Any) -> Any:
    """The first two coordinates of samples [rows, dimensions], or of a SampleResult."""
    found = as_numpy(points.samples if isinstance(points, SampleResult) else points)
    if found.ndim != 2 or found.shape[1] < 2:
        raise ValueError(f"points of shape {found.shape}; [rows, 2 or more] wanted")
    axes = _axes(axes)
    axes.scatter(found[:, 0], found[:, 1], **({"s": 1, "linewidths": 0} | style))
    axes.set_aspect("equal")
    return axes


def density(
    client: Client,
    model: str,
    *,
    bounds: tuple[float, float, float, float] = (-4.0, 4.0, -4.0, 4.0),
    points: int = 100,
    axes: Any = None,
    **options: Unpack[Options],
) -> Any:
    """The density of a flow in the plane, from points x points log-densities. bounds: left, right, bottom, top.

    `options` are those of `Client.log_prob`: plan, and of a conditional flow the condition, one for all points.
    """
    left, right, bottom, top = bounds
    x, y = np.meshgrid(np.linspace(left, right, points), np.linspace(bottom, top, points))
    grid = np.stack([x.ravel(), y.ravel()], 1)
    rows_max = 8192  # of one call; the daemon's limit is at least that unless it was lowered
    parts = [client.log_prob(model, grid[at : at + rows_max], **options).log_prob for at in range(0, len(grid), rows_max)]
    axes = _axes(axes)
    axes.imshow(np.exp(np.concatenate(parts)).reshape(points, points), origin="lower", extent=bounds)
    return axes


_KINDS = ("classical", "with a correction", "learned")


def _kind_of(plan: str) -> str:
    if plan.startswith("learned:"):
        return "learned"
    return "with a correction" if plan.startswith("hyper_") else "classical"


def front(model: ModelDetail, *, axes: Any = None) -> Any:
    """The measured plans of a model: mean relative error of the end state against MACs a row, both logarithmic. Plans that no
    other one beats in both are named."""
    plans = [plan for plan in model.plans if plan.error_mean > 0]
    if not plans:
        raise ValueError(f"{model.model.name} has no measured plan; hyperserve-train calibrate measures them")
    axes = _axes(axes)
    for kind in _KINDS:
        chosen = [plan for plan in plans if _kind_of(plan.plan) == kind]
        if not chosen:
            continue
        axes.scatter([plan.macs for plan in chosen], [plan.error_mean for plan in chosen], label=kind)
    for plan in plans:
        if not any(other.macs <= plan.macs and other.error_mean < plan.error_mean for other in plans if other is not plan):
            axes.annotate(plan.plan, (plan.macs, plan.error_mean))
    axes.set(xscale="log", yscale="log", xlabel="MACs a row", ylabel="mean error", title=model.model.name)
    axes.legend()
    return axes
