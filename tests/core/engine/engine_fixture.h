// Helpers of the engine's tests: rows, one solve of one segment, every device.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/engine/device_runtime.h"
#include "core/engine/devices.h"
#include "core/engine/engine.h"
#include "core/io/philox.h"
#include "core/io/tensor.h"
#include "tests/testing/planned_solve.h"

namespace hyperserve {

// F64 rows of this shape: normals of the seed, times `scale`.
inline HostTensor NormalRows(int64_t rows, Shape shape, uint64_t seed, double scale = 1.0) {
  shape.insert(shape.begin(), rows);
  HostTensor tensor = HostTensor::Zeros(Dtype::kF64, shape);
  PhiloxNormals(seed, 0, rows, tensor.elements() / rows, tensor.as<double>());
  for (double& value : tensor.as<double>()) value *= scale;
  return tensor;
}

inline TensorView View(const HostTensor& tensor) {
  return {.dtype = tensor.dtype, .shape = tensor.shape, .bytes = tensor.bytes};
}

// The bytes of one row.
inline std::string RowBytes(const HostTensor& tensor, int64_t row) {
  const size_t size = tensor.bytes.size() / static_cast<size_t>(tensor.shape.at(0));
  const char* begin = reinterpret_cast<const char*>(tensor.bytes.data());
  return std::string(begin + static_cast<size_t>(row) * size, size);
}

inline double Number(const HostTensor& tensor, int64_t index) {
  const size_t i = static_cast<size_t>(index);
  return tensor.dtype == Dtype::kF64 ? tensor.as<double>()[i] : tensor.as<float>()[i];
}

// All results of a segment except the bucket.
inline std::string Text(const BatchResult& result) {
  std::string text;
  for (const HostTensor* part :
       {&result.state, &result.saved, &result.outputs, &result.log_density}) {
    absl::StrAppend(&text, ShapeText(part->shape), " ");
    text.append(reinterpret_cast<const char*>(part->bytes.data()), part->bytes.size());
  }
  for (size_t i = 0; i < result.status.size(); ++i) {
    absl::StrAppend(&text, static_cast<int>(result.status[i]), " ", result.nfe[i], " ",
                    result.correction_evaluations[i], " ", result.macs[i], ";");
  }
  return text;
}

// Parameter: the device's name.
class EngineTest : public testing::TestWithParam<std::string> {
 protected:
  EngineTest() : runtime_(MakeDeviceRuntime(GetParam()).value()) {}

  bool on_cpu() const { return GetParam() == "cpu"; }

  absl::StatusOr<BatchResult> TryRun(const PlannedSolve& solve, const HostTensor& rows) {
    return Solve(*runtime_, solve, View(rows));
  }

  BatchResult Run(const PlannedSolve& solve, const HostTensor& rows) {
    absl::StatusOr<BatchResult> result = TryRun(solve, rows);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *std::move(result) : BatchResult{};
  }

  std::unique_ptr<DeviceRuntime> runtime_;
};

inline std::vector<std::string> DeviceNames() {
  std::vector<std::string> names;
  for (const DeviceInfo& device : ListDevices()) names.push_back(device.name);
  return names;
}

inline std::string DeviceTestName(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), ':', '_');
  return name;
}

}  // namespace hyperserve
