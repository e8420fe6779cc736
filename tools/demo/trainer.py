"""What the demo asks of hyperserve-train."""

import json
import pathlib
import shutil

from demo.programs import Failure

BASE = "pinwheel"
STALE = "pinwheel-stale"  # the same base model, so the same digest: corrections of one fit the other

# What stands otherwise than in the recipe of the shipped correction: one K, and how long. The first is over before the
# residual is learned; the second has the time that a demonstration has.
STALE_CHANGES = {"optimiser": {"iterations": 40, "warm_up": 10}, "pretrain_iterations": 40, "check_every": 20}
FRESH_CHANGES = {"optimiser": {"iterations": 2000, "batch": 1024}, "truth_rows": 2048, "swap_every": 100,
                 "pretrain_iterations": 300}
ONE_STEP = {"steps": [1], "net": {"steps": [1]}}


def changed(recipe, changes):
    """The recipe with the leaves of `changes` in place of its own."""
    result = dict(recipe)
    for key, value in changes.items():
        result[key] = changed(recipe[key], value) if isinstance(value, dict) else value
    return result


class Trainer:
    """Trains corrections of STALE in the copy of the repository, beside the daemon and never inside it."""

    def __init__(self, programs, recipes, folder, device):
        self.programs, self.recipes, self.device = programs, recipes, device
        self.repository = folder / "models"
        self.made = folder / "made"  # what no daemon serves until it is published
        self.stale = self.fresh = None

    def train(self, name, seed, changes, *arguments, nice=0):
        """The folder of the new generation, and the trainer's own summary of it."""
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
        """A model whose only correction was trained too short; for the daemon to find at its start."""
        shutil.copytree(self.repository / BASE, self.repository / STALE, ignore=shutil.ignore_patterns("hypersolvers"))
        self.stale, summary = self.train("stale", 1, STALE_CHANGES)
        return summary

    def refresh(self, nice):
        self.fresh, summary = self.train("fresh", 2, FRESH_CHANGES, "--threads=1", f"--from={self.stale}",
                                         f"--out={self.made}", nice=nice)
        return summary

    def publish(self, daemon, parent, nice):
        """Through the daemon's gate; ABORTED, and so a Failure, if `parent` is no longer what it serves."""
        out = self.programs.run("hyperserve-client", "publish", self.fresh, f"--model={STALE}",
                                f"--admin_address={daemon.addresses['admin_address']}",
                                f"--parent_generation={parent}", nice=nice)
        return out.strip().splitlines()
