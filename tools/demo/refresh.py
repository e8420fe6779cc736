"""Act 4: refreshes a correction that was trained too short, under load."""

import time

from demo import judge, pictures, text
from demo.load import CLIENTS, Load
from demo.programs import Failure
from demo.trainer import STALE as MODEL

METHOD = "heun"
PLANS = ("heun:1", "hyper_heun:1")
REFERENCE = "dopri5:1e-6"
ROWS = 4096  # of the comparison before and after
LOAD = (f"--model={MODEL}", f"--plan={PLANS[-1]}", "--rows=16")
QUIET_SECONDS = 10  # before the trainer starts, and after the swap
TRAINER_NICE = 10  # below the daemon, which serves requests
SWAP_SECONDS = 1  # the swap's phase goes on for this long after the publisher's reply


def measure(daemon):
    return daemon.ask("compare", f"--model={MODEL}", f"--plans={' '.join(PLANS)}", f"--reference={REFERENCE}",
                      f"--rows={ROWS}", "--batch=1024")["plans"]


def active(daemon):
    for correction in daemon.ask("models", MODEL)["corrections"]:
        if correction["method"] == METHOD:
            if correction["generation"] == 0:
                raise Failure(f"no generation of {MODEL}'s correction is served: {correction['problem']}")
            return correction
    raise Failure(f"{MODEL} has no correction for {METHOD}")


def sleep(load, seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        load.check()
        time.sleep(0.1)


def under_load(teller, daemon, trainer, parent, folder):
    """Trains and publishes while requests flow. The marks of the phases, all requests, and the gate's output."""
    marks = []

    def mark(name):
        marks.append((name, time.time()))

    with Load(daemon, folder, *LOAD) as load:
        time.sleep(1)  # to warm connections and caches
        mark("before")
        with teller.waiting("requests flow, nothing else runs"):
            sleep(load, QUIET_SECONDS)
        mark("training")
        with teller.waiting("the trainer works beside them"):
            trainer.refresh(nice=TRAINER_NICE)
        load.check()
        mark("swap")
        with teller.waiting("the new generation passes the gate"):
            gate = trainer.publish(daemon, parent, nice=TRAINER_NICE)
            sleep(load, SWAP_SECONDS)
        mark("after")
        with teller.waiting("requests flow on"):
            sleep(load, QUIET_SECONDS)
    return marks, load.requests, gate


def check(before, after, errors, requests):
    """Checks the claims of this act against the measurements."""
    if after["generation"] <= before["generation"]:
        raise Failure(f"the generation did not rise: {before['generation']} before, {after['generation']} after")
    if errors[1]["error_mean"] >= errors[0]["error_mean"]:
        raise Failure(f"the error did not fall: {errors[0]['error_mean']} before, {errors[1]['error_mean']} after")
    failures = [r for r in requests if judge.failed(r)]
    if failures:
        raise Failure(f"{len(failures)} of {len(requests)} requests failed; the first one: {failures[0]}")
    seen = {r["generation"] for r in requests}
    if not {before["generation"], after["generation"]} <= seen:
        raise Failure(f"the requests saw generations {sorted(seen)}, not both of "
                      f"{before['generation']} and {after['generation']}")


def draw(folder, out, marks, requests):
    start = requests[0]["start"]
    files = {}
    for generation in {r["generation"] for r in requests}:
        files[generation] = folder / f"latency-{generation}.csv"
        files[generation].write_text("".join(f"{r['start'] - start:.4f},{1e3 * r['seconds']:.4f}\n"
                                             for r in requests if r["generation"] == generation))
    return pictures.draw_latencies(out / "refresh.png", files, [(name, at - start) for name, at in marks],
                                   f"{len(requests)} requests while {MODEL} was refreshed")


def play(teller, daemon, trainer, folder, out):
    before, first = active(daemon), measure(daemon)
    marks, requests, gate = under_load(teller, daemon, trainer, before["generation"], folder)
    after, last = active(daemon), measure(daemon)
    check(before, after, (first[-1], last[-1]), requests)
    phases = judge.phases(requests, marks)
    training, swap, end = (at for _, at in marks[1:])
    pause = judge.longest_pause(requests, swap, end)

    classical, stale, fresh = first[-2], first[-1], last[-1]
    lines = ((classical["plan"], classical), ("hyper_heun:1, trained too short", stale),
             ("hyper_heun:1, refreshed", fresh))
    teller.table(["plan", "generation", "error", "NFE", "MACs"],
                 [[name, p["generation"] or text.NONE, text.number(p["error_mean"]), text.whole(p["nfe"]),
                   text.macs(p["macs"])] for name, p in lines])
    for line in gate:
        teller.say(f"  {line}")
    teller.table(["phase", "requests", "failed", "generation", "p50 ms", "p99 ms", "longest ms"],
                 [[p["phase"], p["requests"], p["failed"], " then ".join(map(str, p["generations"])),
                   text.milliseconds(p["p50"]), text.milliseconds(p["p99"]), text.milliseconds(p["max"])]
                  for p in phases])
    teller.say(f"  {CLIENTS} clients, 16 rows a request, one at a time each; the trainer took {swap - training:.0f} s"
               f" at nice {TRAINER_NICE}.")
    rise = f"{before['generation']} -> {after['generation']}"
    fall = f"{text.number(stale['error_mean'])} -> {text.number(fresh['error_mean'])}"
    teller.say(f"  generation {rise}; error {fall}, {judge.times(stale['error_mean'] / fresh['error_mean'])} less;"
               f" {sum(p['failed'] for p in phases)} of {len(requests)} requests failed;")
    teller.say(f"  in the swap's window there was never more than {text.milliseconds(pause)} ms without a request.")
    teller.say(f"  {draw(folder, out, marks, requests)}")
    return {"before": first, "after": last, "phases": phases, "training_seconds": swap - training,
            "longest_pause_seconds": pause}
