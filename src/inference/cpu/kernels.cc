// The kernels (see kernels.h), compiled once for every instruction set by Highway and chosen at run time.
//
// The work is in `product`: y[j] = ⊕_i x[i] ⊗ m[i, j] for all states of a group at once. In columns the states are a
// vector's lanes, m[i, j] is broadcast, and a tile of slots j stays in registers; in rows the slots j are the lanes and
// x[i] is broadcast. The transposed mix is the same with in and out exchanged.
#include "inference/cpu/kernels.h"

#include <algorithm>
#include <limits>
#include <span>

// The order of these matters.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "inference/cpu/kernels.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>
#include <hwy/contrib/math/math-inl.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace regccrf {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
constexpr int kTile = 12;  // slots of a tile, two vectors each: 24 of 32 registers
constexpr int kBigramTile = 4;
#else
constexpr int kTile = 5;
constexpr int kBigramTile = 2;
#endif

// P numbers, as many as a vector has or the 8 that everything is padded to.
template <class P>
using Full = hn::CappedTag<P, 64 / sizeof(P)>;
template <class P>
using Eight = hn::CappedTag<P, kLaneUnit>;

struct SumProduct {
  template <class P>
  static constexpr P zero = P{0};
  template <class V>
  static HWY_INLINE V times_plus(V x, V y, V sum) {
    return hn::MulAdd(x, y, sum);
  }
  template <class V>
  static HWY_INLINE V plus(V x, V y) {
    return hn::Add(x, y);
  }
  template <class P>
  static HWY_INLINE P plus_one(P x, P y) {
    return x + y;
  }
};

struct MaxPlus {
  template <class P>
  static constexpr P zero = -std::numeric_limits<P>::infinity();
  template <class V>
  static HWY_INLINE V times_plus(V x, V y, V sum) {
    return hn::Max(sum, hn::Add(x, y));
  }
  template <class V>
  static HWY_INLINE V plus(V x, V y) {
    return hn::Max(x, y);
  }
  template <class P>
  static HWY_INLINE P plus_one(P x, P y) {
    return x > y ? x : y;
  }
};

// --- columns --------------------------------------------------------------------------------------------------------

// Where lane `lane` of slot i lies: slot after slot, or wherever the plan's sources say.
struct Dense {
  int lanes;
  HWY_INLINE int operator()(int i, int lane) const { return i * lanes + lane; }
};
struct Sourced {
  const std::int32_t* source;
  int units;
  HWY_INLINE int operator()(int i, int lane) const { return source[i * units + lane / kUnit] + lane % kUnit; }
};

// y[j][lane …] for `Slots` slots and `Vectors` vectors of lanes.
template <class S, int Slots, int Vectors, class D, class Where, class P>
HWY_INLINE void column_tile(D d, const P* HWY_RESTRICT x, Where where, int lane, int nx, const P* HWY_RESTRICT m,
                            int m_step, int lanes, P* HWY_RESTRICT y) {
  using V = hn::Vec<D>;
  const int N = static_cast<int>(hn::Lanes(d));
  V sum[Slots][Vectors];
#pragma GCC unroll 16
  for (int j = 0; j < Slots; ++j) {
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v) sum[j][v] = hn::Set(d, S::template zero<P>);
  }
  for (int i = 0; i < nx; ++i) {
    V in[Vectors];
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v) in[v] = hn::LoadU(d, x + where(i, lane + v * N));
#pragma GCC unroll 16
    for (int j = 0; j < Slots; ++j) {
      const V g = hn::Set(d, m[i * m_step + j]);
#pragma GCC unroll 2
      for (int v = 0; v < Vectors; ++v) sum[j][v] = S::times_plus(in[v], g, sum[j][v]);
    }
  }
#pragma GCC unroll 16
  for (int j = 0; j < Slots; ++j) {
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v) hn::StoreU(sum[j][v], d, y + j * lanes + lane + v * N);
  }
}

// What is left of the slots, in one tile of just that size.
template <class S, int Most, int Vectors, class D, class Where, class P>
HWY_INLINE void column_rest(D d, const P* x, Where where, int lane, int nx, const P* m, int m_step, int rest, int lanes,
                            P* y) {
  if (rest == Most) return column_tile<S, Most, Vectors>(d, x, where, lane, nx, m, m_step, lanes, y);
  if constexpr (Most > 1) column_rest<S, Most - 1, Vectors>(d, x, where, lane, nx, m, m_step, rest, lanes, y);
}

