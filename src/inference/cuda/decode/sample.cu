// Samples on a device: alpha in wide arithmetic, then back along it (wide.cu), so that they are the CPU's.
#include "inference/cuda/prepare.h"
#include "inference/cuda/wide/wide.h"

namespace regccrf::cuda {

namespace {

struct Work {
  Prepared<double> scores;
  WideMemory wide;
};
Work allocate_memory(Arena& arena, const DeviceConstraint::Impl& c, const Batch& batch) {
  return {allocate_prepared<double>(arena, c, batch, false), allocate_wide(arena, c, batch, false)};
}

}  // namespace

std::size_t sample_bytes(const DeviceConstraint& constraint, const Batch& batch, const Samples&) {
  Arena arena(Memory{});
  allocate_memory(arena, constraint.impl(), batch);
  return arena.used();
}

void sample(const DeviceConstraint& constraint, const Batch& batch, const Samples& samples, Memory memory,
            void* stream) {
  check_batch("sample", batch);
  if (batch.size == 0 || samples.count == 0) return;
  Arena arena(memory);
  const DeviceConstraint::Impl& c = constraint.impl();
  const Work work = allocate_memory(arena, c, batch);
  const auto s = static_cast<cudaStream_t>(stream);
  prepare<double>(c, batch, work.scores, Scale::log, false, samples.status, nullptr, s);
  sample_wide(c, batch, samples, {work.scores.length, work.scores.row, nullptr, work.scores.bad}, work.wide, s);
}

}  // namespace regccrf::cuda
