// Losses and their gradients on a device against plain sums on the host; skipped where there is no device.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>

#include "bench/cuda/runner.h"
#include "tests/inference/inference_fixture.h"
#include "tests/oracle/random.h"

namespace regccrf {
namespace {

using cuda::Errors, cuda::Outside, cuda::Status, cuda::Type;
using oracle::Random;

constexpr std::int32_t kImpossible = static_cast<std::int32_t>(cuda::Outcome::impossible),
                       kBadScore = static_cast<std::int32_t>(cuda::Outcome::bad_score);

template <class Real>
class CudaLoss : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!cuda::available()) GTEST_SKIP() << "no CUDA device here";
  }
  static constexpr Type kType = std::is_same_v<Real, double> ? Type::f64 : Type::f32;
};
TYPED_TEST_SUITE(CudaLoss, Precisions);

// Equal, infinities and NaN included, or within `relative` times max(1, |expected|).
template <class Out>
void expect_close(const std::vector<double>& expected, const std::vector<Out>& actual, double relative,
                  const char* what) {
  ASSERT_EQ(expected.size(), actual.size()) << what;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double x = expected[i], y = static_cast<double>(actual[i]);
    const bool same = x == y || (std::isnan(x) && std::isnan(y));
    ASSERT_TRUE(same || std::fabs(x - y) <= relative * std::max(1.0, std::fabs(x)))
        << what << "[" << i << "]: expected " << x << ", got " << y;
  }
}

std::vector<Status> random_status(Random& random, int size, int longest) {
  std::vector<Status> status(static_cast<std::size_t>(size));
  for (Status& s : status) {
    s = {random.below(4) ? 0 : (random.below(2) ? kImpossible : kBadScore), random.below(5), random.below(3),
         random.below(longest + 1)};
  }
  return status;
}

struct Reduced {
  std::vector<double> out;
  double scale;
};

Reduced reduced_on_host(const std::vector<double>& value, const std::vector<Status>& status, double sign,
                        Reduction reduction, Outside outside) {
  std::vector<double> out;
  double share = 0;
  for (std::size_t i = 0; i < value.size(); ++i) {
    const bool out_of_it = outside != Outside::keep && status[i].outcome != 0;
    out.push_back(!out_of_it ? sign * value[i] : outside == Outside::skip ? 0 : sign * inf);
    if (!out_of_it || outside != Outside::skip) share += reduction == Reduction::token_mean ? status[i].length : 1;
  }
  if (reduction == Reduction::none) return {out, sign};
  if (reduction == Reduction::sum) share = 1;
  share = std::max(share, 1.0);
  return {{std::accumulate(out.begin(), out.end(), 0.0) / share}, sign / share};
}

TYPED_TEST(CudaLoss, IsReducedAsOnTheHost) {
  Random random(11);
  for (int round = 0; round < 300; ++round) {
    const int size = random.below(3) ? random.below(9) : random.below(2000);
    const auto reduction = static_cast<Reduction>(random.below(4));
    const auto outside = static_cast<Outside>(random.below(3));
    const double sign = random.below(2) ? 1 : -1;
    std::vector<double> value(static_cast<std::size_t>(size));
    for (double& v : value) v = 100 * random.uniform() - 20;
    const std::vector<Status> status = random_status(random, size, 50);
    const Reduced expected = reduced_on_host(value, status, sign, reduction, outside);

    const OnDevice<double> value_there{std::span<const double>(value)}, scale(1);
    const OnDevice<Status> status_there{std::span<const Status>(status)};
    const OnDevice<TypeParam> out(expected.out.size());
    const cuda::Loss loss{.sign = sign,
                          .reduction = reduction,
                          .outside = outside,
                          .out = {out.get(), TestFixture::kType},
                          .saved = {scale.get(), status_there.get(), value_there.get(), {}, {}}};
    cuda::reduce(size, loss, nullptr);
    expect_close(expected.out, out.host(), tolerance<TypeParam>, "loss");
    expect_close({expected.scale}, scale.host(), 1e-12, "scale");
    if (this->HasFailure()) return;
  }
}