// All slots, for the lanes that `Vectors` vectors hold.
template <class S, int Vectors, class D, class Where, class P>
HWY_INLINE void column_strip(D d, const P* x, Where where, int lane, int nx, const P* m, int ny, int lanes, P* y) {
  int j = 0;
  for (; j + kTile <= ny; j += kTile)
    column_tile<S, kTile, Vectors>(d, x, where, lane, nx, m + j, ny, lanes, y + j * lanes);
  if (j < ny) column_rest<S, kTile - 1, Vectors>(d, x, where, lane, nx, m + j, ny, ny - j, lanes, y + j * lanes);
}

template <class S, class Where, class P>
HWY_INLINE void column_product(const P* x, Where where, int nx, const P* m, int ny, int lanes, P* y) {
  const Full<P> d;
  const int N = static_cast<int>(hn::Lanes(d));
  int s = 0;
  for (; s + 2 * N <= lanes; s += 2 * N) column_strip<S, 2>(d, x, where, s, nx, m, ny, lanes, y);
  for (; s + N <= lanes; s += N) column_strip<S, 1>(d, x, where, s, nx, m, ny, lanes, y);
  const Eight<P> eight;
  const int E = static_cast<int>(hn::Lanes(eight));
  for (; s < lanes; s += E) column_strip<S, 1>(eight, x, where, s, nx, m, ny, lanes, y);
}

// --- rows -----------------------------------------------------------------------------------------------------------

// y[0 … Vectors · N) with two sums each, so that additions need not wait for each other. nx is even.
template <class S, int Vectors, class D, class P>
HWY_INLINE void row_tile(D d, const P* HWY_RESTRICT x, int nx, const P* HWY_RESTRICT m, int m_step, P* HWY_RESTRICT y) {
  using V = hn::Vec<D>;
  const int N = static_cast<int>(hn::Lanes(d));
  V even[Vectors], odd[Vectors];
#pragma GCC unroll 4
  for (int v = 0; v < Vectors; ++v) even[v] = odd[v] = hn::Set(d, S::template zero<P>);
  for (int i = 0; i < nx; i += 2) {
    const V x0 = hn::Set(d, x[i]), x1 = hn::Set(d, x[i + 1]);
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) {
      even[v] = S::times_plus(x0, hn::LoadU(d, m + i * m_step + v * N), even[v]);
      odd[v] = S::times_plus(x1, hn::LoadU(d, m + (i + 1) * m_step + v * N), odd[v]);
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < Vectors; ++v) hn::StoreU(S::plus(even[v], odd[v]), d, y + v * N);
}

template <class S, class P>
HWY_INLINE void row_product(const P* x, int nx, const P* m, int ny, P* y) {
  const Full<P> d;
  const int N = static_cast<int>(hn::Lanes(d));
  int j = 0;
  for (; j + 4 * N <= ny; j += 4 * N) row_tile<S, 4>(d, x, nx, m + j, ny, y + j);
  if (j + 3 * N <= ny) {
    row_tile<S, 3>(d, x, nx, m + j, ny, y + j);
    j += 3 * N;
  }
  for (; j + 2 * N <= ny; j += 2 * N) row_tile<S, 2>(d, x, nx, m + j, ny, y + j);
  for (; j + N <= ny; j += N) row_tile<S, 1>(d, x, nx, m + j, ny, y + j);
  const Eight<P> eight;
  const int E = static_cast<int>(hn::Lanes(eight));
  for (; j < ny; j += E) row_tile<S, 1>(eight, x, nx, m + j, ny, y + j);
}

// --- whole steps ----------------------------------------------------------------------------------------------------

// body(vector tag, offset) over the lanes of a thin unit.
template <class P, class Body>
HWY_INLINE void over_unit(int width, const Body& body) {
  const Full<P> full;
  const Eight<P> eight;
  if (width == kUnit) {
    for (int k = 0; k < kUnit; k += static_cast<int>(hn::Lanes(full))) body(full, k);
  } else {
    for (int k = 0; k < kLaneUnit; k += static_cast<int>(hn::Lanes(eight))) body(eight, k);
  }
}

template <class S, class P>
HWY_INLINE void mix_thin(const Plan& plan, const P* matrix, const P* before, P* nodes) {
  for (const Thin& thin : plan.thin) {
    const P *m = matrix + thin.matrix, *x0 = before + thin.source[0], *x1 = before + thin.source[1];
    P* y = nodes + thin.node;
    over_unit<P>(thin.width, [=](auto d, int k) HWY_ATTR {
      const auto first = S::times_plus(hn::LoadU(d, x0 + k), hn::Set(d, m[0]), hn::Set(d, S::template zero<P>));
      hn::StoreU(S::times_plus(hn::LoadU(d, x1 + k), hn::Set(d, m[1]), first), d, y + k);
    });
  }
}

