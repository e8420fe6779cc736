"""Runs the daemon, the client and the trainer as child processes, and leaves none behind."""

import json
import os
import pathlib
import shlex
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request

DRAIN_SECONDS = 30  # from SIGTERM to the end of the daemon; its own limit is shorter
ABANDON_SECONDS = 10  # from SIGTERM to SIGKILL at the end of the demo
READY_SECONDS = 120  # for loading, the gate and warm-up, on a slow machine
CALL_SECONDS = 500  # for one call; below the daemon's deadline_max_seconds
STEP_SECONDS = 900  # for one program, on a busy machine


class Failure(Exception):
    """A step failed; the message says how."""


def tail(path, lines=25):
    try:
        return "\n".join(pathlib.Path(path).read_text(errors="replace").splitlines()[-lines:])
    except OSError:
        return "(nothing)"


class Programs:
    """Starts and ends processes. Each has a session of its own, so Ctrl-C reaches the demo only; `stop_all` ends them."""

    def __init__(self, bin_dir, logs):
        self.bin_dir = pathlib.Path(bin_dir).resolve()
        self.logs = pathlib.Path(logs)
        self.lock = threading.Lock()
        self.running = set()
        self.stopping = False
        # Otherwise gRPC and urllib would use a proxy for the loopback address.
        for name in ("no_proxy", "NO_PROXY"):
            os.environ[name] = ",".join(filter(None, ["127.0.0.1", os.environ.get(name)]))
        for old in ("daemon.log", "commands.log"):
            (self.logs / old).unlink(missing_ok=True)
        for name in ("hyperserve", "hyperserve-client", "hyperserve-train"):
            if not (self.bin_dir / name).is_file():
                raise Failure(f"{self.bin_dir} holds no {name}: build first (make build)")

    def start(self, name, *arguments, nice=0, **streams):
        prefix = ["nice", "-n", str(nice)] if nice else []
        with self.lock:
            if self.stopping:
                raise Failure("the demo is ending")
            process = subprocess.Popen([*prefix, str(self.bin_dir / name), *map(str, arguments)],
                                       stdin=subprocess.DEVNULL, start_new_session=True, **streams)
            self.running.add(process)
        return process

    def forget(self, process):
        """Removes a process that has ended. One that still runs is kept for stop_all."""
        with self.lock:
            if process.poll() is not None:
                self.running.discard(process)

    def run(self, name, *arguments, allow=(0,), seconds=STEP_SECONDS, nice=0):
        """The program's stdout. A Failure with its stderr if it ends with a code that is not in `allow`."""
        process = self.start(name, *arguments, nice=nice, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            out, error = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise Failure(f"{self.spell(name, arguments)}\nwas not done after {seconds} s") from None
        finally:
            self.forget(process)
        with (self.logs / "commands.log").open("a") as log:
            log.write(f"$ {self.spell(name, arguments)}\n{error}exit {process.returncode}\n\n")
        if process.returncode not in allow:
            words = (error or out)[-3000:]
            raise Failure(f"{self.spell(name, arguments)}\nended with {process.returncode}:\n{words}")
        return out

    @staticmethod
    def spell(name, arguments):
        return shlex.join([name, *map(str, arguments)])

    def stop_all(self):
        with self.lock:
            self.stopping = True
            left = list(self.running)
        for process in left:
            if process.poll() is None:
                process.terminate()
        end = time.monotonic() + ABANDON_SECONDS
        for process in left:
            try:
                process.wait(max(end - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            self.forget(process)


class Daemon:
    """A daemon on free ports with a repository of its own."""

    def __init__(self, programs, repository, device):
        self.programs = programs
        self.log = programs.logs / "daemon.log"
        ports_file = repository.parent / "addresses.json"
        with self.log.open("w") as log:
            self.process = programs.start(
                "hyperserve", f"--models={repository}", f"--device={device}", "--address=127.0.0.1:0",
                "--admin_address=127.0.0.1:0", "--http_address=127.0.0.1:0", f"--ports_file={ports_file}",
                stdout=log, stderr=subprocess.STDOUT)
        begin = time.monotonic()
        self.addresses = self.wait_for(lambda: read_addresses(ports_file), "file of its addresses")
        self.wait_for(self.ready, "200 on /readyz")
        self.ready_seconds = time.monotonic() - begin

    def wait_for(self, question, what):
        end = time.monotonic() + READY_SECONDS
        while time.monotonic() < end:
            answer = question()
            if answer:
                return answer
            if self.process.poll() is not None:
                raise Failure(f"the daemon ended with {self.process.returncode} before it was ready")
            time.sleep(0.05)
        raise Failure(f"the daemon gave no {what} within {READY_SECONDS} s")

    def ready(self):
        try:
            with urllib.request.urlopen(f"http://{self.addresses['http_address']}/readyz", timeout=5) as reply:
                return reply.status == 200
        except (urllib.error.URLError, OSError):
            return False

    def ask(self, command, *arguments, allow=(0,)):
        """The parsed JSON output of hyperserve-client. Exit code 3, some rows failed, is a Failure unless allowed."""
        out = self.programs.run("hyperserve-client", command, *arguments, f"--address={self.addresses['address']}",
                                "--format=json", f"--timeout={CALL_SECONDS}s", allow=allow)
        try:
            return json.loads(out)
        except ValueError as error:
            raise Failure(f"hyperserve-client {command} printed no JSON ({error}): {out[:500]}") from None

    def stop(self):
        """Sends SIGTERM. A Failure unless the daemon then ends with 0."""
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(DRAIN_SECONDS)
        except subprocess.TimeoutExpired:
            raise Failure(f"the daemon still runs {DRAIN_SECONDS} s after SIGTERM") from None
        self.programs.forget(self.process)
        if code != 0:
            raise Failure(f"after SIGTERM the daemon ended with {code}, not 0")


def read_addresses(path):
    """The addresses of the daemon; None until it has written the whole file."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None
