// Inference on a CUDA device: the same questions as inference.h and loss.h, asked of tensors that are there already.
//
// Nothing here waits for the device, allocates in steady state or copies to the host: a call enqueues its kernels on
// the caller's stream, in memory that the caller gives (`Workspace`: as many bytes as the matching *_bytes says), and
// may be captured in a graph. What goes wrong on the device is left in a status record, which status_message() puts
// into words once the caller has it on the host.
//
// Accuracy as in inference.h. A float32 or float64 pass with one scale per step serves nearly every sequence and knows
// afterwards whether what it lost could matter; those sequences are done again with an exponent for every number, in
// the same call. Results are the same from run to run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "regccrf/constraint.h"

namespace regccrf::cuda {

bool built();      // whether this library has CUDA in it
bool available();  // … and a device is there

enum class Type { f16, bf16, f32, f64 };

// A constraint in a device's memory. Cheap to copy, safe to share; made once (this copies and waits), for the device
// that is current.
class DeviceConstraint {
 public:
  explicit DeviceConstraint(const Constraint& constraint);
  const Constraint& constraint() const;

  struct Impl;
  const Impl& impl() const { return *impl_; }

 private:
  std::shared_ptr<const Impl> impl_;
};

// Position t of sequence i is row i · batch_stride + t · time_stride of the emissions, the mask and gold. All pointers
// are to device memory.
struct Batch {
  std::int64_t size = 0, length = 0;  // B, T
  std::int64_t batch_stride = 0, time_stride = 1;
  Type emissions_type = Type::f32;
  Type type = Type::f32;               // of everything else: f32 or f64
  const void* emissions = nullptr;     // [rows, K]
  const void* transitions = nullptr;   // [K, K]
  const void* start = nullptr;         // [K] or null
  const void* end = nullptr;           // [K] or null
  const std::uint8_t* mask = nullptr;  // [rows] or null: all present
};

struct Memory {
  void* bytes = nullptr;  // 256-byte aligned
  std::size_t size = 0;
};

// What became of each sequence.
enum class Outcome : std::int32_t { fine = 0, bad_score = 1, outside = 2, impossible = 3, bad_transition = 4 };
struct Status {
  std::int32_t outcome;   // an Outcome
  std::int32_t position;  // of a bad score, or where gold leaves the language
  std::int32_t label;     // of a bad score
  std::int32_t length;    // of the sequence, masked positions left out
};
std::string status_message(const char* operation, const Constraint& constraint, std::int64_t sequence,
                           const Status& status);

// log_z and, where wanted, expected counts of each sequence on its own. With gold: the negative log-likelihood instead
// of log_z, +inf where gold is outside the language (its counts are then zeros), and counts minus those of gold.
struct Expectation {
  double* value = nullptr;             // [B]
  void* emissions = nullptr;           // [rows, K] of Batch::type, or null; rows of absent positions are untouched
  void* transitions = nullptr;         // [B, K, K] of Batch::type, or null
  Status* status = nullptr;            // [B]
  const std::int64_t* gold = nullptr;  // [rows] or null
};
std::size_t expectation_bytes(const DeviceConstraint& constraint, const Batch& batch, const Expectation& wanted);
void expectation(const DeviceConstraint& constraint, const Batch& batch, const Expectation& wanted, Memory memory,
                 void* stream);

// The best legal sequence of each.
struct Best {
  std::int32_t* labels = nullptr;  // [B, T]; absent positions left out, the rest -1
  double* score = nullptr;         // [B]; −inf where there is none
  Status* status = nullptr;        // [B]
};
std::size_t viterbi_bytes(const DeviceConstraint& constraint, const Batch& batch);
void viterbi(const DeviceConstraint& constraint, const Batch& batch, const Best& best, Memory memory, void* stream);

// The k best sequences, distinct, best first; fewer where there are fewer.
struct KBest {
  std::int32_t k = 1;
  std::int32_t* labels = nullptr;  // [B, k, T]; as Best::labels
  double* score = nullptr;         // [B, k]; −inf where there are no more
  Status* status = nullptr;        // [B]
};
std::size_t k_best_bytes(const DeviceConstraint& constraint, const Batch& batch, const KBest& best);
void k_best(const DeviceConstraint& constraint, const Batch& batch, const KBest& best, Memory memory, void* stream);

// Samples, as in inference.h: the same for the same seed and ids as on the CPU.
struct Samples {
  std::int32_t count = 1;
  std::uint64_t seed = 0;
  double temperature = 1;
  const std::uint64_t* ids = nullptr;  // [B] or null: places in the batch
  std::int32_t* labels = nullptr;      // [B, count, T]
  Status* status = nullptr;            // [B]
};
std::size_t sample_bytes(const DeviceConstraint& constraint, const Batch& batch, const Samples& samples);
void sample(const DeviceConstraint& constraint, const Batch& batch, const Samples& samples, Memory memory,
            void* stream);

// The entropy of each sequence's distribution, NaN where it has none, and its gradients where wanted (zeros then).
// Those of start and end are the emissions' at the first position and the last.
struct Entropy {
  double* value = nullptr;      // [B]
  void* emissions = nullptr;    // [rows, K] of Batch::type, or null; rows of absent positions are untouched
  void* transitions = nullptr;  // [B, K, K] of Batch::type, or null
  Status* status = nullptr;     // [B]
};
std::size_t entropy_bytes(const DeviceConstraint& constraint, const Batch& batch, const Entropy& wanted);
void entropy(const DeviceConstraint& constraint, const Batch& batch, const Entropy& wanted, Memory memory,
             void* stream);

}  // namespace regccrf::cuda