template <class S, class P>
HWY_INLINE void mix(const Plan& plan, const P* matrix, const P* before, P* nodes) {
  mix_thin<S>(plan, matrix, before, nodes);
  for (const Group& group : std::span(plan.groups.data(), static_cast<std::size_t>(plan.thick))) {
    const P* m = matrix + group.matrix;
    const std::int32_t* source = plan.sources.data() + group.source;
    if (group.columns) {
      column_product<S>(before, Sourced{source, group.units}, group.in, m, group.out, group.lanes, nodes + group.node);
      continue;
    }
    for (int s = 0; s < group.states; ++s) {
      row_product<S>(before + source[s], group.in, m, group.out, nodes + group.node + s * group.out);
    }
  }
}

template <class D, class P>
HWY_INLINE void copy_pieces(D d, const std::vector<std::int32_t>& pieces, int size, const P* from, P* to) {
  const int N = static_cast<int>(hn::Lanes(d));
  const std::int32_t *p = pieces.data(), *end = p + pieces.size();
  for (; p != end; p += 2) {
    for (int k = 0; k < size; k += N) hn::StoreU(hn::LoadU(d, from + p[1] + k), d, to + p[0] + k);
  }
}

template <class S, class D, class P>
HWY_INLINE void sum_pieces(D d, const std::vector<std::int32_t>& pieces, int size, const P* from, P* to) {
  const int N = static_cast<int>(hn::Lanes(d));
  const std::int32_t *p = pieces.data(), *end = p + pieces.size();
  for (; p != end; p += 2) {
    for (int k = 0; k < size; k += N) {
      hn::StoreU(S::plus(hn::LoadU(d, from + p[1] + k), hn::LoadU(d, to + p[0] + k)), d, to + p[0] + k);
    }
  }
}

template <class S, class P>
HWY_INLINE void run_move(const Move& move, const P* from, P* to) {
  const Full<P> full;
  const Eight<P> eight;
  copy_pieces(full, move.copies.sixteen, 16, from, to);
  copy_pieces(eight, move.copies.eight, 8, from, to);
  const std::int32_t *p = move.copies.one.data(), *end = p + move.copies.one.size();
  for (; p != end; p += 2) {
    to[p[0]] = from[p[1]];
    asm volatile("");  // one by one: a vector scatter is slower
  }
  sum_pieces<S>(full, move.sums.sixteen, 16, from, to);
  sum_pieces<S>(eight, move.sums.eight, 8, from, to);
  p = move.sums.one.data(), end = p + move.sums.one.size();
  for (; p != end; p += 2) {
    to[p[0]] = S::plus_one(to[p[0]], from[p[1]]);
    asm volatile("");
  }
}

// Calls op(vector tag, first cell, label-dependent value as a vector, largest, smallest) over all node cells; the last
// two are running vectors that the op updates. `value` is indexed by label.
template <class P, class Op>
HWY_INLINE Extent<P> over_nodes(const Plan& plan, const P* value, const Op op) {
  const Full<P> full;
  const Eight<P> eight;
  const int N = static_cast<int>(hn::Lanes(full)), E = static_cast<int>(hn::Lanes(eight));
  constexpr P most = std::numeric_limits<P>::max();
  auto high = hn::Set(full, Op::kLeast), low = hn::Set(full, most);
  auto high8 = hn::Set(eight, Op::kLeast), low8 = hn::Set(eight, most);
  for (const Group& group : plan.groups) {
    const std::int32_t* labels = plan.out_labels.data() + group.first_out;
    for (int j = 0; group.columns && j < group.out; ++j) {
      const P w = value[labels[j]];
      int cell = group.node + j * group.lanes;
      const int end = cell + group.lanes;
      for (; cell + N <= end; cell += N) op(full, cell, hn::Set(full, w), high, low);
      for (; cell < end; cell += E) op(eight, cell, hn::Set(eight, w), high8, low8);
    }
    for (int j = 0; !group.columns && j < group.out; j += E) {
      HWY_ALIGN P slots[hn::MaxLanes(Eight<P>())];
      for (int k = 0; k < E; ++k) slots[k] = value[labels[j + k]];
      const auto w = hn::Load(eight, slots);
      for (int s = 0; s < group.states; ++s) op(eight, group.node + s * group.out + j, w, high8, low8);
    }
  }
  return {std::max(hn::GetLane(hn::MaxOfLanes(full, high)), hn::GetLane(hn::MaxOfLanes(eight, high8))),
          std::min(hn::GetLane(hn::MinOfLanes(full, low)), hn::GetLane(hn::MinOfLanes(eight, low8)))};
}

// alpha = sums · weights · factor, or the floor.
template <bool Watch, class P>
struct Scale {
  static constexpr P kLeast = 0;
  P factor, floor;
  const P* exists;
  P* after;

