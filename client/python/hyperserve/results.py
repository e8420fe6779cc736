"""What calls return: frozen values, with numpy arrays. Failed rows hold NaN, or -1 as a label. Client says what a state shape is."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable

import numpy as np

from hyperserve.arrays import Array, from_wire, present
from hyperserve.v1 import hyperserve_pb2 as v1


class RowStatus(enum.IntEnum):
    CONVERGED = v1.ROW_STATUS_CONVERGED
    STEP_LIMIT = v1.ROW_STATUS_STEP_LIMIT
    STEP_UNDERFLOW = v1.ROW_STATUS_STEP_UNDERFLOW
    NON_FINITE = v1.ROW_STATUS_NON_FINITE


def per_row(values: Iterable[int], rows: int) -> Array:
    """One value a row, int64 [rows], of a list that has one for each row, or a single one where all agree. Empty, [0]: they are not
    known."""
    array = np.array(list(values), np.int64)
    return np.full(rows, array[0]) if array.size == 1 else array


def bound_per_row(values: Iterable[float], rows: int) -> Array | None:
    """The same of bounds, float64 [rows]; None where there is none."""
    array = np.array(list(values), np.float64)
    if array.size == 0:
        return None
    return np.full(rows, array[0]) if array.size == 1 else array


@dataclasses.dataclass(frozen=True)
class PlanRows:
    """One plan of an automatic plan per row: the rows that it solved, and those whose answer is its own."""

    plan: str
    rows: int
    rows_ended: int


def plan_rows(values: Iterable[v1.PlanRows]) -> list[PlanRows]:
    return [PlanRows(one.plan, one.rows, one.rows_ended) for one in values]


@dataclasses.dataclass(frozen=True)
class SolveInfo:
    """What was done. Arrays have one value a row; of a stream, all but row_status are empty where rows differ."""

    request_id: str
    model: str
    plan: str
    tier: str
    generation: int  # of the correction; 0: classical
    base_digest: str
    nfe: Array
    correction_evaluations: Array
    macs: Array
    row_status: Array  # of RowStatus
    queue_seconds: float
    solve_seconds: float
    engine: str
    device: str
    bucket: int
    engine_reason: str
    calibrated_error: float | None  # of the plan, the mean relative error of z(s1); None: not measured
    plan_reason: str  # why the server chose this plan; empty: it is the one that was named
    # The relative error of z(s1) is at most this in 95 % of rows like the calibrated ones; NaN: the row has no bound. None:
    # not asked for; of a stream see its chunks.
    error_bound: Array | None = None
    plan_rows: list[PlanRows] = dataclasses.field(default_factory=list)  # of an automatic plan per row, in their order
    probes: int = 0  # by which each row's log-density was estimated; 0: it is exact
    log_density_error: Array | None = None  # with probes: the standard error of each row's log-density

    @property
    def failed_rows(self) -> Array:
        """The numbers of the rows that did not converge, from 0 for the first one of the call."""
        return np.flatnonzero(self.row_status != RowStatus.CONVERGED)


@dataclasses.dataclass(frozen=True)
class ClassifyResult:
    labels: Array  # [rows]
    names: list[str]  # [rows]; empty if the model does not name its classes
    top_labels: Array | None  # [rows, k]; None: not asked for, as below
    top_probabilities: Array | None  # [rows, k]
    probabilities: Array | None  # [rows, classes]
    logits: Array | None  # [rows, classes]
    state: Array | None  # [rows, state shape]
    info: SolveInfo


@dataclasses.dataclass(frozen=True)
class SampleResult:
    samples: Array  # [rows, state shape]
    log_density: Array | None  # [rows]; None: not asked for
    info: SolveInfo


@dataclasses.dataclass(frozen=True)
class SampleChunk:
    """Rows first_row, first_row + 1, ... of a stream."""

    first_row: int
    samples: Array  # [rows, state shape]
    log_density: Array | None
    row_status: Array
    generation: int
    nfe: Array
    correction_evaluations: Array
    macs: Array
    error_bound: Array | None = None  # as in SolveInfo
    plan_rows: list[PlanRows] = dataclasses.field(default_factory=list)
    log_density_error: Array | None = None  # as in SolveInfo


@dataclasses.dataclass(frozen=True)
class LogProbResult:
    log_prob: Array  # [rows], float64
    info: SolveInfo


@dataclasses.dataclass(frozen=True)
class SolveResult:
    state: Array  # [rows, state shape]
    saved: Array | None  # [rows, save_at, state shape]; None: not asked for
    info: SolveInfo
    stopped_at: Array | None = None  # with partial_states: the depth of each row's state, float64
    saved_at: Array | None = None  # the depths of `saved`, float64; of a trajectory without save_at those of the model
    outputs: Array | None = None  # of a regressor: [rows, outputs]


@dataclasses.dataclass(frozen=True)
class Prediction:
    """The answer of a regressor or of a trajectory; the other's fields are None."""

    outputs: Array | None  # of a regressor: [rows, outputs]
    states: Array | None  # of a trajectory: [rows, depths, state shape]
    depths: Array | None  # of these states, float64
    info: SolveInfo


