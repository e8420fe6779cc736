"""Act 1: real images under several plans, beside a tight reference."""

from demo import judge, text
from demo.programs import Failure

MODEL = "fashion"
IMAGES = 1000
REFERENCE = "dopri5:1e-6"
PLANS = ("euler:1", "hyper_euler:1", "learned:1", "euler:2", "hyper_euler:2", "learned:2", "midpoint:2", "learned:4")
BATCH = 256  # rows of a request; four are under way at a time
IMAGE_FILE, LABEL_FILE = "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"


def find(data_dir, name):
    for candidate in (data_dir / name, data_dir / f"{name}.gz"):
        if candidate.is_file():
            return candidate
    raise Failure(f"{data_dir} holds neither {name} nor {name}.gz: it is no folder of Fashion-MNIST")


def served(daemon, model, plans):
    """`plans` with the rivals of hypersolved ones, and without hypersolved plans at a K that no correction claims."""
    told = daemon.ask("models", model)
    claims = {f"{text.hypersolver(c['method'])}:{steps}"
              for c in told["corrections"] if not c["problem"] for steps in c["steps"]}
    if not claims:
        raise Failure(f"no correction of {model} is served: `hyperserve-client models {model}` says why")
    return judge.with_rivals([p for p in plans if p in claims or not judge.hypersolved(p)], told["plans"])


def play(teller, daemon, data_dir):
    images, labels = find(data_dir, IMAGE_FILE), find(data_dir, LABEL_FILE)
    plans = served(daemon, MODEL, PLANS)
    with teller.waiting(f"{IMAGES} images under {len(plans) + 1} plans"):
        comparison = daemon.ask("compare", images, f"--model={MODEL}", f"--limit={IMAGES}", f"--labels={labels}",
                                f"--reference={REFERENCE}", f"--plans={' '.join(plans)}", f"--batch={BATCH}",
                                "--concurrency=4")
    reference, *others = comparison["plans"]
    measured = [reference, *sorted(others, key=lambda p: p["macs"])]
    teller.table(
        ["plan", "agree %", "accuracy %", "error", "NFE", "g", "MACs", "ms/image"],
        [[p["plan"], text.percent(p["agreement"]), text.percent(p["accuracy"]), text.number(p["error_mean"]),
          text.whole(p["nfe"]), text.whole(p["correction_evaluations"]), text.macs(p["macs"]),
          text.milliseconds(p["seconds_per_row_p50"])] for p in measured])
    teller.say(f"  agree: same label as {REFERENCE}; error: mean |z - z_ref| / |z_ref| of z(1); NFE and g: evaluations"
               "\n  of the field and of the correction; MACs of everything; time of the solver alone; all per image.")
    for sentence in judge.verdicts(measured):
        teller.say(f"  - {sentence}.")
    return comparison