  template <class D, class V>
  HWY_INLINE void operator()(D d, int cell, V w, V& high, V& low) const {
    const V sum = hn::LoadU(d, after + cell);
    const V weight = hn::Mul(hn::Mul(w, hn::Set(d, factor)), hn::LoadU(d, exists + cell));
    const auto possible = hn::Gt(hn::Min(sum, weight), hn::Zero(d));
    const V x = hn::IfThenElseZero(possible, hn::Max(hn::Mul(sum, weight), hn::Set(d, floor)));
    hn::StoreU(x, d, after + cell);
    high = hn::Max(high, x);
    if constexpr (Watch) low = hn::IfThenElse(possible, hn::Min(low, x), low);
  }
};

// delta = maxima + h + shift.
template <class P>
struct Shift {
  static constexpr P kLeast = MaxPlus::zero<P>;
  P shift;
  const P* exists;
  P* after;

  template <class D, class V>
  HWY_INLINE void operator()(D d, int cell, V w, V& high, V& low) const {
    const V x =
        hn::Add(hn::LoadU(d, after + cell), hn::Add(hn::Add(w, hn::Set(d, shift)), hn::LoadU(d, exists + cell)));
    hn::StoreU(x, d, after + cell);
    high = hn::Max(high, x);
    low = hn::Min(low, hn::IfThenElse(hn::Gt(x, hn::Set(d, kLeast)), x, hn::Set(d, std::numeric_limits<P>::max())));
  }
};

// Own cells of arrivals; padding among them is at zero.
template <class S, class P>
HWY_INLINE void Spread(const Plan& plan, P* alpha) {
  const Full<P> d;
  const auto zero = hn::Set(d, S::template zero<P>);
  for (int c = plan.nodes; c < plan.cells; c += static_cast<int>(hn::Lanes(d))) hn::StoreU(zero, d, alpha + c);
  run_move<S>(plan.forward, alpha, alpha);
}

template <class P>
Extent<P> ForwardStep(const Plan& plan, const P* matrix, const P* exists, const P* weights, P factor, P floor,
                      const P* before, bool watch, P* after) {
  mix<SumProduct>(plan, matrix, before, after);
  const Extent<P> extent = watch ? over_nodes(plan, weights, Scale<true, P>{factor, floor, exists, after})
                                 : over_nodes(plan, weights, Scale<false, P>{factor, floor, exists, after});
  Spread<SumProduct>(plan, after);
  return extent;
}

// One slot of a column: its share of alpha · beta, and after.
template <class D, class P>
HWY_INLINE hn::Vec<D> meet_lanes(D d, const P* x, const P* y, hn::Vec<D> w, P* z) {
  const auto a = hn::LoadU(d, x), b = hn::IfThenElseZero(hn::Gt(a, hn::Zero(d)), hn::LoadU(d, y));
  hn::StoreU(hn::Mul(b, w), d, z);
  return hn::Mul(a, b);
}

template <class P>
P Meet(const Plan& plan, const P* alpha, const P* beta, const P* weights, P factor, P* labels, P* after) {
  const Full<P> full;
  const Eight<P> eight;
  const int N = static_cast<int>(hn::Lanes(full)), E = static_cast<int>(hn::Lanes(eight));
  for (int a = 0; a <= plan.K; ++a) labels[a] = 0;
  for (const Group& group : plan.groups) {
    const std::int32_t* label = plan.out_labels.data() + group.first_out;
    for (int j = 0; group.columns && j < group.out; ++j) {
      const P w = weights[label[j]] * factor;
      int cell = group.node + j * group.lanes;
      const int end = cell + group.lanes;
      P sum = 0;
      if (cell + N <= end) {
        auto sums = hn::Zero(full);
        for (; cell + N <= end; cell += N)
          sums = hn::Add(sums, meet_lanes(full, alpha + cell, beta + cell, hn::Set(full, w), after + cell));
        sum = hn::GetLane(hn::SumOfLanes(full, sums));
      }
      for (; cell < end; cell += E) {
        sum += hn::GetLane(
            hn::SumOfLanes(eight, meet_lanes(eight, alpha + cell, beta + cell, hn::Set(eight, w), after + cell)));
      }
      labels[label[j]] += sum;
    }
    for (int j = 0; !group.columns && j < group.out; j += E) {
      HWY_ALIGN P slots[hn::MaxLanes(Eight<P>())];
      for (int k = 0; k < E; ++k) slots[k] = weights[label[j + k]] * factor;
      const auto w = hn::Load(eight, slots);
      auto sums = hn::Zero(eight);
      for (int s = 0; s < group.states; ++s) {
        const int cell = group.node + s * group.out + j;
        sums = hn::Add(sums, meet_lanes(eight, alpha + cell, beta + cell, w, after + cell));
      }
      hn::Store(sums, eight, slots);
      for (int k = 0; k < E; ++k) labels[label[j + k]] += slots[k];
    }
  }
  P sum = 0;
  for (int a = 0; a < plan.K; ++a) sum += labels[a];
  return sum;
}

