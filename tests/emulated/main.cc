// The emulated tests' main: says after a failure which device it happened on, and how to have that one alone.
#include <gtest/gtest.h>

#include <cstdio>

#include "emulator.h"

namespace {

class SaysWhichDevice : public ::testing::EmptyTestEventListener {
  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    const emulated::Device device = emulated::device();
    if (result.failed()) {
      std::printf("on device %d: %d bytes of shared memory, %d processors (REGCCRF_EMULATED_DEVICE=%d)\n",
                  device.number, device.shared_bytes, device.processors, device.number);
    }
  }
};

}  // namespace

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  ::testing::UnitTest::GetInstance()->listeners().Append(new SaysWhichDevice);
  return RUN_ALL_TESTS();
}
