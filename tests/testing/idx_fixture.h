// Small data sets in IDX files, for tests that read images.
#pragma once

#include <cstdint>
#include <string>

namespace hyperserve::fixture {

struct IdxDataOptions {
  int training_rows = 100;
  int test_rows = 20;
  int side = 10;  // pixels
};

// The four standard files, not compressed. Image i (counted through both parts, training first) has
// label i % 10; its first pixel is i % 256, its pixel row `label` (where there is one) is bright,
// all others are dark.
void WriteIdxData(const std::string& folder, const IdxDataOptions& options);

}  // namespace hyperserve::fixture
