// Whole solves of MLP flows in the fused kernels (core/kernels/flow/flow.h): host time from call to
// synchronise, median of 200; error against the readable twin in double; share of the floor.
//
//   bench_flow_kernel           peers on the same card: python3 bench/flow_peers.py
//   bench_flow_kernel --json    a JSON object a line, for bench/flow_results.py
//
// The floor is the larger of the products at 798 TFLOP/s (fp16, measured on an H100; three of each
// in tier exact, and of each tangent) and of the field's activations at ten issue slots each (132
// multiprocessors at 1.755 GHz). Under error control it is that of the mean evaluations of a row,
// and the error is that of the method, too. The first line is
// what the machine takes for a kernel that does nothing: no row can be below it.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <random>
#include <string_view>
#include <vector>

#include "bench/device_timing.h"
#include "core/kernels/flow/flow.h"
#include "core/kernels/flow/flow_image.h"
#include "core/kernels/flow/flow_model.h"
#include "core/kernels/flow/flow_rows.h"
#include "core/kernels/flow/flow_twin.h"
#include "core/ode/tableau.h"
#include "core/plan/method.h"
#include "tests/core/kernels/flow_nets.h"

namespace hyperserve::kernels {
namespace {

constexpr int64_t kRowsMax = 1 << 20;
constexpr double kFlopsPerSecond = 798e12;
constexpr double kSlotsPerActivation = 10.0;
constexpr double kSlotsPerSecond = 132 * 4 * 32 * 1.755e9;

__global__ void Nothing() {}

FlowModel PaperFlow(FlowActivation activation) {
  using testing::RandomFlowNet;
  return {.dimensions = 2,
          .field = RandomFlowNet(activation, {FlowInput::kState}, {2, 128, 128, 128, 2}, 1),
          .correction = RandomFlowNet(FlowActivation::kRectifier,
                                      {FlowInput::kState, FlowInput::kSlope1, FlowInput::kStep},
                                      {5, 128, 2}, 2)};
}

double MacsOf(const FlowNet& net) {
  double macs = 0.0;
  for (const FlowLayer& layer : net.layers) macs += static_cast<double>(layer.weight.size());
  return macs;
}

// Of `evaluations` of f and `corrections` of g, with so many products of each.
double FloorSeconds(const FlowModel& model, double evaluations, double corrections,
                    double products) {
  const double macs = MacsOf(model.field) * evaluations + MacsOf(*model.correction) * corrections;
  double activations = 0.0;
  for (size_t l = 0; l + 1 < model.field.layers.size(); ++l) {
    activations += evaluations * model.field.layers[l].outputs;
  }
  return std::max(products * 2.0 * macs / kFlopsPerSecond,
                  activations * kSlotsPerActivation / kSlotsPerSecond);
}

double FloorSeconds(const FlowModel& model, const FlowPlan& plan) {
  return FloorSeconds(model, plan.steps * plan.tableau.solution_stages(),
                      plan.hypersolved ? plan.steps : 0,
                      plan.density == FlowDensity::kNone ? 1 : 1 + kFlowTangents);
}

FlowPrecision PrecisionOf(const FlowPlan&) { return FlowPrecision::kFast; }
FlowPrecision PrecisionOf(const FlowAdaptivePlan&) { return FlowPrecision::kExact; }

// Launches as the engine makes them: of at most 20 ms.
constexpr int64_t kAdaptiveRowsAtOnce = kRowsMax / 3 + 1;
int64_t RowsAtOnce(const FlowPlan&) { return kRowsMax; }
int64_t RowsAtOnce(const FlowAdaptivePlan&) { return kAdaptiveRowsAtOnce; }

template <class Plan>
class Solver {
 public:
  Solver(const FlowModel& model, const Plan& plan) : model_(model), plan_(plan) {
    const FlowImage image = PackFlow(model, PrecisionOf(plan));
    std::byte* bytes = Allocate<std::byte>(image.bytes.size());
    Check(cudaMemcpy(bytes, image.bytes.data(), image.bytes.size(), cudaMemcpyHostToDevice));
    Check(PrepareFlow(image.layout, bytes, &program_));
    Check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  }

