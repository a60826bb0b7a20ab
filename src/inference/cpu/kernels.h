// Kernels: one step of a pass over a plan's cells, vectorised, for the best instruction set that the machine has. They
// know the plan and nothing of sequences, scores' types or errors. P is float or double throughout.
#pragma once

#include <cstdint>

#include "inference/cpu/plan.h"

namespace regccrf {

// What a step's numbers span.
template <class P>
struct Extent {
  P largest;
  P smallest;  // among those that are not the semiring's zero
};

// [K] scores → weights[a] = exp(h[a] − largest), weights[K] = 0. Scores are finite or −inf.
// `lowest` is the lowest finite h[a] − largest. Without a finite score the largest is 0.
struct Peak {
  double largest, lowest;
};
template <class Real, class P>
Peak exp_row(const Real* h, int K, double* scratch, P* weights);  // scratch: [K + 8]

// values[i] = exp(values[i] − largest), for scores that are finite or −inf. Reads and writes up to the next multiple
// of 8.
void exp_all(double* values, int count, double largest);

// Sum-product. alpha of the next step: after[r, b] = weights[b] · factor · Σ_a (Σ_q before[q, a]) · matrix[a, b], but
// at least `floor` where neither the weight nor the sum is 0. before, after: [plan.cells]. Its numbers' smallest is
// looked for only where `watch` says so. The first step's node cells are filled by the caller, who then has `spread`
// fill the rest.
template <class P>
Extent<P> forward_step(const Plan& plan, const P* matrix, const P* exists, const P* weights, P factor, P floor,
                       const P* before, bool watch, P* after);
template <class P>
void spread(const Plan& plan, P* alpha);

// labels[a] = Σ over nodes with label a of alpha · beta, and after = beta · weights · factor, cell by cell, 0 where
// alpha is. Gives the sum of all labels.
template <class P>
P meet(const Plan& plan, const P* alpha, const P* beta, const P* weights, P factor, P* labels,
       P* after);  // labels: [K + 1]

// beta of the step before: the transposed mix, then the transposed move. `arrivals` is scratch.
template <class P>
void backward_step(const Plan& plan, const P* transposed, const P* after, P* arrivals, P* beta);

// E[group][in, out] += Σ over steps and states of arrivals, as alpha's cells have them, · after; `E` has bigram_size()
// numbers, zeros at first.
std::int64_t bigram_size(const Plan& plan);
template <class P>
void add_bigrams(const Plan& plan, const P* const* alpha, const P* const* after, int steps, P* E);
// counts[a, b] += weight · E · matrix, over all groups, scaled so that they sum to `total`, which is known exactly
// while rounding errors of the same sign add up over steps. `scratch`: [plan.matrix]
template <class P>
void sum_bigrams(const Plan& plan, const P* E, const P* matrix, double weight, double total, double* scratch,
                 double* counts);

// Max-plus. after[r, b] = h[b] + shift + max_a (max_q before[q, a]) + matrix[a, b]; padding at −inf.
template <class P>
Extent<P> max_step(const Plan& plan, const P* matrix, const P* exists, const P* h, P shift, const P* before, P* after);
template <class P>
void max_spread(const Plan& plan, P* delta);

}  // namespace regccrf
