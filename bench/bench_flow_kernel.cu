// Whole solves of MLP flows in the fused kernel (core/kernels/flow/flow.h): host time from call to
// synchronise, median of 200; error against the readable twin in double; share of the floor.
//
//   bench_flow_kernel           peers on the same card: python3 bench/flow_peers.py
//   bench_flow_kernel --json    a JSON object a line, for bench/flow_results.py
//
// The floor is the larger of the products at 798 TFLOP/s (fp16, measured on an H100) and of the
// field's activations at ten issue slots each (132 multiprocessors at 1.755 GHz). The first line is
// what the machine takes for a kernel that does nothing: no row can be below it.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string_view>
#include <vector>

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

constexpr int kRepeats = 200, kWarmUps = 50;
constexpr int64_t kRowsMax = 1 << 20;
constexpr double kFlopsPerSecond = 798e12;
constexpr double kSlotsPerActivation = 10.0;
constexpr double kSlotsPerSecond = 132 * 4 * 32 * 1.755e9;

__global__ void Nothing() {}

void Check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "bench_flow_kernel: %s\n", cudaGetErrorString(error));
  std::exit(1);
}

template <class T>
T* Allocate(size_t count) {
  void* memory = nullptr;
  Check(cudaMalloc(&memory, count * sizeof(T)));
  return static_cast<T*>(memory);
}

// Host time from call to synchronise: the median.
template <class Launch>
double MedianSeconds(cudaStream_t stream, const Launch& launch) {
  std::vector<double> seconds;
  for (int i = 0; i < kWarmUps + kRepeats; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    launch();
    Check(cudaStreamSynchronize(stream));
    const auto end = std::chrono::steady_clock::now();
    if (i >= kWarmUps) seconds.push_back(std::chrono::duration<double>(end - begin).count());
  }
  std::nth_element(seconds.begin(), seconds.begin() + kRepeats / 2, seconds.end());
  return seconds[kRepeats / 2];
}

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

double FloorSeconds(const FlowModel& model, const FlowPlan& plan, int64_t rows) {
  const double evaluations = plan.steps * plan.tableau.solution_stages();
  const double corrections = plan.hypersolved ? plan.steps : 0.0;
  const double passes = plan.density == FlowDensity::kNone ? 1.0 : 1.0 + kFlowTangents;
  const double macs =
      passes * (MacsOf(model.field) * evaluations + MacsOf(*model.correction) * corrections);
  double activations = 0.0;
  for (size_t l = 0; l + 1 < model.field.layers.size(); ++l) {
    activations += evaluations * model.field.layers[l].outputs;
  }
  return static_cast<double>(rows) * std::max(2.0 * macs / kFlopsPerSecond,
                                              activations * kSlotsPerActivation / kSlotsPerSecond);
}

class Solver {
 public:
  explicit Solver(const FlowModel& model) : model_(model) {
    const FlowImage image = PackFlow(model);
    std::byte* bytes = Allocate<std::byte>(image.bytes.size());
    Check(cudaMemcpy(bytes, image.bytes.data(), image.bytes.size(), cudaMemcpyHostToDevice));
    Check(PrepareFlow(image.layout, bytes, &program_));
    Check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  }

  double Seconds(const FlowPlan& plan, int64_t rows) {
    return MedianSeconds(stream_, [&] { Solve(plan, nullptr, rows); });
  }
  double SecondsOfNothing() {
    return MedianSeconds(stream_, [&] { Nothing<<<1, 32, 0, stream_>>>(); });
  }

  // Frobenius norm of the error over that of z1 - offset z0, on 256 rows of normals.
  double Error(const FlowPlan& plan, double offset) {
    constexpr int kRows = 256;
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    std::vector<float> z0(2 * kRows), z1(2 * kRows);
    for (float& value : z0) value = normal(random);
    Check(cudaMemcpy(z0_, z0.data(), z0.size() * sizeof(float), cudaMemcpyHostToDevice));
    Solve(plan, z0_, kRows);
    Check(cudaStreamSynchronize(stream_));
    Check(cudaMemcpy(z1.data(), z1_, z1.size() * sizeof(float), cudaMemcpyDeviceToHost));
    double error = 0.0, norm = 0.0;
    for (size_t row = 0; row < kRows; ++row) {
      const std::vector<double> from = {z0[2 * row], z0[2 * row + 1]};
      const std::vector<double> to = TwinSolve(model_, plan, from);
      for (size_t i = 0; i < 2; ++i) {
        error += std::pow(z1[2 * row + i] - to[i], 2.0);
        norm += std::pow(to[i] - offset * from[i], 2.0);
      }
    }
    return std::sqrt(error / norm);
  }

