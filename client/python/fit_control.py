#!/usr/bin/env python3
"""Fits a control signal u(s), a condition on knots, that steers the field of a served model from a start to a target.

    python client/python/fit_control.py --model two_moons --start 0.1,-0.4 --target 0.5,0.8

Each step of the search asks the daemon for the end of the solve and for its gradient by the values at the knots (SolveVjp). Needs the
package `hyperserve` and torch. Prints one JSON object.
"""
import argparse
import json
import sys

import torch

# Beside this script stands the source of the package, whose stubs are not built there.
del sys.path[0]

import hyperserve
import hyperserve.torch


def fit(client, model, start, target, knots=8, energy=1e-3, iterations=30, plan="rk4:8/double", interpolation="cubic_hermite"):
    """The least effort that ends at the target: u minimises |z(s1) - target|^2 + energy * mean |u|^2.

    `start` and `target` hold the numbers of a state. Returns the depths of the knots, u at them and z(s1).
    """
    detail = client.model(model)
    begin, end = json.loads(detail.spec_json)["span"]
    depths = torch.linspace(begin, end, knots, dtype=torch.float64).tolist()
    start = torch.as_tensor(start, dtype=torch.float64).reshape(1, -1)
    target = torch.as_tensor(target, dtype=torch.float64).reshape(1, -1)
    control = torch.zeros(knots, *detail.model.condition_shape, dtype=torch.float64, requires_grad=True)

    def solve():
        return hyperserve.torch.solve(
            client, model, start, condition=control, knots=depths, interpolation=interpolation, plan=plan)

    search = torch.optim.LBFGS([control], max_iter=iterations, line_search_fn="strong_wolfe")

    def loss():
        search.zero_grad()
        value = (solve() - target).square().sum() + energy * control.square().mean()
        value.backward()
        return value

    search.step(loss)
    with torch.no_grad():
        return depths, control.detach().numpy(), solve().numpy()[0]


def numbers(text):
    return [float(number) for number in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description="Fits a control signal that steers a served field to a target.")
    parser.add_argument("--address", default="127.0.0.1:8500")
    parser.add_argument("--model", default="two_moons", help="a conditional model; its condition is the control")
    parser.add_argument("--start", type=numbers, required=True, help="the numbers of z(s0), separated by commas")
    parser.add_argument("--target", type=numbers, required=True, help="those of z(s1)")
    parser.add_argument("--knots", type=int, default=8)
    given = parser.parse_args()
    with hyperserve.Client(given.address) as client:
        depths, control, end = fit(client, given.model, given.start, given.target, given.knots)
    print(json.dumps({"depths": depths, "control": control.tolist(), "end": end.tolist()}))


if __name__ == "__main__":
    main()
