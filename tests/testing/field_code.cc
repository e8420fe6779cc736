// A library as AOTInductor's packages hold one, made by hand: the functions that LibTorch's loader
// asks for (torch/csrc/inductor/aoti_runtime/interface.h). Its field is
//   f(s, z) = -(1 + s) z        f(s, z, c) = -(1 + s) z + c
// with one number c for each row. package_fixture.h makes a package of it.
#include <ATen/ATen.h>
#include <torch/csrc/inductor/aoti_runtime/interface.h>
#include <torch/csrc/inductor/aoti_torch/utils.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace {

constexpr AOTIRuntimeError kDone = 0, kFailed = 1;
int container;  // the field has no state; any address will do

at::Tensor Take(AtenTensorHandle handle) {
  const std::unique_ptr<at::Tensor> owned(
      torch::aot_inductor::tensor_handle_to_tensor_pointer(handle));
  return *owned;
}

at::Tensor OverRow(const at::Tensor& values, const at::Tensor& z) {
  std::vector<int64_t> shape(static_cast<size_t>(z.dim()), 1);
  shape[0] = z.size(0);
  return values.reshape(shape);
}

}  // namespace

extern "C" {

AOTIRuntimeError AOTInductorModelContainerCreateWithDevice(AOTInductorModelContainerHandle* handle,
                                                           size_t, const char*, const char*) {
  *handle = reinterpret_cast<AOTInductorModelContainerHandle>(&container);
  return kDone;
}

AOTIRuntimeError AOTInductorModelContainerDelete(AOTInductorModelContainerHandle) { return kDone; }

AOTIRuntimeError AOTInductorModelContainerRun(AOTInductorModelContainerHandle,
                                              AtenTensorHandle* inputs, size_t input_count,
                                              AtenTensorHandle* outputs, size_t,
                                              AOTInductorStreamHandle, AOTIProxyExecutorHandle) {
  if (input_count != 2 && input_count != 3) return kFailed;
  const at::Tensor s = Take(inputs[0]), z = Take(inputs[1]);
  at::Tensor slope = z * OverRow(-1 - s, z);
  if (input_count == 3) slope = slope + OverRow(Take(inputs[2]), z);
  outputs[0] = torch::aot_inductor::new_tensor_handle(std::move(slope));
  return kDone;
}

AOTIRuntimeError AOTInductorModelContainerGetNumOutputs(AOTInductorModelContainerHandle,
                                                        size_t* count) {
  *count = 1;
  return kDone;
}

AOTIRuntimeError AOTInductorModelContainerGetNumConstants(AOTInductorModelContainerHandle,
                                                          size_t* count) {
  *count = 0;
  return kDone;
}

AOTIRuntimeError AOTInductorModelContainerGetCallSpec(AOTInductorModelContainerHandle,
                                                      const char** in, const char** out) {
  *in = *out = "";
  return kDone;
}

}  // extern "C"
