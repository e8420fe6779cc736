#!/usr/bin/env python3
"""The demonstration on real data: serve, classify, sample, infer, refresh a correction under load, read the metrics.

    tools/demo.py BIN_DIR DATA_DIR [--models models] [--device auto|cpu|cuda:0] [--out build/demo]

All printed numbers are measured in this run. Results, pictures and logs land in --out. Exit code 0 means that every step
succeeded. Otherwise the demo names the first step that failed and shows the end of the daemon's log. In both cases no
process is left running. Uses Python's standard library only, and gnuplot if it is installed.
"""

import argparse
import json
import pathlib
import shutil
import signal
import sys
import tempfile

from demo import classify, flows, observe, posterior, refresh
from demo.programs import Daemon, Failure, Programs, tail
from demo.text import Teller
from demo.trainer import Trainer

ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
ROOT = pathlib.Path(__file__).resolve().parent.parent


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bin_dir", type=pathlib.Path, help="folder of hyperserve, hyperserve-client, hyperserve-train")
    parser.add_argument("data_dir", type=pathlib.Path, help="the four files of Fashion-MNIST, gzipped or not")
    parser.add_argument("--models", type=pathlib.Path, default=ROOT / "models", help="the repository; a copy is served")
    parser.add_argument("--recipes", type=pathlib.Path, default=ROOT / "training" / "recipes")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda:0, for the daemon and the trainer")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build" / "demo", help="results, pictures, logs")
    return parser.parse_args()


def perform(teller, options, programs, folder):
    """Plays all acts and writes their measurements."""
    for name in (classify.IMAGE_FILE, classify.LABEL_FILE):
        classify.find(options.data_dir, name)  # so that a missing file fails at once
    repository = folder / "models"
    shutil.copytree(options.models, repository)
    trainer = Trainer(programs, options.recipes, folder, options.device)
    teller.heading("A correction trained too short, on purpose")
    with teller.waiting("the trainer makes it"):
        teller.say(f"  {trainer.make_stale()}")

    teller.heading("The daemon starts")
    with teller.waiting("models load, corrections pass their gate, plans are warmed"):
        daemon = Daemon(programs, repository, options.device)
    served = ", ".join(m["name"] for m in daemon.ask("models")["models"])
    teller.say(f"  ready after {daemon.ready_seconds:.1f} s at {daemon.addresses['address']}; serves {served}")

    results = {}
    teller.heading(f"{classify.IMAGES} test images of Fashion-MNIST under several plans")
    results["classify"] = classify.play(teller, daemon, options.data_dir)
    teller.heading(f"{flows.ROWS} samples of each flow from the same noise")
    results["flows"] = flows.play(teller, daemon, folder, options.out)
    teller.heading(f"{posterior.MODEL}: the posterior of one observation")
    results["posterior"] = posterior.play(teller, daemon, folder, options.out)
    teller.heading(f"{refresh.MODEL}: a fresh correction while requests keep flowing")
    _, earlier = observe.scrape(daemon)
    results["refresh"] = refresh.play(teller, daemon, trainer, folder, options.out)
    teller.heading("What the daemon's metrics say")
    results["metrics"] = observe.play(teller, daemon, options.data_dir, earlier, options.out)

    daemon.stop()
    results["seconds"] = teller.seconds()
    (options.out / "results.json").write_text(json.dumps(results, indent=1, default=str))
    teller.say()
    teller.say(f"Done in {teller.seconds():.0f} s; SIGTERM ended the daemon with 0.")
    teller.say(f"All numbers: {options.out / 'results.json'}")


def interrupt(_signal, _frame):
    raise KeyboardInterrupt


def main():
    options = arguments()
    teller = Teller()
    for ending in ENDINGS:
        signal.signal(ending, interrupt)
    try:
        options.out.mkdir(parents=True, exist_ok=True)
        options.out = options.out.resolve()
        programs = Programs(options.bin_dir, options.out)
        with tempfile.TemporaryDirectory(prefix="hyperserve-demo-") as folder:
            try:
                perform(teller, options, programs, pathlib.Path(folder))
            finally:
                for ending in ENDINGS:  # a second Ctrl-C must not leave a process behind
                    signal.signal(ending, signal.SIG_IGN)
                programs.stop_all()
    except (Failure, OSError) as failure:
        print(f"\ndemo: failed after {teller.seconds():.0f} s: {failure}", file=sys.stderr)
        log = options.out / "daemon.log"
        if log.exists():
            print(f"\nthe end of {log}:\n{tail(log)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ndemo: interrupted; everything it started has ended", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
