#include <gtest/gtest.h>

#include "core/engine/device_runtime.h"
#include "core/engine/devices.h"

int main(int argc, char** argv) {
  hyperserve::SetUpNumerics();
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
