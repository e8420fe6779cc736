#include "client/wire_tensor.h"

#include <gtest/gtest.h>

#include "core/io/tensor.h"
#include "hyperserve/v1/hyperserve.pb.h"

namespace hyperserve {
namespace {

TEST(WireTensor, ThereAndBack) {
  for (const DtypeEntry& entry : kDtypes) {
    if (entry.dtype == Dtype::kBF16) continue;  // of weights only; the wire has F16
    HostTensor tensor = HostTensor::Zeros(entry.dtype, {3, 2});
    for (size_t i = 0; i < tensor.bytes.size(); ++i) tensor.bytes[i] = std::byte(i * 37);
    const auto back = FromWire(ToWire(tensor));
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(back->dtype, entry.dtype);
    EXPECT_EQ(v1::Dtype_Name(ToWire(tensor).dtype()), "DTYPE_" + std::string(entry.name));
    EXPECT_EQ(back->shape, tensor.shape);
    EXPECT_EQ(back->bytes, tensor.bytes);
  }
}

TEST(WireTensor, RepliesThatDoNotFitAreFaults) {
  const v1::Tensor good = ToWire(HostTensor::Zeros(Dtype::kF32, {3, 2}));
  v1::Tensor wrong = good;
  wrong.mutable_data()->pop_back();
  EXPECT_EQ(FromWire(wrong).status().code(), absl::StatusCode::kInternal);
  wrong = good;
  wrong.set_shape(0, -3);
  EXPECT_EQ(FromWire(wrong).status().code(), absl::StatusCode::kInternal);
  wrong = good;
  wrong.set_dtype(v1::DTYPE_UNSPECIFIED);
  EXPECT_EQ(FromWire(wrong).status().code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace hyperserve
