# LibTorch as imported libraries of our own. Its headers come last in the search order, so that the old Protobuf and fmt in
# the wheel shadow nothing. find_package(Torch) fails on the light set of wheels and ignores CMAKE_CUDA_ARCHITECTURES.
#   libtorch::cpu    tensors and autograd on the CPU
#   libtorch::cuda   the same and the GPU (the full set of wheels)
set(LIBTORCH "" CACHE PATH "Folder that holds LibTorch's include and lib")
if(NOT EXISTS "${LIBTORCH}/include/torch/csrc/api/include/torch/torch.h")
  message(FATAL_ERROR "LIBTORCH='${LIBTORCH}' holds no LibTorch; run `make` (it sets it up), or pass -DLIBTORCH=<folder>")
endif()

foreach(library c10 torch_cpu c10_cuda torch_cuda)
  add_library(libtorch::${library} SHARED IMPORTED)
  set_target_properties(libtorch::${library} PROPERTIES IMPORTED_LOCATION ${LIBTORCH}/lib/lib${library}.so)
endforeach()

add_library(libtorch_cpu INTERFACE)
target_compile_options(libtorch_cpu INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:SHELL:-idirafter \"${LIBTORCH}/include\" -idirafter \"${LIBTORCH}/include/torch/csrc/api/include\">")
target_link_libraries(libtorch_cpu INTERFACE libtorch::torch_cpu libtorch::c10)
add_library(libtorch::cpu ALIAS libtorch_cpu)

# torch_cuda registers its operators when it is loaded. No symbol of it is used, so the linker must be told to keep it.
add_library(libtorch_cuda INTERFACE)
target_link_libraries(libtorch_cuda INTERFACE
  libtorch_cpu -Wl,--push-state,--no-as-needed libtorch::torch_cuda libtorch::c10_cuda -Wl,--pop-state)
add_library(libtorch::cuda ALIAS libtorch_cuda)