template <class P>
void BackwardStep(const Plan& plan, const P* transposed, const P* after, P* arrivals, P* beta) {
  for (const Thin& thin : plan.thin) {
    const P *m = transposed + thin.matrix, *x = after + thin.node;
    P *y0 = arrivals + thin.arrival[0], *y1 = arrivals + thin.arrival[1];
    over_unit<P>(thin.width, [=](auto d, int k) HWY_ATTR {
      const auto v = hn::LoadU(d, x + k);
      hn::StoreU(hn::Mul(v, hn::Set(d, m[1])), d, y1 + k);
      hn::StoreU(hn::Mul(v, hn::Set(d, m[0])), d, y0 + k);  // last: with one in-slot they are the same
    });
  }
  for (const Group& group : std::span(plan.groups.data(), static_cast<std::size_t>(plan.thick))) {
    const P* m = transposed + group.matrix;
    if (group.columns) {
      column_product<SumProduct>(after + group.node, Dense{group.lanes}, group.out, m, group.in, group.lanes,
                                 arrivals + group.arrival);
      continue;
    }
    for (int s = 0; s < group.states; ++s) {
      row_product<SumProduct>(after + group.node + s * group.out, group.out, m, group.in,
                              arrivals + group.arrival + s * group.in);
    }
  }
  run_move<SumProduct>(plan.backward, arrivals, beta);
}

// --- bigrams --------------------------------------------------------------------------------------------------------

// E[i][j] of a column group is a vector of 64 bytes: sums over states wait in its lanes until the end.
template <class P>
constexpr int kSumLanes = 64 / sizeof(P);

template <int I, int J, class D, class P>
HWY_INLINE void column_bigram_tile(D d, const P* const* alpha, const P* const* after, int steps, Sourced where, int i0,
                                   int y0, const Group& g, int from, int to, P* E) {
  using V = hn::Vec<D>;
  const int N = static_cast<int>(hn::Lanes(d));
  V sum[I][J];
#pragma GCC unroll 4
  for (int i = 0; i < I; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < J; ++j) sum[i][j] = hn::Zero(d);
  }
  for (int s = from; s < to; s += N) {
    int x0[I];
#pragma GCC unroll 4
    for (int i = 0; i < I; ++i) x0[i] = where(i0 + i, s);
    for (int t = 0; t < steps; ++t) {
      const P *x = alpha[t], *y = after[t] + y0 + s;
      V right[J];
#pragma GCC unroll 4
      for (int j = 0; j < J; ++j) right[j] = hn::LoadU(d, y + j * g.lanes);
#pragma GCC unroll 4
      for (int i = 0; i < I; ++i) {
        const V left = hn::LoadU(d, x + x0[i]);
#pragma GCC unroll 4
        for (int j = 0; j < J; ++j) sum[i][j] = hn::MulAdd(left, right[j], sum[i][j]);
      }
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < I; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < J; ++j) {
      P* e = E + (i * g.out + j) * kSumLanes<P>;
      hn::StoreU(hn::Add(sum[i][j], hn::LoadU(d, e)), d, e);
    }
  }
}

template <int I, class D, class P>
HWY_INLINE void column_bigram_row(D d, const P* const* alpha, const P* const* after, int steps, Sourced where,
                                  const Group& g, int i, int from, int to, P* E) {
  P* e = E + static_cast<std::int64_t>(i) * g.out * kSumLanes<P>;
  int j = 0;
  if constexpr (kBigramTile == 4) {
    for (; j + 4 <= g.out; j += 4) {
      column_bigram_tile<I, 4>(d, alpha, after, steps, where, i, g.node + j * g.lanes, g, from, to,
                               e + j * kSumLanes<P>);
    }
    for (; j + 3 <= g.out; j += 3) {
      column_bigram_tile<I, 3>(d, alpha, after, steps, where, i, g.node + j * g.lanes, g, from, to,
                               e + j * kSumLanes<P>);
    }
  }
  for (; j + 2 <= g.out; j += 2) {
    column_bigram_tile<I, 2>(d, alpha, after, steps, where, i, g.node + j * g.lanes, g, from, to, e + j * kSumLanes<P>);
  }
  for (; j < g.out; ++j) {
    column_bigram_tile<I, 1>(d, alpha, after, steps, where, i, g.node + j * g.lanes, g, from, to, e + j * kSumLanes<P>);
  }
}

