#include <gtest/gtest.h>

#include "core/engine/engine.h"

int main(int argc, char** argv) {
  hyperserve::SetUpNumerics();
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