  double Seconds(int64_t rows) {
    return MedianSeconds(stream_, [&] { Solve(nullptr, rows); });
  }
  double SecondsOfNothing() {
    return MedianSeconds(stream_, [&] { Nothing<<<1, 32, 0, stream_>>>(); });
  }

  // Frobenius norm of the error over that of z1 - offset z0, on 256 rows of normals; z1 by
  // `reference` of the twin.
  double Error(const FlowPlan& reference, double offset) {
    constexpr int kRows = 256;
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    std::vector<float> z0(2 * kRows), z1(2 * kRows);
    for (float& value : z0) value = normal(random);
    Check(cudaMemcpy(z0_, z0.data(), z0.size() * sizeof(float), cudaMemcpyHostToDevice));
    Solve(z0_, kRows);
    Check(cudaStreamSynchronize(stream_));
    Check(cudaMemcpy(z1.data(), z1_, z1.size() * sizeof(float), cudaMemcpyDeviceToHost));
    double error = 0.0, norm = 0.0;
    for (size_t row = 0; row < kRows; ++row) {
      const std::vector<double> from = {z0[2 * row], z0[2 * row + 1]};
      const std::vector<double> to = TwinSolve(model_, reference, from);
      for (size_t i = 0; i < 2; ++i) {
        error += std::pow(z1[2 * row + i] - to[i], 2.0);
        norm += std::pow(to[i] - offset * from[i], 2.0);
      }
    }
    return std::sqrt(error / norm);
  }

  // Of the rows of the last solve, all of which ended. Adaptive plans only.
  double MeanEvaluations(int64_t rows) {
    std::vector<int32_t> evaluations(static_cast<size_t>(rows));
    std::vector<uint8_t> unfit(static_cast<size_t>(rows));
    Check(cudaMemcpy(evaluations.data(), evaluations_, evaluations.size() * sizeof(int32_t),
                     cudaMemcpyDeviceToHost));
    Check(cudaMemcpy(unfit.data(), unfit_, unfit.size(), cudaMemcpyDeviceToHost));
    if (std::ranges::count(unfit, kRowFits) != rows) {
      std::fprintf(stderr, "bench_flow_kernel: rows that did not end\n");
      std::exit(1);
    }
    return std::accumulate(evaluations.begin(), evaluations.end(), 0.0) / static_cast<double>(rows);
  }

 private:
  void Solve(const float* z0, int64_t rows) {
    for (int64_t begin = 0; begin < rows; begin += RowsAtOnce(plan_)) {
      const FlowRows args{.count = std::min(RowsAtOnce(plan_), rows - begin),
                          .z0 = z0 == nullptr ? nullptr : z0 + 2 * begin,
                          .seed = 7,
                          .first_row = static_cast<uint64_t>(begin),
                          .z1 = z1_ + 2 * begin,
                          .log_density = log_density_ + begin,
                          .evaluations = evaluations_ + begin,
                          .unfit = unfit_ + begin};
      Check(SolveFlow(program_, plan_, args, stream_));
    }
  }

