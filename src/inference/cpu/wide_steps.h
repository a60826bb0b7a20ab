// The factored step, both ways, in wide arithmetic (wide.h) over the topology. Rows whose numbers lie close enough
// together are computed as plain doubles with one exponent for the row, which loses nothing; the others number by
// number.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "constraint/topology.h"
#include "inference/numerics/wide.h"
#include "regccrf/scores.h"

namespace regccrf {

// exp of a call's transition, start and end scores, each times `scale` (one over a temperature).
struct WideModel {
  template <class Real>
  explicit WideModel(const Scores<Real>& scores, double scale = 1);

  Wide transition(std::int32_t a, std::int32_t b) const { return g.empty() ? Wide{1, 0} : g[a * K + b]; }

  int K;
  double scale;
  std::vector<Wide> g;           // [K, K], or empty: ones
  std::vector<Wide> start, end;  // [K], ones where there are none
  bool plain = true;             // all of g in double: plain_g · 2^plain_exponent
  std::vector<double> plain_g;   // [K, K], or empty: ones
  std::int64_t plain_exponent = 0;
};

class WideSteps {
 public:
  WideSteps(const Topology& topology, const WideModel& model)
      : topology_(topology), model_(model), plain_(static_cast<std::size_t>(model.K)) {}

  const Topology& topology() const { return topology_; }
  const WideModel& model() const { return model_; }

  void move(const Wide* alpha, Wide* arrivals) const;          // [N] → [M]
  void mix(const Wide* arrivals, const Wide* h, Wide* alpha);  // [M], [K] → [N]
  void mix_back(const Wide* after, Wide* arrivals);            // h ⊗ beta [N] → [M]
  void move_back(const Wide* arrivals, Wide* beta) const;      // [M] → [N]
  void first(const Wide* h, Wide* alpha) const;                // at position 0
  void last(Wide* beta) const;                                 // at position T-1
  Wide total(const Wide* alpha) const;                         // Z, from alpha at T-1
  // E[a, b] += P(y_t = a, y_{t+1} = b), from arrivals at t and h ⊗ beta at t+1.
  void add_bigrams(const Wide* arrivals, const Wide* after, Wide z, double* E);

 private:
  void product(const Wide* x, const std::int32_t* x_labels, int nx, const std::int32_t* y_labels, int ny, int x_step,
               int y_step, Wide* y);

  const Topology& topology_;
  const WideModel& model_;
  std::vector<double> plain_;
};

template <class Real>
void wide_emissions(const Real* h, int K, double scale, Wide* out) {
  for (int a = 0; a < K; ++a) out[a] = wide_exp(static_cast<double>(h[a]) * scale);
}

}  // namespace regccrf
