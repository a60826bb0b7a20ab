// Uses devices, where this build has kernels for them: the target is there in every build.
#include <regccrf/cuda.h>

#include <cstdio>

int main(int, char**) {
  std::printf("kernels: %s\n", regccrf::cuda::built() ? "yes" : "no");
  return !regccrf::cuda::built() && regccrf::cuda::available() ? 1 : 0;
}
