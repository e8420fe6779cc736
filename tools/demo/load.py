"""Requests that keep flowing: hyperserve-client bench, one short run after the other, until it is stopped."""

import json
import threading

from demo.programs import Failure

CHUNK_SECONDS = 2  # how long a stop waits at most; between two runs lie a few hundredths of a second
SOME_ROWS_FAILED = 3


class Load:
    """As a context manager; `requests` holds every request once it is left."""

    def __init__(self, daemon, folder, *arguments):
        self.daemon, self.folder, self.arguments = daemon, folder, arguments
        self.requests = []
        self.failure = None
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, kind, error, trace):
        self.stop.set()
        self.thread.join()
        if self.failure and kind is None:
            raise self.failure

    def run(self):
        try:
            chunk = 0
            while not self.stop.is_set():
                path = self.folder / f"requests-{chunk}.jsonl"
                # The seed makes each run's noise its own. A failed request is counted, not fatal here.
                self.daemon.ask("bench", *self.arguments, f"--duration={CHUNK_SECONDS}s", f"--seed={chunk}",
                                f"--json_lines={path}", allow=(0, SOME_ROWS_FAILED))
                with path.open(encoding="utf-8") as lines:
                    self.requests += [json.loads(line) for line in lines]
                path.unlink()
                chunk += 1
        except Failure as failure:
            self.failure = failure

    def check(self):
        if self.failure:
            raise self.failure
