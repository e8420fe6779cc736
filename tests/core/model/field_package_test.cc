// A field that is code: what it maps, that nothing runs it unasked, and which files are refused.
#include "core/model/net/field_package.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/io/safetensors.h"
#include "core/model/net/bound_layer.h"
#include "core/model/net/model.h"
#include "core/model/net/net.h"
#include "core/model/repository/repository.h"
#include "core/model/spec/spec.h"
#include "tests/testing/package_fixture.h"

namespace hyperserve {
namespace {

using testing::HasSubstr;

absl::StatusOr<std::shared_ptr<const Model>> Taken(const std::string& json,
                                                   const std::string& package, FieldCode code) {
  return Model::FromFile(json, SafetensorsFile::Parse(SerializeSafetensors({})).value(), package,
                         code);
}

std::string Refusal(const std::string& json, const std::string& package, FieldCode code) {
  return std::string(Taken(json, package, code).status().message());
}

Net FieldOf(const Model& model) { return model.weights().Get("field", at::kCPU, at::kFloat); }

TEST(FieldPackageTest, MapsAnyNumberOfRowsFromAnyThread) {
  const Net field = FieldOf(*fixture::CodedFlow());
  std::vector<std::thread> threads;
  for (int64_t rows = 1; rows <= 4; ++rows) {
    threads.emplace_back([&field, rows] {
      for (int64_t count = rows; count < 200; count += 7) {
        const at::Tensor z = at::rand({count, 2}), s = at::rand({count});
        EXPECT_TRUE(at::allclose(field.Apply(z, s), -(1 + s).unsqueeze(1) * z));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(FieldPackageTest, SeesTheCondition) {
  const Net field = FieldOf(*fixture::CodedFlow(1));
  EXPECT_TRUE(field.uses_condition());
  const at::Tensor z = at::rand({5, 2}), s = at::rand({5}), c = at::rand({5, 1});
  EXPECT_TRUE(at::allclose(field.Apply(z, s, c), c - (1 + s).unsqueeze(1) * z));
}

TEST(FieldPackageTest, HasNoDerivatives) {
  const Net field = FieldOf(*fixture::CodedFlow());
  EXPECT_TRUE(field.uses_depth());
  EXPECT_FALSE(field.empty());
  EXPECT_FALSE(field.has_derivatives());
  const at::Tensor z = at::ones({3, 2}).requires_grad_();
  EXPECT_FALSE(field.Apply(z, at::zeros({3})).requires_grad());
  EXPECT_ANY_THROW(field.Apply(Dual{at::ones({3, 2}), at::ones({1, 3, 2})}, Dual{at::zeros({3})}));
}

TEST(FieldPackageTest, RunsOnlyWhereItsCodeIsAllowed) {
  const std::string json = fixture::CodedFlowJson(), package = fixture::FieldPackageBytes();
  const auto refused = Taken(json, package, FieldCode::kRefused);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.status().message()),
              testing::AllOf(HasSubstr("field.pt2: the file is code"), HasSubstr("--allow_code")));
  const auto sealed = Taken(json, "any bytes", FieldCode::kSealed);
  ASSERT_TRUE(sealed.ok()) << sealed.status();
  EXPECT_FALSE((*sealed)->solvable());
  EXPECT_EQ((*sealed)->field_macs(), 4);
  EXPECT_EQ((*sealed)->base_digest(), BaseDigest(json, SerializeSafetensors({}), "any bytes"));
  EXPECT_NE((*sealed)->base_digest(), BaseDigest(json, SerializeSafetensors({})));
}

TEST(FieldPackageTest, NamesWhatDoesNotFit) {
  const std::string json = fixture::CodedFlowJson();
  EXPECT_THAT(Refusal(json, "", FieldCode::kRun), HasSubstr("the file is missing or empty"));
  EXPECT_THAT(Refusal(json, "no package", FieldCode::kRun),
              HasSubstr("field.pt2: no package of AOTInductor"));
  EXPECT_THAT(Refusal(json, fixture::FieldPackageBytes().substr(0, 3000), FieldCode::kRun),
              HasSubstr("field.pt2: no package of AOTInductor"));
  constexpr char kLayers[] =
      R"({"format": 1, "kind": "flow", "span": [0, 1], "direction": "data_to_noise",
          "input": {"shape": [2]}, "field": [{"tanh": {}}]})";
  EXPECT_THAT(Refusal(kLayers, "bytes", FieldCode::kRun), HasSubstr("declares no field_package"));
}

TEST(FieldPackageTest, NoProcessorIsAskedForWhatItLacks) {
  if (__builtin_cpu_supports("avx512vnni") != 0) {
    EXPECT_TRUE(Taken(fixture::CodedFlowJson(), fixture::FieldPackageBytes("AVX512 AVX512_VNNI"),
                      FieldCode::kRun)
                    .ok());
    return;
  }
  EXPECT_THAT(Refusal(fixture::CodedFlowJson(), fixture::FieldPackageBytes("AVX512 AVX512_VNNI"),
                      FieldCode::kRun),
              HasSubstr("this processor has no AVX512"));
}

}  // namespace
}  // namespace hyperserve