template <class D, class P>
HWY_INLINE void column_bigrams(D d, const P* const* alpha, const P* const* after, int steps, Sourced where,
                               const Group& g, int from, int to, P* E) {
  int i = 0;
  for (; i + 4 <= g.in; i += 4) column_bigram_row<4>(d, alpha, after, steps, where, g, i, from, to, E);
  for (; i + 3 <= g.in; i += 3) column_bigram_row<3>(d, alpha, after, steps, where, g, i, from, to, E);
  for (; i + 2 <= g.in; i += 2) column_bigram_row<2>(d, alpha, after, steps, where, g, i, from, to, E);
  for (; i < g.in; ++i) column_bigram_row<1>(d, alpha, after, steps, where, g, i, from, to, E);
}

// Four in-slots at a time (there are a multiple of 8), all states and steps.
template <class D, class P>
HWY_INLINE void row_bigram_tile(D d, const P* const* alpha, const P* const* after, int steps,
                                const std::int32_t* source, const Group& g, int i, int j, P* E) {
  using V = hn::Vec<D>;
  V sum[4];
#pragma GCC unroll 4
  for (int k = 0; k < 4; ++k) sum[k] = hn::Zero(d);
  for (int t = 0; t < steps; ++t) {
    for (int s = 0; s < g.states; ++s) {
      const P *x = alpha[t] + source[s] + i, *y = after[t] + g.node + s * g.out + j;
      const V right = hn::LoadU(d, y);
#pragma GCC unroll 4
      for (int k = 0; k < 4; ++k) sum[k] = hn::MulAdd(hn::Set(d, x[k]), right, sum[k]);
    }
  }
#pragma GCC unroll 4
  for (int k = 0; k < 4; ++k) {
    P* e = E + (i + k) * g.out + j;
    hn::StoreU(hn::Add(sum[k], hn::LoadU(d, e)), d, e);
  }
}

template <class P>
void AddBigrams(const Plan& plan, const P* const* alpha, const P* const* after, int steps, P* E) {
  const Full<P> d;
  const int N = static_cast<int>(hn::Lanes(d));
  const Eight<P> eight;
  for (const Thin& thin : plan.thin) {
    P* e = E + thin.bigrams;
    over_unit<P>(thin.width, [=](auto tag, int k) HWY_ATTR {
      auto first = hn::Zero(tag), second = hn::Zero(tag);
      for (int t = 0; t < steps; ++t) {
        const auto y = hn::LoadU(tag, after[t] + thin.node + k);
        first = hn::MulAdd(hn::LoadU(tag, alpha[t] + thin.source[0] + k), y, first);
        second = hn::MulAdd(hn::LoadU(tag, alpha[t] + thin.source[1] + k), y, second);
      }
      hn::StoreU(hn::Add(first, hn::LoadU(tag, e)), tag, e);
      hn::StoreU(hn::Add(second, hn::LoadU(tag, e + kSumLanes<P>)), tag, e + kSumLanes<P>);
    });
  }
  for (const Group& g : std::span(plan.groups.data(), static_cast<std::size_t>(plan.thick))) {
    P* e = E + g.bigrams;
    const std::int32_t* source = plan.sources.data() + g.source;
    if (g.columns) {
      const Sourced where{source, g.units};
      const int whole = g.lanes / N * N;
      if (whole > 0) column_bigrams(d, alpha, after, steps, where, g, 0, whole, e);
      if (whole < g.lanes) column_bigrams(eight, alpha, after, steps, where, g, whole, g.lanes, e);
      continue;
    }
    const int E8 = static_cast<int>(hn::Lanes(eight));
    for (int i = 0; i < g.in; i += 4) {
      int j = 0;
      for (; j + N <= g.out; j += N) row_bigram_tile(d, alpha, after, steps, source, g, i, j, e);
      for (; j < g.out; j += E8) row_bigram_tile(eight, alpha, after, steps, source, g, i, j, e);
    }
  }
}

// E of one group, summed over lanes, times its matrix. Gives the sum.
template <class P>
double group_bigrams(const Group& g, const P* e, const P* m, double* sums) {
  const Full<P> d;
  const int N = static_cast<int>(hn::Lanes(d));
  double total = 0;
  for (int ij = 0; ij < g.in * g.out; ++ij) {
    P sum = e[ij];
    if (g.columns) {
      const P* lanes = e + ij * kSumLanes<P>;
      auto v = hn::LoadU(d, lanes);
      for (int k = N; k < kSumLanes<P>; k += N) v = hn::Add(v, hn::LoadU(d, lanes + k));
      sum = hn::GetLane(hn::SumOfLanes(d, v));
    }
    sums[ij] = m[ij] > 0 ? static_cast<double>(sum) * static_cast<double>(m[ij]) : 0;  // without a gain E has no bound
    total += sums[ij];
  }
  return total;
}

