#include "core/model/net/field_package.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include <algorithm>
#include <functional>
#include <stdexcept>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/status.h"
#include "core/model/net/libtorch_name.h"

namespace hyperserve {
namespace {

constexpr char kModelName[] = "model";  // AOTInductor's own name of the one model in a package
constexpr int64_t kTriedRows[] = {64, 1};

// CatchExceptions in the words of a file that does not fit: LibTorch's first line, without its
// stack.
absl::Status InWords(std::string_view what, const std::function<absl::Status()>& body) {
  const absl::Status status = CatchExceptions(what, body);
  if (!absl::IsInternal(status)) return status;
  return absl::InvalidArgumentError(status.message().substr(0, status.message().find('\n')));
}

// Machine code for a wider processor would end the process at its first instruction.
absl::Status CheckProcessor(const std::string& isa) {
  const std::pair<const char*, bool> features[] = {
      {"AVX512", __builtin_cpu_supports("avx512f") != 0},
      {"AVX512_VNNI", __builtin_cpu_supports("avx512vnni") != 0},
      {"AVX2", __builtin_cpu_supports("avx2") != 0}};
  const std::vector<std::string> wanted = absl::StrSplit(isa, ' ');
  for (const auto& [name, there] : features) {
    if (there || std::ranges::find(wanted, name) == wanted.end()) continue;
    return absl::InvalidArgumentError(absl::StrCat("it was compiled for ", isa,
                                                   "; this processor has no ", name,
                                                   ": export it on the machine that serves"));
  }
  return absl::OkStatus();
}

}  // namespace

FieldPackage::FieldPackage(MemoryFile file, std::string device_type, Shape state, Shape condition)
    : file_(std::move(file)),
      device_type_(std::move(device_type)),
      state_(std::move(state)),
      condition_(std::move(condition)) {}

FieldPackage::~FieldPackage() = default;

absl::StatusOr<std::shared_ptr<const FieldPackage>> FieldPackage::Load(std::string_view bytes,
                                                                       Shape state,
                                                                       Shape condition) {
  HS_ASSIGN_OR_RETURN(MemoryFile file, MemoryFile::Make("field.pt2", bytes));
  std::unordered_map<std::string, std::string> facts;
  HS_RETURN_IF_ERROR(InWords("no package of AOTInductor", [&] {
    facts = Loader::load_metadata_from_package(file.path(), kModelName);
    return absl::OkStatus();
  }));
  HS_RETURN_IF_ERROR(CheckProcessor(facts["AOTI_CPU_ISA"]));
  std::shared_ptr<const FieldPackage> package(new FieldPackage(
      std::move(file), facts["AOTI_DEVICE_KEY"], std::move(state), std::move(condition)));
  if (package->device_type_ == "cpu") HS_RETURN_IF_ERROR(package->On(at::kCPU).status());
  return package;
}

absl::StatusOr<FieldPackage::Loader*> FieldPackage::On(at::Device device) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::unique_ptr<Loader>& known = loaders_[device.str()];
  if (known != nullptr) return known.get();
  const std::string type = at::DeviceTypeName(device.type(), /*lower_case=*/true);
  if (type != device_type_) {
    return absl::InvalidArgumentError(absl::StrCat("it was compiled for ", device_type_,
                                                   ", the model is served on ", device.str()));
  }
  HS_RETURN_IF_ERROR(ProvideLibTorchName());
  const size_t runners = std::max(1u, std::thread::hardware_concurrency());
  std::unique_ptr<Loader> loader;
  HS_RETURN_IF_ERROR(InWords("its code does not load", [&] {
    loader = std::make_unique<Loader>(file_.path(), kModelName, /*run_single_threaded=*/false,
                                      runners, device.is_cuda() ? device.index() : -1);
    return absl::OkStatus();
  }));
  HS_RETURN_IF_ERROR(InWords(absl::StrCat("its code does not run on rows of ", ShapeText(state_)),
                             [&] { return Try(*loader, device); }));
  known = std::move(loader);
  return known.get();
}

absl::Status FieldPackage::Try(Loader& loader, at::Device device) const {
  const c10::InferenceMode guard;
  for (const int64_t rows : kTriedRows) {
    // Code for other shapes reads beyond its rows: there is room behind them.
    const auto zeros = [&](const Shape& row) {
      std::vector<int64_t> shape = {4 * rows};
      shape.insert(shape.end(), row.begin(), row.end());
      return at::zeros(shape, at::TensorOptions(at::kFloat).device(device)).narrow(0, 0, rows);
    };
    std::vector<at::Tensor> inputs = {zeros({}), zeros(state_)};
    if (!condition_.empty()) inputs.push_back(zeros(condition_));
    const at::Tensor x = inputs[1];
    const std::vector<at::Tensor> outputs = loader.run(inputs);
    const bool fits = outputs.size() == 1 && outputs[0].sizes() == x.sizes() &&
                      outputs[0].scalar_type() == at::kFloat && outputs[0].device() == x.device();
    if (fits) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "it gives ", outputs.size(), " tensors, the first ",
        outputs.empty() ? ""
                        : absl::StrCat(c10::str(outputs[0].sizes()), " of ",
                                       c10::str(outputs[0].scalar_type())),
        ", for ", rows, " rows of ", ShapeText(state_),
        "; one float32 tensor of the rows' own shape is wanted, for any number of rows "
        "(torch.export.Dim)"));
  }
  return absl::OkStatus();
}

at::Tensor FieldPackage::Apply(const at::Tensor& x, const at::Tensor& depth,
                               const at::Tensor& condition) const {
  const absl::StatusOr<Loader*> loader = On(x.device());
  if (!loader.ok()) throw std::runtime_error(std::string(loader.status().message()));
  TORCH_CHECK(x.scalar_type() == at::kFloat, "field.pt2 computes in float32");
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> inputs = {depth.detach().contiguous(), x.detach().contiguous()};
  if (!condition_.empty()) inputs.push_back(condition.detach().contiguous());
  at::Tensor slope = (*loader)->run(inputs)[0];
  TORCH_CHECK(slope.sizes() == x.sizes(), "field.pt2 maps rows ", x.sizes(), " to ", slope.sizes());
  return slope;
}

absl::StatusOr<std::shared_ptr<const FieldPackage>> TakeFieldPackage(const ModelSpec& spec,
                                                                     const Shape& state,
                                                                     std::string_view bytes,
                                                                     FieldCode code) {
  const bool declared = spec.field_package.has_value();
  if (declared == bytes.empty()) {
    return absl::InvalidArgumentError(
        declared ? "model.json declares a field_package; the file is missing or empty"
                 : "model.json has layers in field and declares no field_package");
  }
  if (!declared || code == FieldCode::kSealed) return nullptr;
  if (code == FieldCode::kRun) return FieldPackage::Load(bytes, state, spec.condition);
  return absl::FailedPreconditionError(
      "the file is code and would run with all rights of this process; if you trust who made it, "
      "name the model in --allow_code");
}

}  // namespace hyperserve
