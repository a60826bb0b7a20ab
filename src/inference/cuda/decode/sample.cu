// Samples on a device: alpha in wide arithmetic, then back along it (wide.cu), so that they are the CPU's.
#include "inference/cuda/prepare.h"
#include "inference/cuda/wide/wide.h"

namespace regccrf::cuda {

namespace {

struct Work {
  Prepared<double> scores;
  WideWork wide;
};
Work cut_work(Cutter& cutter, const DeviceConstraint::Impl& c, const Batch& batch) {
  return {cut_prepared<double>(cutter, c, batch, false), cut_wide(cutter, c, batch, false)};
}

}  // namespace

std::size_t sample_bytes(const DeviceConstraint& constraint, const Batch& batch, const Samples&) {
  Cutter cutter(Memory{});
  cut_work(cutter, constraint.impl(), batch);
  return cutter.used();
}

void sample(const DeviceConstraint& constraint, const Batch& batch, const Samples& samples, Memory memory,
            void* stream) {
  check_batch("sample", batch);
  if (batch.size == 0 || samples.count == 0) return;
  Cutter cutter(memory);
  const DeviceConstraint::Impl& c = constraint.impl();
  const Work work = cut_work(cutter, c, batch);
  const auto s = static_cast<cudaStream_t>(stream);
  prepare<double>(c, batch, work.scores, Scale::log, false, samples.status, nullptr, s);
  sample_wide(c, batch, samples, {work.scores.length, work.scores.row, nullptr, work.scores.bad}, work.wide, s);
}

}  // namespace regccrf::cuda
