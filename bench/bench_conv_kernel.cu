// Whole solves of convolutional fields in the fused kernel (core/kernels/conv/conv.h): host time
// from call to synchronise, median of 200; error against the readable twin in double; share of the
// floor. The net is the paper's for MNIST: f 32-46-46-32 and g 65-32-32-32, 28x28; the tables are
// maps over the channels.
//
//   bench_conv_kernel           peers on the same card: python3 bench/conv_peers.py
//   bench_conv_kernel --json    a JSON object a line, for bench/conv_results.py
//   bench_conv_kernel ROWS      a few solves of so many rows, for ncu
//   bench_conv_kernel ROWS SIZE the same of images of SIZE x SIZE, for compute-sanitizer
//
// The floor is that of the products at 798 TFLOP/s (fp16, measured on an H100).
#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/device_timing.h"
#include "core/kernels/conv/conv.h"
#include "core/kernels/conv/conv_image.h"
#include "core/kernels/conv/conv_model.h"
#include "core/kernels/conv/conv_rows.h"
#include "core/kernels/conv/conv_twin.h"
#include "core/ode/tableau.h"
#include "core/plan/method.h"
#include "tests/core/kernels/conv_nets.h"

namespace hyperserve::kernels {
namespace {

constexpr int64_t kRowsMax = 1024;
constexpr double kFlopsPerSecond = 798e12;
constexpr float kSteepGain = 3.0f;  // of conv_peers.py too

ConvModel PaperNet(int size = 28) {
  return testing::RandomConvModel(32, size, size, {46, 46}, {32, 32}, 1);
}

// The field alone, which is solved by a table of so many evaluations.
ConvModel PaperNetWithTable(int evaluations, int size = 28) {
  ConvModel model = PaperNet(size);
  model.correction.reset();
  model.table = testing::RandomConvTable(32, evaluations, 2);
  return model;
}

// With a net at half the resolution that has so many hidden channels and three layers of 3x3. That
// of learned:6 in models/fashion has 64, the least such nets had 32.
ConvModel PaperNetWithReadout(int evaluations, int hidden, int size = 28) {
  ConvModel model = PaperNetWithTable(evaluations, size);
  model.readout = testing::RandomConvReadout(32, evaluations, hidden, 3, 3);
  return model;
}

// Steep enough to take as many evaluations as `fashion` does, which is 34 in the mean.
ConvModel SteepNet() {
  ConvModel model = PaperNet();
  model.correction.reset();
  model.field = testing::RandomConvNet(ConvActivation::kSoftplus, {ConvInput::kBefore}, model,
                                       {46, 46}, 1, kSteepGain);
  return model;
}

double MacsOf(const ConvModel& model, const ConvNet& net) {
  double macs = 0.0;
  for (const ConvLayer& layer : net) macs += static_cast<double>(layer.weight.size());
  return macs * model.height * model.width;
}

// Of a row.
double MacsOf(const ConvModel& model, const ConvPlan& plan) {
  if (model.table) {
    auto macs = static_cast<double>(model.table->coefficients.size());
    if (model.readout) {
      macs += static_cast<double>(model.readout->down.size() + model.readout->up.size()) / 4;
      for (const ConvLayer& layer : model.readout->middle) {
        macs += static_cast<double>(layer.weight.size()) / 4;
      }
    }
    return MacsOf(model, model.field) * model.table->evaluations() +
           macs * model.height * model.width;
  }
  const double evaluations = plan.steps * plan.tableau.solution_stages();
  const double of_corrections =
      plan.hypersolved ? plan.steps * MacsOf(model, *model.correction) : 0;
  return MacsOf(model, model.field) * evaluations + of_corrections;
}

double FloorSeconds(double macs, int64_t rows) {
  return 2.0 * static_cast<double>(rows) * macs / kFlopsPerSecond;
}

class Solver {
 public:
  explicit Solver(const ConvModel& model)
      : model_(model), elements_(static_cast<size_t>(model.channels * model.height * model.width)) {
    const ConvImage image = PackConv(model);
    std::byte* bytes = Allocate<std::byte>(image.bytes.size());
    Check(cudaMemcpy(bytes, image.bytes.data(), image.bytes.size(), cudaMemcpyHostToDevice));
    Check(PrepareConv(image.layout, bytes, &program_));
    Check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    z0_ = Allocate<float>(kRowsMax * elements_);
    z1_ = Allocate<float>(kRowsMax * elements_);
    scratch_ = Allocate<std::byte>(std::max(ConvScratchBytes(program_, ConvAdaptivePlan{}),
                                            ConvScratchBytes(program_, ConvPlan{})));
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    host_.resize(kRowsMax * elements_);
    for (float& value : host_) value = normal(random);
    Check(cudaMemcpy(z0_, host_.data(), host_.size() * sizeof(float), cudaMemcpyHostToDevice));
  }

