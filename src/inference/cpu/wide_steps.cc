// The factored step in wide arithmetic (see wide_steps.h).
#include "inference/cpu/wide_steps.h"

#include <numeric>

namespace regccrf {

namespace {

constexpr std::int64_t kPlainSpread = 400;  // exponents this close together stay normal doubles in any product here

struct Spread {
  std::int64_t low = -kZeroExponent, high = kZeroExponent;
  void add(Wide x) {
    if (x.m == 0) return;
    low = std::min(low, x.e);
    high = std::max(high, x.e);
  }
  bool empty() const { return low > high; }
  bool close() const { return high - low <= kPlainSpread; }
};

}  // namespace

template <class Real>
WideModel::WideModel(const Scores<Real>& scores, double s) : K(scores.labels), scale(s) {
  const auto wide = [&](std::span<const Real> from, std::size_t size) {
    std::vector<Wide> to(size, Wide{1, 0});
    for (std::size_t i = 0; i < from.size(); ++i) to[i] = wide_exp(static_cast<double>(from[i]) * scale);
    return to;
  };
  const auto k = static_cast<std::size_t>(K);
  start = wide(scores.start, k);
  end = wide(scores.end, k);
  if (scores.transitions.empty()) return;
  g = wide(scores.transitions, k * k);
  Spread spread;
  for (Wide x : g) spread.add(x);
  plain = !spread.empty() && spread.close();
  if (!plain) return;
  plain_exponent = spread.high;
  for (Wide x : g) plain_g.push_back(x.m == 0 ? 0 : x.m * exp2_down(spread.high - x.e));
}
template WideModel::WideModel(const Scores<float>&, double);
template WideModel::WideModel(const Scores<double>&, double);

void WideSteps::move(const Wide* alpha, Wide* arrivals) const {
  for (std::int32_t m = 0; m < topology_.arrivals; ++m) {
    Wide sum = kWideZero;
    for (std::int32_t i = topology_.into_begin[m]; i < topology_.into_begin[m + 1]; ++i)
      sum = sum + alpha[topology_.into_node[i]];
    arrivals[m] = sum;
  }
}

void WideSteps::move_back(const Wide* arrivals, Wide* beta) const {
  for (std::int32_t n = 0; n < topology_.nodes; ++n) {
    Wide sum = kWideZero;
    for (std::int32_t i = topology_.from_begin[n]; i < topology_.from_begin[n + 1]; ++i)
      sum = sum + arrivals[topology_.from_arrival[i]];
    beta[n] = sum;
  }
}

// y[j] = Σ_i x[i] · g at x_labels[i] · x_step + y_labels[j] · y_step
void WideSteps::product(const Wide* x, const std::int32_t* x_labels, int nx, const std::int32_t* y_labels, int ny,
                        int x_step, int y_step, Wide* y) {
  Spread spread;
  for (int i = 0; i < nx; ++i) spread.add(x[i]);
  if (spread.empty()) {
    std::fill_n(y, ny, kWideZero);
    return;
  }
  if (model_.plain && spread.close()) {
    for (int i = 0; i < nx; ++i) plain_[i] = x[i].m == 0 ? 0 : x[i].m * exp2_down(spread.high - x[i].e);
    for (int j = 0; j < ny; ++j) {
      double sum = 0;
      if (model_.g.empty()) {
        sum = std::accumulate(plain_.begin(), plain_.begin() + nx, 0.0);
      } else {
        const double* g = model_.plain_g.data() + y_labels[j] * y_step;
        for (int i = 0; i < nx; ++i) sum += plain_[i] * g[x_labels[i] * x_step];
      }
      y[j] = to_wide(sum, spread.high + model_.plain_exponent);
    }
    return;
  }
  for (int j = 0; j < ny; ++j) {
    const Wide* g = model_.g.empty() ? nullptr : model_.g.data() + y_labels[j] * y_step;
    Wide sum = kWideZero;
    for (int i = 0; i < nx; ++i) sum = sum + (g ? x[i] * g[x_labels[i] * x_step] : x[i]);
    y[j] = sum;
  }
}

void WideSteps::mix(const Wide* arrivals, const Wide* h, Wide* alpha) {
  for (std::int32_t r = 0; r < topology_.Q; ++r) {
    const std::int32_t m = topology_.arrival_begin[r], in = topology_.arrival_begin[r + 1] - m;
    const std::int32_t n = topology_.node_begin[r], out = topology_.node_begin[r + 1] - n;
    product(arrivals + m, topology_.arrival_label + m, in, topology_.node_label + n, out, model_.K, 1, alpha + n);
    for (std::int32_t i = n; i < n + out; ++i) alpha[i] = alpha[i] * h[topology_.node_label[i]];
  }
}

void WideSteps::mix_back(const Wide* after, Wide* arrivals) {
  for (std::int32_t r = 0; r < topology_.Q; ++r) {
    const std::int32_t m = topology_.arrival_begin[r], in = topology_.arrival_begin[r + 1] - m;
    const std::int32_t n = topology_.node_begin[r], out = topology_.node_begin[r + 1] - n;
    product(after + n, topology_.node_label + n, out, topology_.arrival_label + m, in, 1, model_.K, arrivals + m);
  }
}

void WideSteps::first(const Wide* h, Wide* alpha) const {
  std::fill_n(alpha, topology_.nodes, kWideZero);
  for (std::int32_t n = topology_.node_begin[topology_.start]; n < topology_.node_begin[topology_.start + 1]; ++n) {
    const std::int32_t a = topology_.node_label[n];
    alpha[n] = h[a] * model_.start[a];
  }
}

void WideSteps::last(Wide* beta) const {
  for (std::int32_t n = 0; n < topology_.nodes; ++n) {
    beta[n] = topology_.node_accepts[n] ? model_.end[topology_.node_label[n]] : kWideZero;
  }
}

Wide WideSteps::total(const Wide* alpha) const {
  Wide sum = kWideZero;
  for (std::int32_t n = 0; n < topology_.nodes; ++n) {
    if (topology_.node_accepts[n]) sum = sum + alpha[n] * model_.end[topology_.node_label[n]];
  }
  return sum;
}

void WideSteps::add_bigrams(const Wide* arrivals, const Wide* after, Wide z, double* E) {
  const int K = model_.K;
  for (std::int32_t r = 0; r < topology_.Q; ++r) {
    Spread before, behind;
    for (std::int32_t m = topology_.arrival_begin[r]; m < topology_.arrival_begin[r + 1]; ++m) before.add(arrivals[m]);
    for (std::int32_t n = topology_.node_begin[r]; n < topology_.node_begin[r + 1]; ++n) behind.add(after[n]);
    if (before.empty() || behind.empty()) continue;
    if (model_.plain && before.high + behind.high + model_.plain_exponent - z.e < -120) continue;  // nothing to add
    for (std::int32_t m = topology_.arrival_begin[r]; m < topology_.arrival_begin[r + 1]; ++m) {
      if (arrivals[m].m == 0) continue;
      const std::int32_t a = topology_.arrival_label[m];
      if (model_.plain && arrivals[m].e + behind.high + model_.plain_exponent - z.e < -120) continue;
      for (std::int32_t n = topology_.node_begin[r]; n < topology_.node_begin[r + 1]; ++n) {
        const std::int32_t b = topology_.node_label[n];
        E[a * K + b] += ratio(arrivals[m] * model_.transition(a, b) * after[n], z);
      }
    }
  }
}

}  // namespace regccrf
