"""Client of Hyperserve, a daemon for hypersolved Neural ODEs. The README of this package is its quick start."""

from hyperserve import admin, plot
from hyperserve.aio import AsyncClient, AsyncSampleStream
from hyperserve.client import Client, SampleStream
from hyperserve.corrections import export_correction
from hyperserve.errors import (
    AbortedError,
    AlreadyExistsError,
    CancelledError,
    DataLossError,
    DeadlineExceededError,
    FailedPreconditionError,
    HyperserveError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    OutOfRangeError,
    PermissionDeniedError,
    ResourceExhaustedError,
    UnauthenticatedError,
    UnavailableError,
    UnimplementedError,
    UnknownError,
)
from hyperserve.exporting import export
from hyperserve.results import (
    ClassifyResult,
    LogProbGradientResult,
    LogProbResult,
    RowStatus,
    SampleChunk,
    SampleResult,
    SolveInfo,
    SolveJvpResult,
    SolveResult,
    SolveVjpResult,
)
from hyperserve.retry import RetryPolicy

__all__ = [
    "AbortedError",
    "AlreadyExistsError",
    "AsyncClient",
    "AsyncSampleStream",
    "CancelledError",
    "ClassifyResult",
    "Client",
    "DataLossError",
    "DeadlineExceededError",
    "FailedPreconditionError",
    "HyperserveError",
    "InternalError",
    "InvalidArgumentError",
    "LogProbGradientResult",
    "LogProbResult",
    "NotFoundError",
    "OutOfRangeError",
    "PermissionDeniedError",
    "ResourceExhaustedError",
    "RetryPolicy",
    "RowStatus",
    "SampleChunk",
    "SampleResult",
    "SampleStream",
    "SolveInfo",
    "SolveJvpResult",
    "SolveResult",
    "SolveVjpResult",
    "UnauthenticatedError",
    "UnavailableError",
    "UnimplementedError",
    "UnknownError",
    "admin",
    "export",
    "export_correction",
    "plot",
]