  const ConvModel& model() const { return model_; }
  const ConvProgram& program() const { return program_; }

  double Seconds(const ConvTask& task, int64_t rows, int blocks = 0) {
    return MedianSeconds(stream_, [&] { Solve(task, rows, blocks); });
  }

  std::vector<float> Ends(const ConvTask& task, int64_t rows, int blocks = 0) {
    std::vector<float> z1(static_cast<size_t>(rows) * elements_);
    Check(cudaMemsetAsync(z1_, 0xff, z1.size() * sizeof(float), stream_));
    Solve(task, rows, blocks);
    Check(cudaStreamSynchronize(stream_));
    Check(cudaMemcpy(z1.data(), z1_, z1.size() * sizeof(float), cudaMemcpyDeviceToHost));
    return z1;
  }

  // Evaluations of f of a row, the mean.
  double Evaluations(const ConvAdaptivePlan& plan, int64_t rows) {
    std::vector<int32_t> counts(static_cast<size_t>(rows));
    Ends(plan, rows);
    Check(cudaMemcpy(counts.data(), evaluations_, counts.size() * sizeof(int32_t),
                     cudaMemcpyDeviceToHost));
    double sum = 0.0;
    for (const int32_t count : counts) sum += count;
    return sum / static_cast<double>(rows);
  }

  // Frobenius norm of the error over that of z1 - offset z0, on one row of normals: the twin takes
  // seconds for it.
  template <class Plan = ConvPlan>
  double Error(const Plan& plan, double offset) {
    constexpr int64_t kRows = 1;
    const std::vector<float> z1 = Ends(plan, kRows);
    double error = 0.0, norm = 0.0;
    for (size_t row = 0; row < kRows; ++row) {
      const std::vector<double> from(host_.begin() + row * elements_,
                                     host_.begin() + (row + 1) * elements_);
      const std::vector<double> to = EndOf(TwinConvSolve(model_, plan, from));
      for (size_t i = 0; i < elements_; ++i) {
        error += std::pow(z1[row * elements_ + i] - to[i], 2.0);
        norm += std::pow(to[i] - offset * from[i], 2.0);
      }
    }
    return std::sqrt(error / norm);
  }

 private:
  static std::vector<double> EndOf(std::vector<double> z) { return z; }
  static std::vector<double> EndOf(TwinConvEnd end) { return std::move(end.z); }

  void Solve(const ConvTask& task, int64_t rows, int blocks) {
    const ConvRows args{.count = rows,
                        .z0 = z0_,
                        .z1 = z1_,
                        .unfit = unfit_,
                        .evaluations = evaluations_,
                        .scratch = scratch_};
    Check(SolveConv(program_, task, args, stream_, blocks));
  }

