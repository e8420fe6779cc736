// What the programs that time one call after the other share: the calls, and the median.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "client/client.h"
#include "client/deadline.h"
#include "core/base/status.h"
#include "hyperserve/v1/hyperserve.pb.h"

namespace hyperserve {

inline Deadline Soon() { return Deadline::In(std::chrono::seconds(60)); }

// Bytes of images that are neither constant nor random.
inline std::string ImageBytes(size_t count) {
  std::string bytes(count, 0);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<char>(i * 37 % 256);
  return bytes;
}

// Labels of `rows` images of one channel, 28 by 28 pixels; says how the call was solved.
inline absl::StatusOr<v1::SolveInfo> ClassifyImages(Client& client, v1::SolveOptions options,
                                                    int64_t rows) {
  v1::ClassifyRequest request;
  *request.mutable_options() = std::move(options);
  v1::Tensor& images = *request.mutable_inputs();
  images.set_dtype(v1::DTYPE_U8);
  for (const int64_t size : {rows, int64_t{1}, int64_t{28}, int64_t{28}}) images.add_shape(size);
  images.set_data(ImageBytes(static_cast<size_t>(rows) * 28 * 28));
  HS_ASSIGN_OR_RETURN(const v1::ClassifyReply reply, client.Classify(std::move(request), Soon()));
  return reply.info();
}

inline absl::StatusOr<v1::SolveInfo> SampleRows(Client& client, v1::SolveOptions options,
                                                int64_t rows) {
  v1::SampleRequest request;
  *request.mutable_options() = std::move(options);
  request.set_rows(rows);
  HS_ASSIGN_OR_RETURN(const v1::SampleReply reply, client.Sample(std::move(request), Soon()));
  return reply.info();
}

// The value in the middle. Precondition: there are values.
inline double Median(std::vector<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace hyperserve
