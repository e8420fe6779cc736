# Functions for the CMakeLists of the folders.

# hyperserve_library(NAME SOURCES ... DEPS ... [TORCH]): the static library of one folder. Include paths begin at the root.
# TORCH: the sources include LibTorch and share one precompiled ATen/ATen.h.
function(hyperserve_library name)
  cmake_parse_arguments(ARG "TORCH" "" "SOURCES;DEPS" ${ARGN})
  if(ARG_SOURCES)
    add_library(${name} STATIC ${ARG_SOURCES})
    target_link_libraries(${name} PUBLIC hyperserve_flags ${ARG_DEPS})
    if(ARG_TORCH)
      hyperserve_torch(${name})
    endif()
  else()
    add_library(${name} INTERFACE)
    target_link_libraries(${name} INTERFACE hyperserve_flags ${ARG_DEPS})
  endif()
endfunction()

# Adds flags, libraries and the shared precompiled header to a target with sources that include LibTorch.
function(hyperserve_torch name)
  target_link_libraries(${name} PRIVATE torch_headers)
  if(HYPERSERVE_PCH)
    # Programs would else be compiled with -fPIE. The precompiled header does not fit that, and g++ would silently read all
    # headers of LibTorch again.
    set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(${name} PRIVATE -fPIC)
    target_precompile_headers(${name} REUSE_FROM torch_pch)
  endif()
endfunction()

# hyperserve_test(NAME SOURCES ... DEPS ... [TORCH] [LABELS ...] [TIMEOUT seconds]): a GoogleTest program with one ctest entry.
function(hyperserve_test name)
  cmake_parse_arguments(ARG "TORCH" "TIMEOUT" "SOURCES;DEPS;LABELS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})  # bin/ is for programs
  target_link_libraries(${name} PRIVATE hyperserve_flags ${ARG_DEPS} GTest::gmock)
  if(ARG_TORCH)
    hyperserve_torch(${name})
    target_link_libraries(${name} PRIVATE test_main_torch)
  else()
    target_link_libraries(${name} PRIVATE GTest::gtest_main)
  endif()
  add_test(NAME ${name} COMMAND ${name})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 900)
  endif()
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}")
endfunction()
