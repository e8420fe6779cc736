// A classifier of images of four pixels, which tests of data read rows for.
#pragma once

#include "core/io/tensor.h"
#include "core/model/layers/dense.h"
#include "core/model/layers/images.h"
#include "core/model/layers/layer.h"
#include "core/model/spec/spec.h"

namespace hyperserve {

inline const Shape kImageInput = {1, 2, 2};

inline ModelSpec ImageModel() {
  ModelSpec spec;
  spec.input.shape = kImageInput;
  spec.stem = {Layer{.kind = FlattenLayer{}}};
  spec.head = {Layer{.kind = LinearLayer{.in = 4, .out = 10}}};
  return spec;
}

}  // namespace hyperserve
