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

// Writes the four standard files, not compressed. Images are counted through both parts, training
// first. Image i has the label i % 10. Its first pixel is i % 256, the pixels of its row `label`
// (if there is one) are bright, all others are dark.
void WriteIdxData(const std::string& folder, const IdxDataOptions& options);

}  // namespace hyperserve::fixture