  ConvModel model_;
  size_t elements_;
  ConvProgram program_;
  cudaStream_t stream_ = nullptr;
  std::vector<float> host_;
  float* z0_ = nullptr;
  float* z1_ = nullptr;
  void* scratch_ = nullptr;
  uint8_t* unfit_ = Allocate<uint8_t>(kRowsMax);
  int32_t* evaluations_ = Allocate<int32_t>(kRowsMax);
};

enum class Form { kTable, kJson };

constexpr const char* FormatOf(Form form) {
  return form == Form::kTable
             ? "%-16s %6lld %9.4f %9.4f %6.2f   %.1e  %.1e"
             : "{\"plan\": \"%s\", \"rows\": %lld, \"ms\": %.4f, \"floor_ms\": %.4f, "
               "\"share_of_floor\": %.2f, \"error_of_f\": %.1e, \"error_of_z\": %.1e";
}

void PrintByBlocks(Solver& solver, const ConvTask& task, int64_t rows) {
  for (size_t i = 0; i < kConvBlocks.size(); ++i) {
    if (solver.program().images_at_once[i] == 0) continue;
    std::printf("  %d: %.4f", kConvBlocks[i], 1e3 * solver.Seconds(task, rows, kConvBlocks[i]));
  }
}

// f_error: of one evaluation of f.
void Run(Form form, Solver& solver, double f_error, const char* name, const ConvPlan& plan) {
  const double z_error = solver.Error(plan, 0.0);
  for (const int64_t rows : {int64_t{1}, int64_t{32}, int64_t{256}, kRowsMax}) {
    const double seconds = solver.Seconds(plan, rows);
    const double floor = FloorSeconds(MacsOf(solver.model(), plan), rows);
    std::printf(FormatOf(form), name, static_cast<long long>(rows), seconds * 1e3, floor * 1e3,
                floor / seconds, f_error, z_error);
    if (form == Form::kTable) PrintByBlocks(solver, plan, rows);
    std::printf("%s\n", form == Form::kJson ? "}" : "");
  }
}

// The error of z is that of z1 - z0 here.
void RunAdaptive(Form form, Solver& solver, double f_error, const char* name,
                 const ConvAdaptivePlan& plan) {
  const double z_error = solver.Error(plan, 1.0);
  for (const int64_t rows : {int64_t{1}, int64_t{32}, int64_t{256}}) {
    const double seconds = solver.Seconds(plan, rows);
    const double evaluations = solver.Evaluations(plan, rows);
    const double floor =
        FloorSeconds(MacsOf(solver.model(), solver.model().field) * evaluations, rows);
    std::printf(FormatOf(form), name, static_cast<long long>(rows), seconds * 1e3, floor * 1e3,
                floor / seconds, f_error, z_error);
    std::printf(form == Form::kTable ? "  NFE %.1f" : ", \"evaluations_mean\": %.1f}", evaluations);
    if (form == Form::kTable) PrintByBlocks(solver, plan, rows);
    std::printf("\n");
  }
}

void PrintHead(Form form, const Solver& solver) {
  cudaDeviceProp card = {};
  Check(cudaGetDeviceProperties(&card, 0));
  if (form == Form::kJson) {
    std::printf("{\"card\": \"%s\"}\n", card.name);
    return;
  }
  std::printf("%s, net 32-46-46-32 of 3x3 convolutions, 28x28, tier fast\n", card.name);
  std::printf("images at once with so many blocks to each:");
  for (size_t i = 0; i < kConvBlocks.size(); ++i) {
    std::printf(" %d: %d", kConvBlocks[i], solver.program().images_at_once[i]);
  }
  std::printf("\n");
  std::printf(
      "plan               rows        ms  floor ms  share  error of f, of z  ms by blocks\n");
}

void RunAll(Form form) {
  Solver solver(PaperNet());
  PrintHead(form, solver);
  // An Euler step of one on [0, 1] is z + f(z).
  const double f_error = solver.Error({}, 1.0);
  Run(form, solver, f_error, "hyper_euler:2", {.steps = 2, .hypersolved = true});
  Run(form, solver, f_error, "euler:1", {});
  Run(form, solver, f_error, "rk4:2", {.tableau = kRk4Tableau, .steps = 2});
  Solver with_table(PaperNetWithTable(3));
  Run(form, with_table, f_error, "learned:3", {});
  Solver with_readout(PaperNetWithReadout(3, 32));
  Run(form, with_readout, f_error, "learned:3 with g", {});
  Solver with_wide_readout(PaperNetWithReadout(6, 64));
  Run(form, with_wide_readout, f_error, "learned:6 with g", {});
  Solver steep(SteepNet());
  RunAdaptive(form, steep, steep.Error({}, 1.0), "dopri5:1e-4", {.rtol = 1e-4, .atol = 1e-4});
}

// One solve for each number of blocks: for compute-sanitizer and ncu.
void RunFew(int64_t rows, int size) {
  Solver solver(PaperNet(size));
  Solver with_table(PaperNetWithTable(3, size));
  Solver with_readout(PaperNetWithReadout(3, 32, size));
  Solver with_wide_readout(PaperNetWithReadout(6, 64, size));
  for (size_t i = 0; i < kConvBlocks.size(); ++i) {
    const int blocks = kConvBlocks[i];
    if (solver.program().images_at_once[i] == 0) continue;
    solver.Ends(ConvPlan{.steps = 2, .hypersolved = true}, rows, blocks);
    solver.Ends(ConvAdaptivePlan{.rtol = 1.0, .atol = 1.0}, rows, blocks);
    with_table.Ends(ConvPlan{}, rows, blocks);
    with_readout.Ends(ConvPlan{}, rows, blocks);
    with_wide_readout.Ends(ConvPlan{}, rows, blocks);
  }
}

}  // namespace
}  // namespace hyperserve::kernels

int main(int argc, char** argv) {
  using hyperserve::kernels::Form;
  const std::string_view argument = argc > 1 ? argv[1] : "";
  if (argument.empty() || argument == "--json") {
    hyperserve::kernels::RunAll(argument.empty() ? Form::kTable : Form::kJson);
  } else {
    hyperserve::kernels::RunFew(std::atoi(argv[1]), argc > 2 ? std::atoi(argv[2]) : 28);
  }
  return 0;
}