template <class P>
void SumBigrams(const Plan& plan, const P* E, const P* matrix, double weight, double total, double* scratch,
                double* counts) {
  double sum = 0;
  for (const Group& g : plan.groups) sum += group_bigrams(g, E + g.bigrams, matrix + g.matrix, scratch + g.matrix);
  const double scale = sum > 0 ? weight * total / sum : 0;
  for (const Group& g : plan.groups) {
    const double* sums = scratch + g.matrix;
    const std::int32_t *in = plan.in_labels.data() + g.first_in, *out = plan.out_labels.data() + g.first_out;
    for (int i = 0; i < g.in && in[i] < plan.K; ++i) {
      double* row = counts + static_cast<std::int64_t>(in[i]) * plan.K;
      for (int j = 0; j < g.out && out[j] < plan.K; ++j) row[out[j]] += scale * sums[i * g.out + j];
    }
  }
}

// --- max-plus, and exp ----------------------------------------------------------------------------------------------

template <class P>
Extent<P> MaxStep(const Plan& plan, const P* matrix, const P* exists, const P* h, P shift, const P* before, P* after) {
  mix<MaxPlus>(plan, matrix, before, after);
  const Extent<P> extent = over_nodes(plan, h, Shift<P>{shift, exists, after});
  Spread<MaxPlus>(plan, after);
  return extent;
}

// values[a] = exp(values[a] − largest), over whole vectors.
void ExpAll(double* values, int count, double largest) {
  const Full<double> d;
  const auto shift = hn::Set(d, largest);
  for (int a = 0; a < count; a += static_cast<int>(hn::Lanes(d))) {
    hn::StoreU(hn::Exp(d, hn::Sub(hn::LoadU(d, values + a), shift)), d, values + a);
  }
}

template <class Real, class P>
HWY_INLINE Peak ExpRow(const Real* HWY_RESTRICT h, int K, double* HWY_RESTRICT scratch, P* HWY_RESTRICT weights) {
  constexpr double none = -std::numeric_limits<double>::infinity();
  const Full<double> d;
  const int N = static_cast<int>(hn::Lanes(d));
  for (int a = 0; a < K; ++a) scratch[a] = static_cast<double>(h[a]);
  for (int a = K; a < (K + 7) / 8 * 8; ++a) scratch[a] = none;
  auto high = hn::Set(d, none), low = hn::Set(d, -none);
  for (int a = 0; a < K; a += N) {
    const auto x = hn::LoadU(d, scratch + a);
    high = hn::Max(high, x);
    low = hn::Min(low, hn::IfThenElse(hn::Gt(x, hn::Set(d, none)), x, low));
  }
  double largest = hn::GetLane(hn::MaxOfLanes(d, high));
  const double lowest = largest == none ? 0 : hn::GetLane(hn::MinOfLanes(d, low)) - largest;
  if (largest == none) largest = 0;
  ExpAll(scratch, K, largest);
  for (int a = 0; a < K; ++a) weights[a] = static_cast<P>(scratch[a]);
  weights[K] = 0;
  return {largest, lowest};
}
Peak ExpRowFF(const float* h, int K, double* scratch, float* weights) { return ExpRow(h, K, scratch, weights); }
Peak ExpRowFD(const float* h, int K, double* scratch, double* weights) { return ExpRow(h, K, scratch, weights); }
Peak ExpRowDD(const double* h, int K, double* scratch, double* weights) { return ExpRow(h, K, scratch, weights); }

#define REGCCRF_KERNELS(P, Name)                                                                                     \
  Extent<P> Forward##Name(const Plan& plan, const P* matrix, const P* exists, const P* weights, P factor, P floor,   \
                          const P* before, bool watch, P* after) {                                                   \
    return ForwardStep(plan, matrix, exists, weights, factor, floor, before, watch, after);                          \
  }                                                                                                                  \
  void Spread##Name(const Plan& plan, P* alpha) { return Spread<SumProduct>(plan, alpha); }                          \
  P Meet##Name(const Plan& plan, const P* alpha, const P* beta, const P* weights, P factor, P* labels, P* after) {   \
    return Meet(plan, alpha, beta, weights, factor, labels, after);                                                  \
  }                                                                                                                  \
  void Backward##Name(const Plan& plan, const P* transposed, const P* after, P* arrivals, P* beta) {                 \
    return BackwardStep(plan, transposed, after, arrivals, beta);                                                    \
  }                                                                                                                  \
  void AddBigrams##Name(const Plan& plan, const P* const* alpha, const P* const* after, int steps, P* E) {           \
    return AddBigrams(plan, alpha, after, steps, E);                                                                 \
  }                                                                                                                  \
  void SumBigrams##Name(const Plan& plan, const P* E, const P* matrix, double weight, double total, double* scratch, \
                        double* counts) {                                                                            \
    return SumBigrams(plan, E, matrix, weight, total, scratch, counts);                                              \
  }                                                                                                                  \
  Extent<P> Max##Name(const Plan& plan, const P* matrix, const P* exists, const P* h, P shift, const P* before,      \
                      P* after) {                                                                                    \
    return MaxStep(plan, matrix, exists, h, shift, before, after);                                                   \
  }                                                                                                                  \
  void MaxSpread##Name(const Plan& plan, P* delta) { return Spread<MaxPlus>(plan, delta); }