// … and so it is by the last kernel of an expectation, whoever has to do sequences again there, and however many.
TYPED_TEST(CudaLoss, IsReducedBehindAnExpectation) {
  Random random(14);
  for (int round = 0; round < 60; ++round) {
    const int B = random.below(4) ? random.below(9) : random.below(300), T = 1 + random.below(9), K = 3;
    const Constraint constraint = Constraint::from_automaton(
        oracle::random_automaton(random, oracle::automaton_kinds[round % 3], K, random.between(1, 9)),
        numbered_labels(K));
    const auto numbers = [&](int count) {
      const double spread = random.below(3) ? 2 : 5000;
      std::vector<TypeParam> all(static_cast<std::size_t>(count));
      for (TypeParam& x : all) x = static_cast<TypeParam>(spread * (random.uniform() - 0.5));
      return all;
    };
    const std::vector<TypeParam> emissions = numbers(B * T * K), transitions = numbers(K * K);
    const DeviceBatch<TypeParam> batch(B, T, K, std::span<const TypeParam>(emissions),
                                       std::span<const TypeParam>(transitions));
    const auto reduction = static_cast<Reduction>(random.below(4));
    const auto outside = static_cast<Outside>(random.below(3));
    const OnDevice<TypeParam> out(reduction == Reduction::none ? static_cast<std::size_t>(B) : 1);
    const OnDevice<double> scale(1);
    const OnDevice<cuda::Failure> failure(1);
    must(cudaMemset(failure.get(), 0, sizeof(cuda::Failure)));
    std::vector<std::int64_t> places(static_cast<std::size_t>(B));
    std::iota(places.begin(), places.end(), 100);
    const OnDevice<std::int64_t> numbers_there{std::span<const std::int64_t>(places)};
    std::vector<std::int64_t> gold(batch.rows());
    for (std::int64_t& label : gold) label = random.below(K);
    const cuda::DeviceConstraint there(constraint);
    const auto got = run_expectation(
        batch, random.below(2) ? std::span<const std::int64_t>(gold) : std::span<const std::int64_t>(), true,
        [&](const cuda::Expectation& wanted) { return cuda::expectation_bytes(there, batch.view(), wanted); },
        [&](const cuda::Expectation& wanted, cuda::Memory memory) {
          const Type type = TestFixture::kType;
          const cuda::Loss loss{
              .objective = wanted.gold ? cuda::Objective::nll : cuda::Objective::log_z,
              .gold = wanted.gold,
              .sign = -1,
              .reduction = reduction,
              .outside = outside,
              .out = {out.get(), type},
              .saved = {scale.get(), wanted.status, wanted.value, wanted.emissions, wanted.transitions},
              .errors = Errors::all,
              .failure = failure.get(),
              .operation = 7,
              .sequence_ids = numbers_there.get()};
          EXPECT_EQ(cuda::loss_bytes(there, batch.view(), loss), B ? memory.size : 0);
          cuda::loss(there, batch.view(), loss, memory, nullptr);
        });
    const Reduced expected = reduced_on_host(got.value, got.status, -1, reduction, outside);
    expect_close(expected.out, out.host(), tolerance<TypeParam>, "loss");
    expect_close({expected.scale}, scale.host(), 1e-12, "scale");
    const cuda::Failure found = failure.host()[0];
    const auto bad = std::find_if(got.status.begin(), got.status.end(), [](const Status& s) { return s.outcome != 0; });
    EXPECT_EQ(found.status.outcome, bad == got.status.end() ? 0 : bad->outcome);
    if (bad != got.status.end()) {
      EXPECT_EQ(found.status.position, bad->position);
      EXPECT_EQ(found.sequence, 100 + (bad - got.status.begin()));
      EXPECT_EQ(found.operation, 7);
    }
    if (this->HasFailure()) return;
  }
}

