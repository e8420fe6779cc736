"""A daemon of one's own, for as long as a block lasts."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import subprocess
import tempfile
import time
from collections.abc import Iterator

from hyperserve.folder import find_program

START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 60.0  # it drains first; then it is killed


@contextlib.contextmanager
def daemon(
    models: str | os.PathLike[str], program: str | os.PathLike[str] | None = None, *, device: str = "cpu", allow_code: str = ""
) -> Iterator[str]:
    """Serves a repository on ports of loopback that the system chooses; yields the address of its calls. It runs the code of
    the models in `allow_code`."""
    with tempfile.TemporaryDirectory() as folder:
        ports, log = pathlib.Path(folder) / "ports.json", pathlib.Path(folder) / "log"
        flags = [f"--{name}=127.0.0.1:0" for name in ("address", "admin_address", "http_address")]
        with log.open("wb") as output:
            process = subprocess.Popen(
                [find_program(program), f"--models={os.fspath(models)}", f"--ports_file={ports}", f"--device={device}",
                 f"--allow_code={allow_code}", *flags],  # fmt: skip
                stdout=output,
                stderr=output,
            )
        try:
            end = time.monotonic() + START_SECONDS_MAX
            while not ports.exists():
                if process.poll() is not None or time.monotonic() > end:
                    raise RuntimeError(f"the daemon did not start:\n{log.read_text('utf-8', 'replace')}")
                time.sleep(0.02)
            yield str(json.loads(ports.read_text("utf-8"))["address"])
        finally:
            _stop(process)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
