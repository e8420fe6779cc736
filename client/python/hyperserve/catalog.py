"""What the daemon says of itself and its models: frozen values."""

from __future__ import annotations

import dataclasses

from hyperserve.v1 import hyperserve_pb2 as v1


@dataclasses.dataclass(frozen=True)
class Correction:
    method: str
    direction: str
    generation: int  # the active one; 0: none
    previous_generation: int  # rollback returns to it; 0: none
    eps_range: tuple[float, ...]  # the smallest and the largest step size that it was trained on
    steps: tuple[int, ...]  # the K that it claims to win at
    macs: int  # of one evaluation on one row
    problem: str  # why no generation is served; empty: no problem
    provenance: dict[str, str]


@dataclasses.dataclass(frozen=True)
class Model:
    name: str
    kind: str  # "classifier", "flow", "regressor", "trajectory"
    base_digest: str
    input_shape: tuple[int, ...]
    default_plan: str
    corrections: tuple[Correction, ...]
    problem: str  # why the calibration is not used; empty: no problem
    default_plan_problem: str  # why another plan stands in for the default; empty: it is served
    condition_shape: tuple[int, ...] = ()  # of one row; empty: the model takes no condition
    no_condition: tuple[float, ...] = ()  # the condition that stands for none; empty: no guidance
    brings_code: bool = False  # its field is code (field.pt2), which runs with all rights of the daemon


@dataclasses.dataclass(frozen=True)
class MeasuredPlan:
    """A row of calibration.json; costs are per row."""

    plan: str
    error_mean: float
    error_max: float
    agreement: float  # classifiers: share of rows with the reference's label
    nfe: float
    correction_evaluations: float
    macs: float
    seconds_per_row: float
    wins: bool  # False: a classical plan of its MACs, or a hypersolved one of fewer evaluations, errs no more
    error_p99: float  # 99 % of the rows have at most this error
    log_density_error: float | None  # flows: mean error of the log-density of samples, in nats; None: not measured
    heavy_tail: bool  # its error_p99 is above that of the best classical plan of its MACs
    bound_factor: float | None  # bound of a row's error over its distance; None: its rows get no bound
    times: tuple[tuple[int, float], ...]  # (rows, seconds) of batches on the device that serves


@dataclasses.dataclass(frozen=True)
class ModelDetail:
    model: Model
    spec_json: str
    plans: tuple[MeasuredPlan, ...]
    labels: tuple[str, ...]
    state_shape: tuple[int, ...]
    field_macs: int
    stem_macs: int
    head_macs: int
    calibration_device: str


@dataclasses.dataclass(frozen=True)
class Device:
    name: str
    description: str
    memory_bytes: int


@dataclasses.dataclass(frozen=True)
class Limit:
    name: str
    value: str
    unit: str
    reason: str


@dataclasses.dataclass(frozen=True)
class ServerInfo:
    version: str
    commit: str
    devices: tuple[Device, ...]
    engines: tuple[str, ...]
    limits: tuple[Limit, ...]
    uptime_seconds: float


def _correction(info: v1.CorrectionInfo) -> Correction:
    return Correction(
        method=info.method,
        direction=info.direction,
        generation=info.generation,
        previous_generation=info.previous_generation,
        eps_range=tuple(info.eps_range),
        steps=tuple(info.steps),
        macs=info.macs,
        problem=info.problem,
        provenance=dict(info.provenance),
    )


def _model(summary: v1.ModelSummary) -> Model:
    return Model(
        name=summary.name,
        kind=summary.kind,
        base_digest=summary.base_digest,
        input_shape=tuple(summary.input_shape),
        default_plan=summary.default_plan,
        corrections=tuple(_correction(info) for info in summary.corrections),
        problem=summary.problem,
        default_plan_problem=summary.default_plan_problem,
        condition_shape=tuple(summary.condition_shape),
        no_condition=tuple(summary.no_condition),
        brings_code=summary.brings_code,
    )


def _measured(info: v1.PlanInfo) -> MeasuredPlan:
    return MeasuredPlan(
        plan=info.plan,
        error_mean=info.error_mean,
        error_max=info.error_max,
        agreement=info.agreement,
        nfe=info.nfe,
        correction_evaluations=info.correction_evaluations,
        macs=info.macs,
        seconds_per_row=info.seconds_per_row,
        wins=info.wins,
        error_p99=info.error_p99,
        log_density_error=info.log_density_error if info.HasField("log_density_error") else None,
        heavy_tail=info.heavy_tail,
        bound_factor=info.bound_factor if info.HasField("bound_factor") else None,
        times=tuple((time.rows, time.seconds) for time in info.times),
    )


def models(reply: v1.ListModelsReply) -> list[Model]:
    return [_model(summary) for summary in reply.models]


def model_detail(reply: v1.GetModelReply) -> ModelDetail:
    return ModelDetail(
        model=_model(reply.model),
        spec_json=reply.spec_json,
        plans=tuple(_measured(info) for info in reply.plans),
        labels=tuple(reply.labels),
        state_shape=tuple(reply.state_shape),
        field_macs=reply.field_macs,
        stem_macs=reply.stem_macs,
        head_macs=reply.head_macs,
        calibration_device=reply.calibration_device,
    )


def server_info(reply: v1.GetServerInfoReply) -> ServerInfo:
    return ServerInfo(
        version=reply.version,
        commit=reply.commit,
        devices=tuple(Device(d.name, d.description, d.memory_bytes) for d in reply.devices),
        engines=tuple(reply.engines),
        limits=tuple(Limit(one.name, one.value, one.unit, one.reason) for one in reply.limits),
        uptime_seconds=reply.uptime_seconds,
    )
