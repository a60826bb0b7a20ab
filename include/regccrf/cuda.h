// Inference on a CUDA device: the functions of inference.h and loss.h for arrays that are in device memory.
//
// No function waits for the device, copies to the host, or allocates memory after its first calls. A call enqueues its
// kernels on the caller's stream, in memory that the caller gives (`Memory`: as many bytes as the matching *_bytes
// says). It may be captured in a graph. Errors on the device are left in status records. When the caller has copied one
// to the host, status_error() makes an Error of it.
//
// Accuracy as in inference.h. For nearly every sequence a float32 or float64 pass with one scale for each step is
// enough. The pass bounds what it lost to underflow; if that could matter, the sequence is computed again in the same
// call, with an exponent for every number. Results are the same from run to run.
//
// Programs that use this header link regccrf::cuda as well as regccrf::regccrf or regccrf::inference.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "regccrf/constraint.h"
#include "regccrf/error.h"
#include "regccrf/loss.h"

namespace regccrf::cuda {

bool built();      // whether this library was built with CUDA
bool available();  // … and there is a device

enum class Type { f16, bf16, f32, f64 };

// An array of numbers in device memory, to be written or to be read. Without data: absent.
struct Array {
  void* data = nullptr;
  Type type = Type::f32;
  explicit constexpr operator bool() const { return data != nullptr; }
};
struct ConstArray {
  const void* data = nullptr;
  Type type = Type::f32;
  constexpr ConstArray() = default;
  constexpr ConstArray(const void* numbers, Type of) : data(numbers), type(of) {}
  constexpr ConstArray(const Array& array) : data(array.data), type(array.type) {}
  explicit constexpr operator bool() const { return data != nullptr; }
};

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

// Scores of sequences, in device memory as everything here. Position t of sequence i is row
// i · batch_stride + t · time_stride of the emissions, the mask and gold.
struct Batch {
  std::int64_t size = 0, length = 0;  // B, T
  std::int64_t batch_stride = 0, time_stride = 1;
  ConstArray emissions;                // [rows, K]
  ConstArray transitions;              // [K, K] f32 or f64
  ConstArray start, end;               // [K] of the transitions' type, or absent
  const std::uint8_t* mask = nullptr;  // [rows] or null: all present
  constexpr Type type() const { return transitions.type; }
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
// `status`: of something that is not fine.
Error status_error(const char* operation, const Constraint& constraint, std::int64_t sequence, const Status& status);

// log_z and, where wanted, expected counts of each sequence on its own. With gold: the negative log-likelihood instead
// of log_z, +inf where gold is outside the language (its counts are then zeros), and counts minus those of gold.
struct Expectation {
  double* value = nullptr;   // [B]
  Array emissions;           // [rows, K] of the batch's type, or absent; rows of absent positions are untouched
  Array transitions;         // [B, K, K] of the batch's type, or absent
  Status* status = nullptr;  // [B]
  const std::int64_t* gold = nullptr;  // [rows] or null
};
std::size_t expectation_bytes(const DeviceConstraint& constraint, const Batch& batch, const Expectation& wanted);
struct Loss;  // below; where given, the last kernel reduces `wanted`'s value and status, which it has to name
void expectation(const DeviceConstraint& constraint, const Batch& batch, const Expectation& wanted, Memory memory,
                 void* stream, const Loss* loss = nullptr);

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
  double* value = nullptr;   // [B]
  Array emissions;           // [rows, K] as an Expectation's, or absent
  Array transitions;         // [B, K, K] as an Expectation's, or absent
  Status* status = nullptr;  // [B]
};
std::size_t entropy_bytes(const DeviceConstraint& constraint, const Batch& batch, const Entropy& wanted);
void entropy(const DeviceConstraint& constraint, const Batch& batch, const Entropy& wanted, Memory memory,
             void* stream);

// The second derivative in a direction: how log_z, or with gold the negative log-likelihood, changes along it, and how
// its gradients, an Expectation's counts, do. Zeros for sequences that are not fine.
struct Direction {  // shaped as the batch's scores, and of their types
  ConstArray emissions, transitions;
  ConstArray start, end;  // or absent
};
struct Curvature {
  Direction direction;
  const Status* status = nullptr;      // [B] as the expectation left it
  const std::int64_t* gold = nullptr;  // [rows] or null
  double* value = nullptr;             // [B]
  Array emissions;                     // [rows, K] as an Expectation's, or absent
  Array transitions;                   // [B, K, K] as an Expectation's, or absent
};
std::size_t curvature_bytes(const DeviceConstraint& constraint, const Batch& batch, const Curvature& wanted);
void curvature(const DeviceConstraint& constraint, const Batch& batch, const Curvature& wanted, Memory memory,
               void* stream);

// A training loss in one call: what the sequences have on their own, times `sign`, as values [B] or reduced to one
// number (loss.h: Reduction), and what its gradients need. Sums are in double, in the same order in every run.
enum class Objective : std::int32_t { log_z, nll, entropy };
enum class Outside : std::int32_t {
  keep,
  skip,
  infinite
};  // what is not fine: stays as it is, counts for nothing, +inf
enum class Errors : std::int32_t { none, bad_scores, all };  // which outcomes are errors

// The first error of several calls, left on the device until somebody looks. Begins as zeros.
struct Failure {
  Status status;
  std::int32_t sequence, operation;
};

struct SavedForBackward {
  double* scale = nullptr;   // [1]: ∂ out / ∂ value of every sequence that counts
  Status* status = nullptr;  // [B]
  double* value = nullptr;   // [B]
  Array emissions;           // [rows, K] as an Expectation's, or absent
  Array transitions;         // [B, K, K] as an Expectation's, or absent
};

struct Loss {
  Objective objective = Objective::log_z;
  const std::int64_t* gold = nullptr;  // [rows], for nll
  double sign = 1;
  Reduction reduction = Reduction::none;
  Outside outside = Outside::keep;
  Array out;  // [B], or [1] where reduced; f32 or f64
  SavedForBackward saved;
  Errors errors = Errors::none;
  Failure* failure = nullptr;                  // or null
  std::int32_t operation = 0;                  // the caller's number for what was asked, for `failure`
  const std::int64_t* sequence_ids = nullptr;  // [B], for `failure`, or null: places in the batch
};
std::size_t loss_bytes(const DeviceConstraint& constraint, const Batch& batch, const Loss& loss);
void loss(const DeviceConstraint& constraint, const Batch& batch, const Loss& loss, Memory memory, void* stream);
// Its last part: `out` and `saved.scale` from `saved.value` and `saved.status`.
void reduce(std::int64_t size, const Loss& loss, void* stream);

// The gradients of Σ_i weights[i] · out[i], or of weights[0] · out. Zeros at absent positions and for sequences that
// are not fine.
struct LossGradients {
  ConstArray weights;  // sequence i has the one at i · weights_stride
  std::int64_t weights_stride = 1;
  SavedForBackward saved;
  Array emissions;    // [rows, K], or absent
  Array transitions;  // [K, K], or absent
  Array start, end;   // [K], or absent: of the first and the last present rows of the emissions' counts
};
void loss_gradients(const Batch& batch, std::int32_t labels, const LossGradients& gradients, void* stream);

}  // namespace regccrf::cuda
