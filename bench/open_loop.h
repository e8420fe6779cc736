// Loads of calls for the programs here: callers that wait for each answer, and calls that come at a
// rate of their own, whatever became of the ones before. Not thread-safe.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <functional>
#include <vector>

namespace hyperserve {

// Begins one call and returns; `done` is called once, with its status, on any thread. What the call
// needs beside the context belongs to the function.
using BeginCall =
    std::function<void(grpc::ClientContext* context, std::function<void(grpc::Status)> done)>;

struct SeenCall {
  std::chrono::steady_clock::time_point begun;
  double seconds = 0;
  grpc::StatusCode code = grpc::OK;
};

// Answers a second, by `callers` that wait for each answer.
double ClosedLoop(const BeginCall& begin, int callers, double seconds);

// Poisson arrivals at `rate` a second; returns what became of each call, in no order.
std::vector<SeenCall> OpenLoop(const BeginCall& begin, double rate, double seconds,
                               std::chrono::milliseconds deadline);

// The value below which this share of the values lies; 0 where there are none.
double Percentile(std::vector<double> values, double share);

}  // namespace hyperserve