REGCCRF_KERNELS(float, Float)
REGCCRF_KERNELS(double, Double)
#undef REGCCRF_KERNELS

}  // namespace HWY_NAMESPACE
}  // namespace regccrf
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace regccrf {

#define REGCCRF_EXPORT(P, Name)                                                                                     \
  HWY_EXPORT(Forward##Name);                                                                                        \
  template <>                                                                                                       \
  Extent<P> forward_step(const Plan& plan, const P* matrix, const P* exists, const P* weights, P factor, P floor,   \
                         const P* before, bool watch, P* after) {                                                   \
    return HWY_DYNAMIC_DISPATCH(Forward##Name)(plan, matrix, exists, weights, factor, floor, before, watch, after); \
  }                                                                                                                 \
  HWY_EXPORT(Spread##Name);                                                                                         \
  template <>                                                                                                       \
  void spread(const Plan& plan, P* alpha) {                                                                         \
    return HWY_DYNAMIC_DISPATCH(Spread##Name)(plan, alpha);                                                         \
  }                                                                                                                 \
  HWY_EXPORT(Meet##Name);                                                                                           \
  template <>                                                                                                       \
  P meet(const Plan& plan, const P* alpha, const P* beta, const P* weights, P factor, P* labels, P* after) {        \
    return HWY_DYNAMIC_DISPATCH(Meet##Name)(plan, alpha, beta, weights, factor, labels, after);                     \
  }                                                                                                                 \
  HWY_EXPORT(Backward##Name);                                                                                       \
  template <>                                                                                                       \
  void backward_step(const Plan& plan, const P* transposed, const P* after, P* arrivals, P* beta) {                 \
    return HWY_DYNAMIC_DISPATCH(Backward##Name)(plan, transposed, after, arrivals, beta);                           \
  }                                                                                                                 \
  HWY_EXPORT(AddBigrams##Name);                                                                                     \
  template <>                                                                                                       \
  void add_bigrams(const Plan& plan, const P* const* alpha, const P* const* after, int steps, P* E) {               \
    return HWY_DYNAMIC_DISPATCH(AddBigrams##Name)(plan, alpha, after, steps, E);                                    \
  }                                                                                                                 \
  HWY_EXPORT(SumBigrams##Name);                                                                                     \
  template <>                                                                                                       \
  void sum_bigrams(const Plan& plan, const P* E, const P* matrix, double weight, double total, double* scratch,     \
                   double* counts) {                                                                                \
    return HWY_DYNAMIC_DISPATCH(SumBigrams##Name)(plan, E, matrix, weight, total, scratch, counts);                 \
  }                                                                                                                 \
  HWY_EXPORT(Max##Name);                                                                                            \
  template <>                                                                                                       \
  Extent<P> max_step(const Plan& plan, const P* matrix, const P* exists, const P* h, P shift, const P* before,      \
                     P* after) {                                                                                    \
    return HWY_DYNAMIC_DISPATCH(Max##Name)(plan, matrix, exists, h, shift, before, after);                          \
  }                                                                                                                 \
  HWY_EXPORT(MaxSpread##Name);                                                                                      \
  template <>                                                                                                       \
  void max_spread(const Plan& plan, P* delta) {                                                                     \
    return HWY_DYNAMIC_DISPATCH(MaxSpread##Name)(plan, delta);                                                      \
  }
REGCCRF_EXPORT(float, Float)
REGCCRF_EXPORT(double, Double)
#undef REGCCRF_EXPORT
HWY_EXPORT(ExpAll);

void exp_all(double* values, int count, double largest) { HWY_DYNAMIC_DISPATCH(ExpAll)(values, count, largest); }

std::int64_t bigram_size(const Plan& plan) { return plan.bigrams; }

HWY_EXPORT(ExpRowFF);
HWY_EXPORT(ExpRowFD);
HWY_EXPORT(ExpRowDD);
template <>
Peak exp_row(const float* h, int K, double* scratch, float* weights) {
  return HWY_DYNAMIC_DISPATCH(ExpRowFF)(h, K, scratch, weights);
}
template <>
Peak exp_row(const float* h, int K, double* scratch, double* weights) {
  return HWY_DYNAMIC_DISPATCH(ExpRowFD)(h, K, scratch, weights);
}
template <>
Peak exp_row(const double* h, int K, double* scratch, double* weights) {
  return HWY_DYNAMIC_DISPATCH(ExpRowDD)(h, K, scratch, weights);
}

}  // namespace regccrf
#endif
