// Runs the library's CUDA operations on host data: copies there, calls, copies back.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "regccrf/cuda.h"
#include "regccrf/inference.h"
#include "regccrf/scores.h"

namespace regccrf {

template <class T>
constexpr cuda::Type device_type = std::is_same_v<T, double> ? cuda::Type::f64 : cuda::Type::f32;

inline void must(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

// A byte of NaN and -1, or of large numbers; which comes next follows no plan.
inline int garbage() {
  static std::uint32_t calls = 0;
  return ++calls * 2654435761u >> 31 ? 0xff : 0x5a;
}

// Device memory that holds a copy of host numbers, or garbage of that size.
template <class T>
class OnDevice {
 public:
  explicit OnDevice(std::size_t count) : count_(count) {
    must(cudaMalloc(&data_, std::max<std::size_t>(count * sizeof(T), 16)));
    must(cudaMemset(data_, garbage(), count * sizeof(T)));
  }
  explicit OnDevice(std::span<const T> host) : OnDevice(host.size()) {
    must(cudaMemcpy(data_, host.data(), host.size_bytes(), cudaMemcpyHostToDevice));
  }
  OnDevice(const OnDevice&) = delete;
  ~OnDevice() { cudaFree(data_); }
  T* get() const { return count_ ? static_cast<T*>(data_) : nullptr; }
  cuda::Array array(cuda::Type type = device_type<T>) const { return {get(), type}; }
  std::vector<T> host() const {
    std::vector<T> copy(count_);
    must(cudaMemcpy(copy.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost));
    return copy;
  }

 private:
  void* data_ = nullptr;
  std::size_t count_;
};

// A padded batch, [B, T, K], with a mask or none. `In`: what emissions are given as.
template <class Real, class In = Real>
class DeviceBatch {
 public:
  DeviceBatch(std::int64_t size, std::int64_t length, int labels, std::span<const In> emissions,
              std::span<const Real> transitions, std::span<const Real> start = {}, std::span<const Real> end = {},
              std::span<const std::uint8_t> mask = {}, cuda::Type type = device_type<In>)
      : labels_(labels), emissions_(emissions), transitions_(transitions), start_(start), end_(end), mask_(mask) {
    batch_ = {size,           length,       length,     1, emissions_.array(type), transitions_.array(),
              start_.array(), end_.array(), mask_.get()};
    if (!batch_.emissions) batch_.emissions.data = transitions_.get();  // T = 0: never read
  }
  const cuda::Batch& view() const { return batch_; }
  std::size_t rows() const { return static_cast<std::size_t>(batch_.size * batch_.length); }
  std::size_t size() const { return static_cast<std::size_t>(batch_.size); }
  std::size_t K() const { return static_cast<std::size_t>(labels_); }

 private:
  int labels_;
  OnDevice<In> emissions_;
  OnDevice<Real> transitions_, start_, end_;
  OnDevice<std::uint8_t> mask_;
  cuda::Batch batch_;
};

template <class Real>
struct DeviceCounts {
  std::vector<double> value;         // [B]
  std::vector<Real> emissions;       // [rows, K]
  std::vector<Real> transitions;     // [B, K, K]
  std::vector<cuda::Status> status;  // [B]
};

// bytes(wanted), and run(wanted, memory)
template <class Real, class In, class Bytes, class Run>
DeviceCounts<Real> run_expectation(const DeviceBatch<Real, In>& batch, std::span<const std::int64_t> gold, bool counts,
                                   const Bytes& bytes, const Run& run) {
  const OnDevice<double> value(batch.size());
  const OnDevice<Real> emissions(counts ? batch.rows() * batch.K() : 0),
      transitions(counts ? batch.size() * batch.K() * batch.K() : 0);
  const OnDevice<cuda::Status> status(batch.size());
  const OnDevice<std::int64_t> gold_there(gold);
  const cuda::Expectation wanted{value.get(), emissions.array(), transitions.array(), status.get(), gold_there.get()};
  const std::size_t size = bytes(wanted);
  const OnDevice<char> memory(size);
  run(wanted, cuda::Memory{memory.get(), size});
  must(cudaDeviceSynchronize());
  return {value.host(), emissions.host(), transitions.host(), status.host()};
}
template <class Real, class In>
DeviceCounts<Real> run_expectation(const cuda::DeviceConstraint& constraint, const DeviceBatch<Real, In>& batch,
                                   std::span<const std::int64_t> gold = {}, bool counts = true) {
  return run_expectation(
      batch, gold, counts,
      [&](const cuda::Expectation& wanted) { return cuda::expectation_bytes(constraint, batch.view(), wanted); },
      [&](const cuda::Expectation& wanted, cuda::Memory memory) {
        cuda::expectation(constraint, batch.view(), wanted, memory, nullptr);
      });
}

struct DevicePaths {
  std::vector<std::vector<Label>> labels;  // [B]
  std::vector<double> score;
  std::vector<cuda::Status> status;
};

inline std::vector<Label> until_negative(const std::int32_t* labels, std::int64_t most) {
  std::vector<Label> path;
  for (std::int64_t t = 0; t < most && labels[t] >= 0; ++t) path.push_back(labels[t]);
  return path;
}

// bytes(), and run(best, memory)
template <class Real, class In, class Bytes, class Run>
DevicePaths run_viterbi(const DeviceBatch<Real, In>& batch, const Bytes& bytes, const Run& run) {
  const OnDevice<std::int32_t> labels(batch.rows());
  const OnDevice<double> score(batch.size());
  const OnDevice<cuda::Status> status(batch.size());
  const std::size_t size = bytes();
  const OnDevice<char> memory(size);
  run(cuda::Best{labels.get(), score.get(), status.get()}, cuda::Memory{memory.get(), size});
  must(cudaDeviceSynchronize());
  DevicePaths paths{{}, score.host(), status.host()};
  const std::vector<std::int32_t> all = labels.host();
  for (std::size_t i = 0; i < batch.size(); ++i) {
    paths.labels.push_back(
        until_negative(all.data() + static_cast<std::int64_t>(i) * batch.view().length, batch.view().length));
  }
  return paths;
}
template <class Real, class In>
DevicePaths run_viterbi(const cuda::DeviceConstraint& constraint, const DeviceBatch<Real, In>& batch) {
  return run_viterbi(
      batch, [&] { return cuda::viterbi_bytes(constraint, batch.view()); },
      [&](const cuda::Best& best, cuda::Memory memory) {
        cuda::viterbi(constraint, batch.view(), best, memory, nullptr);
      });
}

template <class Real, class In>
std::vector<std::vector<std::vector<Label>>> run_sample(const cuda::DeviceConstraint& constraint,
                                                        const DeviceBatch<Real, In>& batch, int count,
                                                        std::uint64_t seed, double temperature,
                                                        std::vector<cuda::Status>* statuses = nullptr) {
  const OnDevice<std::int32_t> labels(batch.rows() * static_cast<std::size_t>(count));
  const OnDevice<cuda::Status> status(batch.size());
  const cuda::Samples samples{count, seed, temperature, nullptr, labels.get(), status.get()};
  const std::size_t bytes = cuda::sample_bytes(constraint, batch.view(), samples);
  const OnDevice<char> memory(bytes);
  cuda::sample(constraint, batch.view(), samples, {memory.get(), bytes}, nullptr);
  must(cudaDeviceSynchronize());
  if (statuses != nullptr) *statuses = status.host();
  const std::vector<std::int32_t> all = labels.host();
  std::vector<std::vector<std::vector<Label>>> drawn(batch.size());
  for (std::size_t i = 0; i < batch.size(); ++i) {
    for (int n = 0; n < count; ++n) {
      const std::int64_t at = (static_cast<std::int64_t>(i) * count + n) * batch.view().length;
      drawn[i].push_back(until_negative(all.data() + at, batch.view().length));
    }
  }
  return drawn;
}

template <class Real, class In>
std::vector<std::vector<Path>> run_k_best(const cuda::DeviceConstraint& constraint, const DeviceBatch<Real, In>& batch,
                                          int k, std::vector<cuda::Status>* statuses = nullptr) {
  const std::size_t rows = batch.size() * static_cast<std::size_t>(k);
  const OnDevice<std::int32_t> labels(rows * static_cast<std::size_t>(batch.view().length));
  const OnDevice<double> score(rows);
  const OnDevice<cuda::Status> status(batch.size());
  const cuda::KBest best{k, labels.get(), score.get(), status.get()};
  const std::size_t bytes = cuda::k_best_bytes(constraint, batch.view(), best);
  const OnDevice<char> memory(bytes);
  cuda::k_best(constraint, batch.view(), best, {memory.get(), bytes}, nullptr);
  must(cudaDeviceSynchronize());
  const std::vector<std::int32_t> all = labels.host();
  const std::vector<double> scores = score.host();
  std::vector<std::vector<Path>> paths(batch.size());
  for (std::size_t row = 0; row < rows; ++row) {
    const std::int64_t length = batch.view().length;
    std::vector<Label> path = until_negative(all.data() + static_cast<std::int64_t>(row) * length, length);
    const bool there = scores[row] > -std::numeric_limits<double>::infinity();
    if (!there && !path.empty()) throw std::runtime_error("labels without a score");
    if (there) paths[row / static_cast<std::size_t>(k)].push_back({std::move(path), scores[row]});
  }
  if (statuses) *statuses = status.host();
  return paths;
}

template <class Real, class In>
DeviceCounts<Real> run_entropy(const cuda::DeviceConstraint& constraint, const DeviceBatch<Real, In>& batch,
                               bool gradients = true) {
  const OnDevice<double> value(batch.size());
  const OnDevice<Real> emissions(gradients ? batch.rows() * batch.K() : 0),
      transitions(gradients ? batch.size() * batch.K() * batch.K() : 0);
  const OnDevice<cuda::Status> status(batch.size());
  const cuda::Entropy wanted{value.get(), emissions.array(), transitions.array(), status.get()};
  const std::size_t bytes = cuda::entropy_bytes(constraint, batch.view(), wanted);
  const OnDevice<char> memory(bytes);
  cuda::entropy(constraint, batch.view(), wanted, {memory.get(), bytes}, nullptr);
  must(cudaDeviceSynchronize());
  return {value.host(), emissions.host(), transitions.host(), status.host()};
}

// Along a direction that is shaped as the batch. After an expectation, for its status.
template <class Real, class In>
DeviceCounts<Real> run_curvature(const cuda::DeviceConstraint& constraint, const DeviceBatch<Real, In>& batch,
                                 const DeviceBatch<Real, In>& direction, std::span<const std::int64_t> gold = {},
                                 bool gradients = true) {
  const std::vector<cuda::Status> known = run_expectation(constraint, batch, gold, false).status;
  const OnDevice<double> value(batch.size());
  const OnDevice<Real> emissions(gradients ? batch.rows() * batch.K() : 0),
      transitions(gradients ? batch.size() * batch.K() * batch.K() : 0);
  const OnDevice<cuda::Status> status{std::span<const cuda::Status>(known)};
  const OnDevice<std::int64_t> gold_there(gold);
  const cuda::Batch& v = direction.view();
  const cuda::Curvature wanted{{v.emissions, v.transitions, v.start, v.end},
                               status.get(),
                               gold_there.get(),
                               value.get(),
                               emissions.array(),
                               transitions.array()};
  const std::size_t bytes = cuda::curvature_bytes(constraint, batch.view(), wanted);
  const OnDevice<char> memory(bytes);
  cuda::curvature(constraint, batch.view(), wanted, {memory.get(), bytes}, nullptr);
  must(cudaDeviceSynchronize());
  return {value.host(), emissions.host(), transitions.host(), known};
}

}  // namespace regccrf