@dataclasses.dataclass(frozen=True)
class SolveVjpResult:
    """The cotangent of the end, pulled back."""

    state: Array  # z at the end, [rows, state shape]
    start_gradient: Array  # in the shape of the start
    condition_gradient: Array | None  # of each row's condition, in its shape with [rows, ...]; None: the model has none
    info: SolveInfo


@dataclasses.dataclass(frozen=True)
class SolveJvpResult:
    """The tangents of the start and the condition, pushed forward."""

    state: Array  # z at the end, [rows, state shape]
    state_tangent: Array  # [rows, state shape]
    info: SolveInfo


@dataclasses.dataclass(frozen=True)
class LogProbGradientResult:
    log_prob: Array  # [rows], float64
    gradient: Array  # by the points, [rows, state shape]
    condition_gradient: Array | None  # by each row's condition, in its shape with [rows, ...]; None: the model has none
    info: SolveInfo


def solve_info(info: v1.SolveInfo, rows: int) -> SolveInfo:
    return SolveInfo(
        request_id=info.request_id,
        model=info.model,
        plan=info.plan,
        tier=info.tier,
        generation=info.generation,
        base_digest=info.base_digest,
        nfe=per_row(info.nfe, rows),
        correction_evaluations=per_row(info.correction_evaluations, rows),
        macs=per_row(info.macs, rows),
        row_status=per_row(info.row_status, rows),
        queue_seconds=info.queue_seconds,
        solve_seconds=info.solve_seconds,
        engine=info.engine,
        device=info.device,
        bucket=info.bucket,
        engine_reason=info.engine_reason,
        calibrated_error=info.calibrated_error if info.HasField("calibrated_error") else None,
        plan_reason=info.plan_reason,
        error_bound=bound_per_row(info.error_bound, rows),
        plan_rows=plan_rows(info.plan_rows),
        probes=info.probes,
        log_density_error=bound_per_row(info.log_density_error, rows),
    )


def classify_result(reply: v1.ClassifyReply) -> ClassifyResult:
    return ClassifyResult(
        labels=np.array(reply.labels, np.int64),
        names=list(reply.label_names),
        top_labels=present(reply, "top_labels"),
        top_probabilities=present(reply, "top_probabilities"),
        probabilities=present(reply, "probabilities"),
        logits=present(reply, "logits"),
        state=present(reply, "state"),
        info=solve_info(reply.info, len(reply.labels)),
    )


def sample_result(reply: v1.SampleReply) -> SampleResult:
    samples = from_wire(reply.samples)
    return SampleResult(samples, present(reply, "log_density"), solve_info(reply.info, len(samples)))


def sample_chunk(chunk: v1.SampleChunk) -> SampleChunk:
    return SampleChunk(
        first_row=chunk.first_row,
        samples=from_wire(chunk.samples),
        log_density=present(chunk, "log_density"),
        row_status=per_row(chunk.row_status, chunk.rows),
        generation=chunk.generation,
        nfe=per_row(chunk.nfe, chunk.rows),
        correction_evaluations=per_row(chunk.correction_evaluations, chunk.rows),
        macs=per_row(chunk.macs, chunk.rows),
        error_bound=bound_per_row(chunk.error_bound, chunk.rows),
        plan_rows=plan_rows(chunk.plan_rows),
        log_density_error=bound_per_row(chunk.log_density_error, chunk.rows),
    )


def log_prob_result(reply: v1.LogProbReply) -> LogProbResult:
    log_prob = from_wire(reply.log_prob)
    return LogProbResult(log_prob, solve_info(reply.info, len(log_prob)))


def solve_result(reply: v1.SolveReply) -> SolveResult:
    state = from_wire(reply.state)
    stopped_at = np.asarray(reply.stopped_at, np.float64) if reply.stopped_at else None
    saved_at = np.asarray(reply.saved_at, np.float64) if reply.saved_at else None
    info = solve_info(reply.info, len(state))
    return SolveResult(state, present(reply, "saved"), info, stopped_at, saved_at, present(reply, "outputs"))


def prediction(reply: v1.SolveReply) -> Prediction:
    solved = solve_result(reply)
    if solved.outputs is None and solved.saved is None:
        raise TypeError(f"model {solved.info.model!r} is no regressor and no trajectory: call classify, sample or solve")
    return Prediction(solved.outputs, solved.saved, solved.saved_at, solved.info)


def solve_vjp_result(reply: v1.SolveVjpReply) -> SolveVjpResult:
    state = from_wire(reply.state)
    return SolveVjpResult(
        state, from_wire(reply.start_gradient), present(reply, "condition_gradient"), solve_info(reply.info, len(state))
    )


def solve_jvp_result(reply: v1.SolveJvpReply) -> SolveJvpResult:
    state = from_wire(reply.state)
    return SolveJvpResult(state, from_wire(reply.state_tangent), solve_info(reply.info, len(state)))


def log_prob_gradient_result(reply: v1.LogProbGradientReply) -> LogProbGradientResult:
    log_prob = from_wire(reply.log_prob)
    return LogProbGradientResult(
        log_prob, from_wire(reply.gradient), present(reply, "condition_gradient"), solve_info(reply.info, len(log_prob))
    )
