// How the steps of long sequences are shared out (scan.h), and operations that take the caller's word for it. The
// public ones are these with what choose_pieces says.
#pragma once

#include "regccrf/cuda.h"

namespace regccrf::cuda {

// Step s leads from position s - 1 to s. Piece c has the steps c · steps + 1 … (c + 1) · steps, as far as there are
// any.
struct Pieces {
  std::int32_t steps = 0x7fffffff;
  std::int32_t count = 1;  // of a sequence as long as the batch; 1: no scan
};
inline Pieces pieces_of(std::int64_t T, std::int64_t steps) {
  return T <= steps + 1 ? Pieces{}
                        : Pieces{static_cast<std::int32_t>(steps), static_cast<std::int32_t>((T - 2) / steps + 1)};
}

constexpr std::int32_t kScanNodes = 96, kScanStates = 64;  // an automaton with more has no scan
bool can_scan(const DeviceConstraint& constraint);         // nor where a block has no room for its steps

struct ScanSize {
  std::int64_t B, T;
  std::int32_t processors;
};
// Microseconds of a step without a scan, and of its kernels: a step of a product, a piece of the crossing, a step of a
// walk, and to start them.
struct ScanCosts {
  double step, multiply, cross, walk, start;
};
Pieces choose_pieces(const ScanSize& size, const ScanCosts& costs);
ScanCosts expectation_costs(std::int32_t nodes, bool in_float);  // in_float: without a scan
ScanCosts viterbi_costs(std::int32_t nodes);

std::size_t expectation_bytes(const DeviceConstraint& constraint, const Batch& batch, const Expectation& wanted,
                              const Pieces& pieces);
void expectation(const DeviceConstraint& constraint, const Batch& batch, const Expectation& wanted,
                 const Pieces& pieces, Memory memory, void* stream, const Loss* loss = nullptr);

std::size_t viterbi_bytes(const DeviceConstraint& constraint, const Batch& batch, const Pieces& pieces);
void viterbi(const DeviceConstraint& constraint, const Batch& batch, const Best& best, const Pieces& pieces,
             Memory memory, void* stream);

}  // namespace regccrf::cuda
