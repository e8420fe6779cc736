"""Act 3: a correction that was trained too short is refreshed under load."""

import time

from demo import judge, pictures, text
from demo.load import Load
from demo.programs import Failure

MODEL = "pinwheel-stale"
METHOD = "heun"
PLANS = ("heun:1", "hyper_heun:1")
REFERENCE = "dopri5:1e-6"
ROWS = 4096  # of the comparison before and after
LOAD = (f"--model={MODEL}", f"--plan={PLANS[-1]}", "--rows=16", "--concurrency=1")
QUIET_SECONDS = 10  # before the trainer starts, and after the swap
TRAINER_NICE = 10  # requests come first
SWAP_SECONDS = 1  # from the publisher's call to this long after its answer


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


def under_load(teller, daemon, trainer, folder):
    """The whole story while requests flow: marks of its phases, and every request."""
    marks = []

    def mark(name):
        marks.append((name, time.time()))

    with Load(daemon, folder, *LOAD) as load:
        time.sleep(1)  # connections and caches are warm
        mark("before")
        with teller.waiting("requests flow, nothing else runs"):
            sleep(load, QUIET_SECONDS)
        mark("training")
        with teller.waiting("the trainer works beside them"):
            trainer.refresh(MODEL, nice=TRAINER_NICE)
        load.check()
        mark("swap")
        with teller.waiting("the new generation passes the gate"):
            trainer.publish(MODEL, nice=TRAINER_NICE)
            sleep(load, SWAP_SECONDS)
        mark("after")
        with teller.waiting("requests flow on"):
            sleep(load, QUIET_SECONDS)
    return marks, load.requests


def check(before, after, errors, requests):
    """The promises of this act; each is measured, none is assumed."""
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
    start = marks[0][1]
    files = {}
    for generation in {r["generation"] for r in requests}:
        files[generation] = folder / f"latency-{generation}.csv"
        files[generation].write_text("".join(f"{r['start'] - start:.4f},{1e3 * r['seconds']:.4f}\n"
                                             for r in requests if r["generation"] == generation))
    return pictures.draw_latencies(out / "refresh.png", files, [(name, at - start) for name, at in marks],
                                   f"{len(requests)} requests while {MODEL} was refreshed")


def play(teller, daemon, trainer, folder, out):
    before = active(daemon)
    first = measure(daemon)
    marks, requests = under_load(teller, daemon, trainer, folder)
    after = active(daemon)
    last = measure(daemon)
    check(before, after, (first[-1], last[-1]), requests)
    teller.table(["K = 1", "generation", "error", "NFE", "MACs"],
                 [[name, p["generation"] or text.NONE, text.number(p["error_mean"]), text.whole(p["nfe"]), text.macs(p["macs"])]
                  for name, p in ((first[-2]["plan"], first[-2]), ("hyper_heun, trained too short", first[-1]),
                                  ("hyper_heun, refreshed", last[-1]))])
    phases = judge.phases(requests, marks)
    teller.table(["phase", "requests", "failed", "generation", "p50 ms", "p99 ms", "longest ms"],
                 [[p["phase"], p["requests"], p["failed"], " then ".join(map(str, p["generations"])),
                   text.milliseconds(p["p50"]), text.milliseconds(p["p99"]), text.milliseconds(p["max"])] for p in phases])
    swap, end = marks[2][1], marks[3][1]
    seconds = marks[2][1] - marks[1][1]
    teller.say(f"  one client, 16 rows a request, always one under way; the trainer took {seconds:.0f} s at nice {TRAINER_NICE}.")
    teller.say(f"  generation {before['generation']} -> {after['generation']}, error {text.number(first[-1]['error_mean'])}"
               f" -> {text.number(last[-1]['error_mean'])} ({judge.times(first[-1]['error_mean'] / last[-1]['error_mean'])}"
               f" smaller), {sum(p['failed'] for p in phases)} of {len(requests)} requests failed;")
    teller.say(f"  the longest pause between requests in the swap's window was "
               f"{text.milliseconds(judge.longest_pause(requests, swap, end))} ms.")
    teller.say(f"  {draw(folder, out, marks, requests)}")
    return {"before": first, "after": last, "phases": phases, "training_seconds": seconds}
