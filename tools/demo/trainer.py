"""Runs hyperserve-train for the demo."""

import json
import pathlib
import shutil

from demo.programs import Failure

BASE = "pinwheel"
STALE = "pinwheel-stale"  # a copy of BASE with the same digest, so corrections of one fit the other

# Changes to the recipe of the shipped correction: one K, and the length of the training. The stale one ends before it has
# learned the residual; the fresh one fits the time of a demonstration.
STALE_CHANGES = {"optimiser": {"iterations": 40, "warm_up": 10}, "pretrain_iterations": 40, "check_every": 20}
FRESH_CHANGES = {"optimiser": {"iterations": 2000, "batch": 1024}, "truth_rows": 2048, "swap_every": 100,
                 "pretrain_iterations": 300}
ONE_STEP = {"steps": [1], "net": {"steps": [1]}}


def changed(recipe, changes):
    """The recipe with the values of `changes` in place of its own, also in nested objects."""
    result = dict(recipe)
    for key, value in changes.items():
        result[key] = changed(recipe[key], value) if isinstance(value, dict) else value
    return result


class Trainer:
    """Trains corrections of STALE with the copy of the repository, in processes of their own."""

    def __init__(self, programs, recipes, folder, device):
        self.programs, self.recipes, self.device = programs, recipes, device
        self.repository = folder / "models"
        self.made = folder / "made"  # no daemon serves it
        self.stale = self.fresh = None

    def train(self, name, seed, changes, *arguments, nice=0):
        """The folder of the new generation, and the trainer's summary."""
        recipe = json.loads((self.recipes / f"{BASE}.json").read_text(encoding="utf-8"))
        recipe["name"], recipe["seed"] = STALE, seed
        recipe["hypersolver"] = changed(changed(recipe["hypersolver"], ONE_STEP), changes)
        path = self.programs.logs / f"recipe-{name}.json"
        path.write_text(json.dumps(recipe, indent=1))
        out = self.programs.run("hyperserve-train", "hypersolver", f"--recipe={path}", f"--models={self.repository}",
                                f"--device={self.device}", *arguments, nice=nice)
        lines = out.strip().splitlines()
        if len(lines) < 2 or not pathlib.Path(lines[-1]).is_dir():
            raise Failure(f"the trainer's last line names no folder of a generation: {out[-500:]}")
        return pathlib.Path(lines[-1]), lines[-2]

    def make_stale(self):
        """Makes the model STALE with one correction that is trained too short, before the daemon starts."""
        shutil.copytree(self.repository / BASE, self.repository / STALE, ignore=shutil.ignore_patterns("hypersolvers"))
        self.stale, summary = self.train("stale", 1, STALE_CHANGES)
        return summary

    def refresh(self, nice):
        self.fresh, summary = self.train("fresh", 2, FRESH_CHANGES, "--threads=1", f"--from={self.stale}",
                                         f"--out={self.made}", nice=nice)
        return summary

    def publish(self, daemon, parent, nice):
        """Publishes the fresh correction through the gate. A Failure (ABORTED) if the daemon no longer serves `parent`."""
        out = self.programs.run("hyperserve-client", "publish", self.fresh, f"--model={STALE}",
                                f"--admin_address={daemon.addresses['admin_address']}",
                                f"--parent_generation={parent}", nice=nice)
        return out.strip().splitlines()
