"""Requests that keep flowing: hyperserve-client bench, one short run after the other, until it is stopped.

Between two runs lies a tenth of a second or less; two such clients, half a run apart, leave no pause.
"""

import json
import threading

from demo.programs import Failure

CLIENTS = 2
RUN_SECONDS = 2  # how long a stop waits at most
SOME_ROWS_FAILED = 3


class Load:
    """As a context manager; `requests` holds every request once it is left."""

    def __init__(self, daemon, folder, *arguments):
        self.daemon, self.folder, self.arguments = daemon, folder, arguments
        self.requests = []
        self.failure = None
        self.stop = threading.Event()
        self.threads = [threading.Thread(target=self.run, args=(client,)) for client in range(CLIENTS)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, kind, error, trace):
        self.stop.set()
        for thread in self.threads:
            thread.join()
        if kind is None:
            self.check()
        self.requests.sort(key=lambda request: request["start"])

    def run(self, client):
        try:
            self.stop.wait(client * RUN_SECONDS / CLIENTS)
            run = client
            while not self.stop.is_set():
                self.requests += self.run_once(run)
                run += CLIENTS
        except (Failure, OSError, ValueError) as failure:
            self.failure = failure

    def run_once(self, run):
        """The seed makes each run's noise its own. A failed request is counted, not fatal here."""
        path = self.folder / f"requests-{run}.jsonl"
        self.daemon.ask("bench", *self.arguments, "--concurrency=1", f"--duration={RUN_SECONDS}s", f"--seed={run}",
                        f"--json_lines={path}", allow=(0, SOME_ROWS_FAILED))
        lines = path.read_text(encoding="utf-8").splitlines()
        path.unlink()
        return [json.loads(line) for line in lines]

    def check(self):
        if self.failure:
            raise Failure(f"the load could not go on: {self.failure}")