TYPED_TEST(CudaLoss, KeepsTheFirstError) {
  Random random(12);
  for (int round = 0; round < 100; ++round) {
    const OnDevice<cuda::Failure> failure(1);
    must(cudaMemset(failure.get(), 0, sizeof(cuda::Failure)));
    std::optional<cuda::Failure> expected;
    for (int call = 1; call < 5; ++call) {
      const int size = random.below(80);
      const auto errors = static_cast<Errors>(random.below(3));
      const std::vector<Status> status = random_status(random, random.below(3) ? 0 : size, 9);
      std::vector<std::int64_t> numbers(status.size());
      std::iota(numbers.begin(), numbers.end(), call % 2 ? 0 : 1000);
      const std::vector<double> value(status.size());
      for (std::size_t i = 0; i < status.size() && !expected; ++i) {
        if (errors == Errors::all ? status[i].outcome != 0
                                  : errors == Errors::bad_scores && status[i].outcome == kBadScore)
          expected = cuda::Failure{status[i], static_cast<std::int32_t>(numbers[i]), call};
      }
      const OnDevice<double> value_there{std::span<const double>(value)}, scale(1);
      const OnDevice<Status> status_there{std::span<const Status>(status)};
      const OnDevice<std::int64_t> numbers_there{std::span<const std::int64_t>(numbers)};
      const OnDevice<TypeParam> out(1);
      const cuda::Loss loss{.reduction = Reduction::sum,
                            .out = {out.get(), TestFixture::kType},
                            .saved = {scale.get(), status_there.get(), value_there.get(), {}, {}},
                            .errors = errors,
                            .failure = failure.get(),
                            .operation = call,
                            .sequence_ids = call % 2 ? nullptr : numbers_there.get()};
      cuda::reduce(static_cast<std::int64_t>(status.size()), loss, nullptr);
    }
    const cuda::Failure found = failure.host()[0];
    ASSERT_EQ(found.status.outcome, expected ? expected->status.outcome : 0);
    if (!expected) continue;
    EXPECT_EQ(found.status.position, expected->status.position);
    EXPECT_EQ(found.status.length, expected->status.length);
    EXPECT_EQ(found.sequence, expected->sequence);
    EXPECT_EQ(found.operation, expected->operation);
  }
}

// Random counts, weights, mask and status of a batch, and the weighted sums as the host finds them.
template <class Real>
struct Scaled {
  Scaled(Random& random, int size, int length, int labels, bool batch_first, bool masked, int stride)
      : B(size), T(length), K(labels), weights(static_cast<std::size_t>(std::max(0, size - 1) * stride + 1)) {
    batch.size = B;
    batch.length = T;
    batch.batch_stride = batch_first ? T : 1;
    batch.time_stride = batch_first ? 1 : B;
    batch.transitions.type = device_type<Real>;
    const auto rows = static_cast<std::size_t>(B * T), k = static_cast<std::size_t>(K);
    emissions_counts.resize(rows * k, std::numeric_limits<Real>::quiet_NaN());  // what is absent is not read
    transitions_counts.resize(static_cast<std::size_t>(B) * k * k);
    emissions.resize(rows * k);
    transitions.resize(k * k);
    start.resize(k);
    end.resize(k);
    if (masked) mask.resize(rows);
    for (std::uint8_t& here : mask) here = random.below(3) != 0;
    for (Real& w : weights) w = static_cast<Real>(2 * random.uniform() - 1);
    for (Real& x : transitions_counts) x = static_cast<Real>(random.uniform());
    status = random_status(random, B, T);
    for (int i = 0; i < B; ++i) add(random, i, stride);
  }

  void add(Random& random, int i, int stride) {
    const double weight = scale * static_cast<double>(weights[static_cast<std::size_t>(i * stride)]);
    const bool fine = status[static_cast<std::size_t>(i)].outcome == 0;
    std::optional<std::size_t> first, last;
    for (int t = 0; t < T; ++t) {
      const auto row = static_cast<std::size_t>(i * batch.batch_stride + t * batch.time_stride);
      if (!mask.empty() && !mask[row]) continue;
      last = row;
      if (!first) first = row;
      for (int a = 0; a < K; ++a) {
        const std::size_t at = row * static_cast<std::size_t>(K) + static_cast<std::size_t>(a);
        emissions_counts[at] = static_cast<Real>(random.uniform());
        if (fine) emissions[at] = weight * static_cast<double>(emissions_counts[at]);
      }
    }
    if (!fine) return;
    const auto k = static_cast<std::size_t>(K);
    for (std::size_t a = 0; a < k && first; ++a) {
      start[a] += weight * static_cast<double>(emissions_counts[*first * k + a]);
      end[a] += weight * static_cast<double>(emissions_counts[*last * k + a]);
    }
    for (std::size_t ab = 0; ab < k * k; ++ab)
      transitions[ab] += weight * static_cast<double>(transitions_counts[static_cast<std::size_t>(i) * k * k + ab]);
  }

