"""A steady load: short runs of hyperserve-client bench, one after another, until it is stopped.

Between two runs of one client lies at most a tenth of a second. Two clients, half a run apart, leave no pause.
"""

import json
import threading

from demo.programs import Failure

CLIENTS = 2
RUN_SECONDS = 2  # of one run; a stop waits at most this long
SOME_ROWS_FAILED = 3


class Load:
    """A context manager that sends requests; `requests` holds all of them after its end."""

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
        """One run, with noise of its own by the seed. Failed requests are counted and raise nothing."""
        path = self.folder / f"requests-{run}.jsonl"
        self.daemon.ask("bench", *self.arguments, "--concurrency=1", f"--duration={RUN_SECONDS}s", f"--seed={run}",
                        f"--json_lines={path}", allow=(0, SOME_ROWS_FAILED))
        lines = path.read_text(encoding="utf-8").splitlines()
        path.unlink()
        return [json.loads(line) for line in lines]

    def check(self):
        if self.failure:
            raise Failure(f"the load could not go on: {self.failure}")