  FlowModel model_;
  const Plan plan_;
  FlowProgram program_;
  cudaStream_t stream_ = nullptr;
  float* z0_ = Allocate<float>(2 * kRowsMax);
  float* z1_ = Allocate<float>(2 * kRowsMax);
  float* log_density_ = Allocate<float>(kRowsMax);
  int32_t* evaluations_ = Allocate<int32_t>(kRowsMax);
  uint8_t* unfit_ = Allocate<uint8_t>(kRowsMax);
};

enum class Form { kTable, kJson };

struct Work {
  Form form;
  const char* name;
  FlowActivation activation;
  const char* plan_name;
};

struct Measured {
  const char* tier;
  int64_t rows;
  double seconds, floor_seconds, z_error;
  std::optional<double> f_error;
};

void Print(const Work& of, const Measured& row) {
  const bool json = of.form == Form::kJson;
  std::printf(
      json ? "{\"activation\": \"%s\", \"plan\": \"%s\", \"tier\": \"%s\", \"rows\": %lld, "
             "\"ms\": %.4f, \"floor_ms\": %.4f, \"share_of_floor\": %.2f, \"error_of_z\": %.1e"
           : "%-9s %-19s %-5s %8lld %9.4f %9.4f %6.2f   %.1e",
      of.name, of.plan_name, row.tier, static_cast<long long>(row.rows), row.seconds * 1e3,
      row.floor_seconds * 1e3, row.floor_seconds / row.seconds, row.z_error);
  if (row.f_error) std::printf(json ? ", \"error_of_f\": %.1e" : "  %.1e", *row.f_error);
  std::printf(json ? "}\n" : "\n");
}

constexpr int64_t kRowCounts[] = {1024, 65536, kRowsMax};

void Run(const Work& of, const FlowPlan& plan) {
  const FlowModel model = PaperFlow(of.activation);
  Solver<FlowPlan> solver(model, plan);
  // An Euler step of one on [0, 1] is z + f(z).
  const double f_error = Solver<FlowPlan>(model, {}).Error({}, 1.0);
  const double z_error = solver.Error(plan, 0.0);
  for (const int64_t rows : kRowCounts) {
    Print(of, {.tier = "fast",
               .rows = rows,
               .seconds = solver.Seconds(rows),
               .floor_seconds = static_cast<double>(rows) * FloorSeconds(model, plan),
               .z_error = z_error,
               .f_error = f_error});
  }
}

// No plan here makes one evaluation of f, so its error is not known.
void Run(const Work& of, const FlowAdaptivePlan& plan) {
  const FlowModel model = PaperFlow(of.activation);
  Solver<FlowAdaptivePlan> solver(model, plan);
  const double z_error = solver.Error({.tableau = kDopri5Tableau, .steps = 64}, 0.0);
  for (const int64_t rows : kRowCounts) {
    const double seconds = solver.Seconds(rows);
    const double floor = FloorSeconds(model, solver.MeanEvaluations(rows), 0.0, 3.0);
    Print(of, {.tier = "exact",
               .rows = rows,
               .seconds = seconds,
               .floor_seconds = static_cast<double>(rows) * floor,
               .z_error = z_error,
               .f_error = std::nullopt});
  }
}

void PrintHead(Form form) {
  cudaDeviceProp card = {};
  Check(cudaGetDeviceProperties(&card, 0));
  const double nothing =
      Solver<FlowPlan>(PaperFlow(FlowActivation::kSoftplus), {}).SecondsOfNothing() * 1e3;
  if (form == Form::kJson) {
    std::printf("{\"card\": \"%s\", \"empty_kernel_ms\": %.4f}\n", card.name, nothing);
    return;
  }
  std::printf("%s, flow 2-128-128-128-2, noise made in the kernel\n", card.name);
  std::printf("a kernel that does nothing: %.4f ms\n", nothing);
  std::printf(
      "field     plan                tier      rows        ms  floor ms  share  error of f, of "
      "z\n");
}

void RunAll(Form form) {
  PrintHead(form);
  const FlowPlan hyper_heun{.tableau = TableauFor({.method = Method::kHeun}), .hypersolved = true};
  FlowPlan with_density = hyper_heun;
  with_density.density = FlowDensity::kStepMap;
  const FlowPlan divergence{.tableau = hyper_heun.tableau, .density = FlowDensity::kDivergence};
  const auto softplus = [&](const char* plan_name) {
    return Work{form, "softplus", FlowActivation::kSoftplus, plan_name};
  };
  Run(softplus("hyper_heun:1"), hyper_heun);
  Run(softplus("hyper_heun:1, log p"), with_density);
  Run(softplus("heun:1, log p"), divergence);
  Run(softplus("rk4:4"), FlowPlan{.tableau = kRk4Tableau, .steps = 4});
  Run(softplus("dopri5:1e-5"), FlowAdaptivePlan{});
  Run({form, "tanh", FlowActivation::kTanh, "hyper_heun:1"}, hyper_heun);
  Run({form, "silu", FlowActivation::kSilu, "hyper_heun:1"}, hyper_heun);
  Run({form, "relu", FlowActivation::kRectifier, "hyper_heun:1"}, hyper_heun);
}

}  // namespace
}  // namespace hyperserve::kernels

int main(int argc, char** argv) {
  using hyperserve::kernels::Form;
  const bool json = argc > 1 && std::string_view(argv[1]) == "--json";
  hyperserve::kernels::RunAll(json ? Form::kJson : Form::kTable);
  return 0;
}