  int B, T, K;
  double scale = 0.125;
  cuda::Batch batch;
  std::vector<Real> weights, emissions_counts, transitions_counts;
  std::vector<std::uint8_t> mask;
  std::vector<Status> status;
  std::vector<double> emissions, transitions, start, end;  // expected
};

double number(double x) { return x; }
double number(float x) { return x; }
double number(__half x) { return __half2float(x); }
double number(__nv_bfloat16 x) { return __bfloat162float(x); }

template <class Real, class Out>
void expect_scaled(const Scaled<Real>& x, int stride, Type type, double emissions_tolerance) {
  const OnDevice<Real> weights{std::span<const Real>(x.weights)},
      emissions_counts{std::span<const Real>(x.emissions_counts)},
      transitions_counts{std::span<const Real>(x.transitions_counts)};
  const OnDevice<Status> status{std::span<const Status>(x.status)};
  const OnDevice<std::uint8_t> mask{std::span<const std::uint8_t>(x.mask)};
  const OnDevice<double> scale{std::span<const double>(&x.scale, 1)};
  const OnDevice<Out> emissions(x.emissions.size());
  const OnDevice<Real> transitions(x.transitions.size()), start(x.start.size()), end(x.end.size());
  cuda::Batch batch = x.batch;
  batch.mask = mask.get();
  const Type real = batch.type();
  const cuda::LossGradients all{
      .weights = {weights.get(), real},
      .weights_stride = stride,
      .saved = {scale.get(), status.get(), nullptr, {emissions_counts.get(), real}, {transitions_counts.get(), real}},
      .emissions = {emissions.get(), type},
      .transitions = {transitions.get(), real},
      .start = {start.get(), real},
      .end = {end.get(), real}};
  cuda::loss_gradients(batch, x.K, all, nullptr);
  std::vector<double> got;
  for (const Out& number_there : emissions.host()) got.push_back(number(number_there));
  expect_close(x.emissions, got, emissions_tolerance, "emissions");
  const double sums = tolerance<Real>;
  expect_close(x.transitions, transitions.host(), sums, "transitions");
  expect_close(x.start, start.host(), sums, "start");
  expect_close(x.end, end.host(), sums, "end");
  const OnDevice<Real> again(x.end.size());  // alone, and the same to the last bit
  cuda::LossGradients one = all;
  one.emissions = one.transitions = one.start = {};
  one.end.data = again.get();
  cuda::loss_gradients(batch, x.K, one, nullptr);
  EXPECT_EQ(again.host(), end.host());
}

TYPED_TEST(CudaLoss, GradientsAreSummedAsOnTheHost) {
  Random random(13);
  for (int round = 0; round < 300; ++round) {
    const int B = random.below(5) ? random.below(12) : random.below(300),
              T = random.below(6) ? random.below(9) : random.below(70), K = 1 + random.below(random.below(4) ? 8 : 50),
              stride = random.below(3);
    SCOPED_TRACE("B " + std::to_string(B) + " T " + std::to_string(T) + " K " + std::to_string(K));
    const Scaled<TypeParam> x(random, B, T, K, random.below(2) == 0, random.below(2) == 0, stride);
    switch (random.below(3)) {
      case 0:
        expect_scaled<TypeParam, __half>(x, stride, Type::f16, 1e-3);
        break;
      case 1:
        expect_scaled<TypeParam, __nv_bfloat16>(x, stride, Type::bf16, 1e-2);
        break;
      default:
        expect_scaled<TypeParam, TypeParam>(x, stride, x.batch.type(), tolerance<TypeParam>);
    }
    if (this->HasFailure()) return;
  }
}

}  // namespace
}  // namespace regccrf
