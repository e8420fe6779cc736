"""A stream of samples while it arrives: what both clients' streams know of it."""

from __future__ import annotations

import dataclasses

import numpy as np

from hyperserve import results
from hyperserve.arrays import Array
from hyperserve.errors import InternalError
from hyperserve.v1 import hyperserve_pb2 as v1
from hyperserve.wire import message

_COUNTS = ("nfe", "correction_evaluations", "macs")


class StreamLeft:
    """The rows of a stream that have not arrived; the request of the next attempt asks for these."""

    def __init__(self, sample: v1.SampleRequest, chunk_rows: int) -> None:
        self.request = message(v1.SampleStreamRequest, sample=sample, chunk_rows=chunk_rows)
        self.request_id = sample.options.request_id
        self.rows = sample.rows
        self._summary: v1.SolveInfo | None = None  # after a resumption that of the last part only
        self._row_status: list[Array] = []  # a byte a row
        self._counts: dict[str, set[int]] = {name: set() for name in _COUNTS}  # the different values of the rows

    @property
    def done(self) -> int:
        return self.rows - self.request.sample.rows

    @property
    def resumable(self) -> bool:
        return self.request.sample.rows > 0

    @property
    def info(self) -> results.SolveInfo | None:
        """The summary of all rows; None before the last chunk."""
        if self._summary is None:
            return None
        counts = {name: results.per_row(one if len(one) == 1 else (), self.rows) for name, one in self._counts.items()}
        return dataclasses.replace(
            results.solve_info(self._summary, self.rows),
            row_status=np.concatenate(self._row_status),
            nfe=counts["nfe"],
            correction_evaluations=counts["correction_evaluations"],
            macs=counts["macs"],
        )

    def take(self, chunk: v1.SampleChunk) -> None:
        """Raises where the chunk is not the next one."""
        left = self.request.sample
        if chunk.first_row != left.first_row or not 0 <= chunk.rows <= left.rows:
            words = f"the stream sent rows from {chunk.first_row} where {left.first_row} was next"
            raise InternalError(words, self.request_id)
        row_status = results.per_row(chunk.row_status, chunk.rows)
        if len(row_status) != chunk.rows:
            raise InternalError(f"the stream sent {len(row_status)} statuses for {chunk.rows} rows", self.request_id)
        self._row_status.append(row_status.astype(np.int8))
        for name, values in self._counts.items():
            values.update(getattr(chunk, name))
        left.first_row += chunk.rows
        left.rows -= chunk.rows
        self._keep_terms_left()
        left.options.generation = chunk.generation
        if chunk.HasField("summary"):
            self._summary = chunk.summary

    def _keep_terms_left(self) -> None:
        """Of what each row brings, condition and guidance, the rows that are left; one for all rows stays."""
        left = self.request.sample
        if left.rows == 0:
            return
        for brought in (left.options.condition, left.options.guidance):
            there = brought.shape[0] if brought.shape else 0
            if there > 1 and there > left.rows:
                row_bytes = len(brought.data) // there
                brought.data = brought.data[row_bytes * (there - left.rows) :]
                brought.shape[0] = left.rows

    def end(self) -> None:
        """Raises where rows or the summary are missing."""
        if self.resumable or self._summary is None:
            raise InternalError(f"the stream ended {self.request.sample.rows} rows early", self.request_id)


class Progress:
    """`done` of `rows` samples have arrived. `info` is the summary, after the last chunk."""

    def __init__(self, left: StreamLeft) -> None:
        self._left = left

    @property
    def rows(self) -> int:
        return self._left.rows

    @property
    def done(self) -> int:
        return self._left.done

    @property
    def info(self) -> results.SolveInfo | None:
        return self._left.info
