// Both ways through a sequence, in bounded memory. A pass that goes forward over steps 0 … T-1 and then visits them
// backward needs what the forward steps left. Up to `keep_bytes` it is all kept; past that only every √T-th step is,
// and a segment's steps are computed a second time when the way back reaches it: O(√T) memory for a third more work.
//
// A pass provides: Value; size(), values of a step; first(v); next(t, v of t-1, v of t), which must give the same
// result when it is called again; turn(v of T-1) and back(t, v of t), which return false to give up; and pause(), if it
// keeps pointers to steps, which is called before they are overwritten. One way, a pass that has lossless() ends with
// it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "base/arena.h"

namespace regccrf {

template <class Pass>
bool both_ways_kept(Pass& pass, std::int64_t T, Arena& arena) {
  using Value = typename Pass::Value;
  const std::size_t size = pass.size();
  Value* all = arena.take<Value>(size * static_cast<std::size_t>(T));
  pass.first(all);
  for (std::int64_t t = 1; t < T; ++t) pass.next(t, all + (t - 1) * size, all + t * size);
  if (!pass.turn(all + (T - 1) * size)) return false;
  for (std::int64_t t = T - 1; t >= 0; --t) {
    if (!pass.back(t, all + t * size)) return false;
  }
  return true;
}

template <class Pass>
bool both_ways_checkpointed(Pass& pass, std::int64_t T, Arena& arena) {
  using Value = typename Pass::Value;
  const std::size_t size = pass.size();
  const auto stride = static_cast<std::int64_t>(std::ceil(std::sqrt(static_cast<double>(T))));
  const std::int64_t segments = (T + stride - 1) / stride;
  Value* marks = arena.take<Value>(size * static_cast<std::size_t>(segments));
  Value* segment = arena.take<Value>(size * static_cast<std::size_t>(stride));
  const auto fill = [&](std::int64_t s) {  // segment s from its mark; its last step
    const std::int64_t begin = s * stride, end = std::min(begin + stride, T);
    std::copy_n(marks + s * size, size, segment);
    for (std::int64_t t = begin + 1; t < end; ++t)
      pass.next(t, segment + (t - 1 - begin) * size, segment + (t - begin) * size);
    return segment + (end - 1 - begin) * size;
  };
  pass.first(marks);
  for (std::int64_t s = 0; s < segments; ++s) {
    const Value* last = fill(s);
    if (s + 1 < segments) pass.next((s + 1) * stride, last, marks + (s + 1) * size);
  }
  for (std::int64_t s = segments - 1; s >= 0; --s) {  // the last segment is still there
    const std::int64_t begin = s * stride, end = std::min(begin + stride, T);
    if (s + 1 < segments) {
      if constexpr (requires { pass.pause(); }) pass.pause();
      fill(s);
    }
    if (s + 1 == segments && !pass.turn(segment + (end - 1 - begin) * size)) return false;
    for (std::int64_t t = end - 1; t >= begin; --t) {
      if (!pass.back(t, segment + (t - begin) * size)) return false;
    }
  }
  return true;
}

// Forward and turn alone, in the memory of two steps.
template <class Pass>
void one_way(Pass& pass, std::int64_t T, Arena& arena) {
  using Value = typename Pass::Value;
  Value* before = arena.take<Value>(pass.size());
  Value* now = arena.take<Value>(pass.size());
  pass.first(now);
  for (std::int64_t t = 1; t < T; ++t) {
    if constexpr (requires { pass.lossless(); }) {
      if (!pass.lossless()) return;
    }
    std::swap(before, now);
    pass.next(t, before, now);
  }
  pass.turn(now);
}

template <class Pass>
bool must_checkpoint(const Pass& pass, std::int64_t T, std::size_t keep_bytes) {
  return static_cast<double>(T) * static_cast<double>(pass.size() * sizeof(typename Pass::Value)) >
         static_cast<double>(keep_bytes);
}

}  // namespace regccrf
