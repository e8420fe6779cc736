"""The output of the demo: headings, tables, short numbers."""

import contextlib
import math
import os
import sys
import threading
import time

NONE = "-"


def number(value, digits=3):
    """`digits` significant digits: 0.0271, 14.2, 1230; '-' for a value that was not measured."""
    if value is None or value != value:
        return NONE
    if value == 0 or math.isinf(value):
        return f"{value:.0f}"
    size = abs(value)
    if size < 1e-4:
        return f"{value:.{digits - 1}e}".replace("e-0", "e-")
    decimals = digits - 1
    while size >= 10:
        size, decimals = size / 10, decimals - 1
    while size < 1:
        size, decimals = size * 10, decimals + 1
    return f"{value:.{max(decimals, 0)}f}"


def hypersolver(method):
    """How plans spell the hypersolver of a method: hyper_heun, learned."""
    return method if method == "learned" else f"hyper_{method}"


def whole(value):
    """A mean of counts: without decimals if it is whole, else with one."""
    return f"{value:.0f}" if value == round(value) else f"{value:.1f}"


def macs(value):
    """Multiply-accumulates with a unit: 33.4 k, 71.6 M, 2.15 G."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{number(value / size)} {unit}"
    return number(value)


def percent(value):
    return NONE if value is None else f"{100 * value:.1f}"


def milliseconds(seconds):
    return NONE if seconds is None else number(1e3 * seconds)


def looks_numeric(cell):
    return cell == NONE or cell.lstrip("<>-+").rstrip(" kMG")[:1].isdigit()


def table(header, rows, indent="  "):
    """Each column is as wide as its widest cell; columns of numbers are right-aligned."""
    lines = [[str(cell) for cell in line] for line in [header, *rows]]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    right = [bool(rows) and all(looks_numeric(line[i]) for line in lines[1:]) for i in range(len(header))]
    texts = []
    for line in lines:
        cells = [cell.rjust(width) if to_right else cell.ljust(width)
                 for cell, width, to_right in zip(line, widths, right)]
        texts.append((indent + "  ".join(cells)).rstrip())
    return "\n".join(texts)


class Teller:
    """Writes plain lines; on a terminal also emphasis, and a clock while it waits."""

    def __init__(self, stream=sys.stdout):
        self.stream = stream
        self.terminal = stream.isatty()
        self.emphasis = self.terminal and "NO_COLOR" not in os.environ
        self.begin = time.monotonic()

    def say(self, text=""):
        print(text, file=self.stream, flush=True)

    def heading(self, text):
        self.say()
        self.say(f"\033[1m{text}\033[0m" if self.emphasis else f"== {text}")

    def table(self, header, rows):
        first, _, rest = table(header, rows).partition("\n")
        self.say(f"\033[2m{first}\033[0m" if self.emphasis else first)
        self.say(rest)

    def seconds(self):
        return time.monotonic() - self.begin

    @contextlib.contextmanager
    def waiting(self, what):
        """Shows `what` and the elapsed time, on a terminal only."""
        if not self.terminal:
            yield
            return
        done = threading.Event()
        begin = time.monotonic()

        def tick():
            while True:
                self.stream.write(f"\r  ... {what} ({time.monotonic() - begin:.0f} s)\033[K")
                self.stream.flush()
                if done.wait(1):
                    break

        ticker = threading.Thread(target=tick, daemon=True)
        ticker.start()
        try:
            yield
        finally:
            done.set()
            ticker.join()
            self.stream.write("\r\033[K")
            self.stream.flush()
