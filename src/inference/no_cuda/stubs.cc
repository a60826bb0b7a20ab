// What stands in for the CUDA rooms where no CUDA compiler was found.
#include "regccrf/cuda.h"
#include "regccrf/error.h"

namespace regccrf::cuda {

namespace {
[[noreturn]] void absent() {
  throw Error(
      "this build of regccrf has no CUDA in it: build it where nvcc (CUDA 12 or later) is on the PATH, with "
      "-DREGCCRF_CUDA=ON");
}
}  // namespace

struct DeviceConstraint::Impl {};

bool built() { return false; }
bool available() { return false; }
DeviceConstraint::DeviceConstraint(const Constraint&) { absent(); }
const Constraint& DeviceConstraint::constraint() const { absent(); }
std::size_t expectation_bytes(const DeviceConstraint&, const Batch&, const Expectation&) { absent(); }
void expectation(const DeviceConstraint&, const Batch&, const Expectation&, Memory, void*, const Loss*) { absent(); }
std::size_t viterbi_bytes(const DeviceConstraint&, const Batch&) { absent(); }
void viterbi(const DeviceConstraint&, const Batch&, const Best&, Memory, void*) { absent(); }
std::size_t k_best_bytes(const DeviceConstraint&, const Batch&, const KBest&) { absent(); }
void k_best(const DeviceConstraint&, const Batch&, const KBest&, Memory, void*) { absent(); }
std::size_t sample_bytes(const DeviceConstraint&, const Batch&, const Samples&) { absent(); }
void sample(const DeviceConstraint&, const Batch&, const Samples&, Memory, void*) { absent(); }
std::size_t entropy_bytes(const DeviceConstraint&, const Batch&, const Entropy&) { absent(); }
void entropy(const DeviceConstraint&, const Batch&, const Entropy&, Memory, void*) { absent(); }
std::size_t curvature_bytes(const DeviceConstraint&, const Batch&, const Curvature&) { absent(); }
void curvature(const DeviceConstraint&, const Batch&, const Curvature&, Memory, void*) { absent(); }
void reduce(std::int64_t, const Loss&, void*) { absent(); }
std::size_t loss_bytes(const DeviceConstraint&, const Batch&, const Loss&) { absent(); }
void loss(const DeviceConstraint&, const Batch&, const Loss&, Memory, void*) { absent(); }
void loss_gradients(const Batch&, std::int32_t, const LossGradients&, void*) { absent(); }

}  // namespace regccrf::cuda