 private:
  void Solve(const FlowPlan& plan, const float* z0, int64_t rows) {
    const FlowRows args{.count = rows,
                        .z0 = z0,
                        .seed = 7,
                        .z1 = z1_,
                        .log_density = log_density_,
                        .unfit = unfit_};
    Check(SolveFlow(program_, plan, args, stream_));
  }

  FlowModel model_;
  FlowProgram program_;
  cudaStream_t stream_ = nullptr;
  float* z0_ = Allocate<float>(2 * kRowsMax);
  float* z1_ = Allocate<float>(2 * kRowsMax);
  float* log_density_ = Allocate<float>(kRowsMax);
  uint8_t* unfit_ = Allocate<uint8_t>(kRowsMax);
};

enum class Form { kTable, kJson };

constexpr const char* FormatOf(Form form) {
  return form == Form::kTable
             ? "%-9s %-19s %8lld %9.4f %9.4f %6.2f   %.1e  %.1e\n"
             : "{\"activation\": \"%s\", \"plan\": \"%s\", \"rows\": %lld, \"ms\": %.4f, "
               "\"floor_ms\": %.4f, \"share_of_floor\": %.2f, \"error_of_f\": %.1e, "
               "\"error_of_z\": %.1e}\n";
}

void Run(Form form, const char* name, FlowActivation activation, const char* plan_name,
         const FlowPlan& plan) {
  const FlowModel model = PaperFlow(activation);
  Solver solver(model);
  // An Euler step of one on [0, 1] is z + f(z).
  const double f_error = solver.Error(FlowPlan{}, 1.0), z_error = solver.Error(plan, 0.0);
  for (const int64_t rows : {int64_t{1024}, int64_t{65536}, kRowsMax}) {
    const double seconds = solver.Seconds(plan, rows), floor = FloorSeconds(model, plan, rows);
    std::printf(FormatOf(form), name, plan_name, static_cast<long long>(rows), seconds * 1e3,
                floor * 1e3, floor / seconds, f_error, z_error);
  }
}

void PrintHead(Form form) {
  cudaDeviceProp card = {};
  Check(cudaGetDeviceProperties(&card, 0));
  const double nothing = Solver(PaperFlow(FlowActivation::kSoftplus)).SecondsOfNothing() * 1e3;
  if (form == Form::kJson) {
    std::printf("{\"card\": \"%s\", \"empty_kernel_ms\": %.4f}\n", card.name, nothing);
    return;
  }
  std::printf("%s, flow 2-128-128-128-2, tier fast, noise made in the kernel\n", card.name);
  std::printf("a kernel that does nothing: %.4f ms\n", nothing);
  std::printf(
      "field     plan                    rows        ms  floor ms  share  error of f, of z\n");
}

void RunAll(Form form) {
  PrintHead(form);
  const FlowPlan hyper_heun{.tableau = TableauFor({.method = Method::kHeun}), .hypersolved = true};
  Run(form, "softplus", FlowActivation::kSoftplus, "hyper_heun:1", hyper_heun);
  FlowPlan with_density = hyper_heun;
  with_density.density = FlowDensity::kStepMap;
  Run(form, "softplus", FlowActivation::kSoftplus, "hyper_heun:1, log p", with_density);
  Run(form, "softplus", FlowActivation::kSoftplus, "heun:1, log p",
      {.tableau = hyper_heun.tableau, .density = FlowDensity::kDivergence});
  Run(form, "softplus", FlowActivation::kSoftplus, "rk4:4", {.tableau = kRk4Tableau, .steps = 4});
  Run(form, "tanh", FlowActivation::kTanh, "hyper_heun:1", hyper_heun);
  Run(form, "silu", FlowActivation::kSilu, "hyper_heun:1", hyper_heun);
  Run(form, "relu", FlowActivation::kRectifier, "hyper_heun:1", hyper_heun);
}

}  // namespace
}  // namespace hyperserve::kernels

int main(int argc, char** argv) {
  using hyperserve::kernels::Form;
  const bool json = argc > 1 && std::string_view(argv[1]) == "--json";
  hyperserve::kernels::RunAll(json ? Form::kJson : Form::kTable);
  return 0;
}
