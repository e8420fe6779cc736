// Labelled images as they come in files. Any thread; everything blocks on the disk.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "core/io/rows.h"

namespace hyperserve {

// The parts that the publishers of the data made.
enum class ImagePart { kTraining, kTest };

// As they stand in the files: whether rows and labels fit each other is not checked here.
struct ImageFiles {
  RowsFile images;  // [rows, ...] as the files have them
  RowsFile labels;  // [rows]
};

// Reads one part of the images in `folder`. Where it holds "test_batch.bin", these are CIFAR-10's
// binary batches: records of one byte of label and 3,072 bytes, [3, 32, 32]; else IDX and the other
// formats of core/io/rows.h under MNIST's names. kNotFound: a file is missing; the message lists
// the names. kInvalidArgument: a file is damaged.
absl::StatusOr<ImageFiles> ReadImageFiles(const std::string& folder, ImagePart part);

}  // namespace hyperserve
