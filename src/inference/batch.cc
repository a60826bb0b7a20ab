// Checks for a call, and its threads (see batch.h).
#include "inference/batch.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>
#include <thread>
#include <utility>

#include "inference/numerics/limits.h"

namespace regccrf {

namespace {

template <class Real>
bool acceptable(Real x) {
  return x < std::numeric_limits<Real>::infinity();  // false for NaN too
}

template <class Real>
bool too_large(Real x) {
  constexpr Real most = static_cast<Real>(kLargestScore), none = -std::numeric_limits<Real>::infinity();
  return x > most || (x < -most && x > none);
}

template <class Real>
Real bounded(Real x) {
  return static_cast<Real>(bounded_score(static_cast<double>(x)));
}

// Lets `numbers` be a bounded copy, in `copy`, if they have to be.
template <class Real>
void bound(std::span<const Real>& numbers, std::vector<Real>& copy) {
  if (std::none_of(numbers.begin(), numbers.end(), too_large<Real>)) return;
  copy.resize(numbers.size());
  std::transform(numbers.begin(), numbers.end(), copy.begin(), bounded<Real>);
  numbers = copy;
}

template <class Real>
std::string spell(Real x) {
  return std::isnan(x) ? "NaN" : "+inf";
}

template <class Real>
void check_per_label(const char* operation, const char* what, std::span<const Real> values, const Labels& labels) {
  for (int a = 0; a < labels.size() && !values.empty(); ++a) {
    if (acceptable(values[a])) continue;
    throw Error(at(operation) + what + " score of label " + labels.name(a) + " is " + spell(values[a]) +
                "; scores must be finite or -inf");
  }
}

}  // namespace

template <class Real>
Batch<Real>::Batch(const char* operation, const Constraints& constraints, const Scores<Real>& scores,
                   const Options& options, KeptRules rules)
    : operation_(operation), constraints_(constraints), scores_(scores), options_(options) {
  check_shapes();
  if (rules == KeptRules::refused) check_rules();
  check_layout();
  check_choice();
  check_model();
  if (options.workspace == nullptr) own_ = std::make_unique<Workspace>();
  workspace_ = &(options.workspace ? options.workspace : own_.get())->impl();
  members_ = members_worth_waking();
  while (static_cast<int>(workspace_->arenas.size()) < members_)
    workspace_->arenas.push_back(std::make_unique<Arena>());
  workspace_->shared.rewind();
}

template <class Real>
void Batch<Real>::check_shapes() {
  const std::size_t K = static_cast<std::size_t>(std::max(scores_.labels, 0));
  if (constraints_.all().empty()) throw Error(at(operation_) + "no constraint was given");
  for (const Constraint& constraint : constraints_.all()) {
    if (constraint.labels().size() == scores_.labels) continue;
    throw Error(at(operation_) + "scores have " + std::to_string(scores_.labels) + " labels, the constraint has " +
                std::to_string(constraint.labels().size()));
  }
  if (K == 0) {
    if (!scores_.emissions.empty()) throw Error(at(operation_) + "emissions were given for 0 labels");
  } else if (scores_.emissions.size() % K != 0) {
    throw Error(at(operation_) + "emissions have " + std::to_string(scores_.emissions.size()) +
                " entries, which is no multiple of " + std::to_string(K) + " labels (expected [rows, K])");
  }
  if (!scores_.transitions.empty()) check_size(operation_, "transitions", scores_.transitions.size(), K * K, "[K, K]");
  if (!scores_.start.empty()) check_size(operation_, "start", scores_.start.size(), K, "[K]");
  if (!scores_.end.empty()) check_size(operation_, "end", scores_.end.size(), K, "[K]");
  rows_ = K == 0 ? 0 : static_cast<std::int64_t>(scores_.emissions.size() / K);
}

template <class Real>
void Batch<Real>::check_layout() {
  const Layout& layout = scores_.layout;
  size_ = layout.size();
  if (!layout.mask().empty())
    check_size(operation_, "mask", layout.mask().size(), static_cast<std::size_t>(rows_), "[rows]");
  if (layout.steps()) check_padded(*layout.steps());
  for (std::int64_t i = 0; i < size_; ++i) {
    const std::int64_t first = layout.first(i), length = this->length(i);
    if (length < 0 || first < 0 || (length > 0 && first + (length - 1) * layout.stride() >= rows_)) {
      throw Error(at(operation_, i) + " starts at row " + std::to_string(first) + " with length " +
                      std::to_string(length) + " and stride " + std::to_string(layout.stride()) +
                      ", past the emissions' " + std::to_string(rows_) + " rows",
                  ErrorKind::invalid, {i, {}});
    }
  }
}

template <class Real>
void Batch<Real>::check_padded(std::int64_t steps) const {
  if (size_ < 0 || steps < 0 || (K() > 0 && size_ * steps != rows_)) {
    throw Error(at(operation_) + "the layout is padded with B = " + std::to_string(size_) + ", T = " +
                std::to_string(steps) + ", and the emissions have " + std::to_string(rows_) + " rows; expected B · T");
  }
  for (std::int64_t i = 0; i < size_; ++i) {
    if (length(i) <= steps) continue;
    throw Error(at(operation_, i) + " has length " + std::to_string(length(i)) + ", and the layout is padded to " +
                    std::to_string(steps),
                ErrorKind::invalid, {i, {}});
  }
}

template <class Real>
void Batch<Real>::check_choice() const {
  if (constraints_.which().empty()) return;
  check_size(operation_, "the choice of constraints", constraints_.which().size(), static_cast<std::size_t>(size_),
             "[B]");
  for (std::int64_t i = 0; i < size_; ++i) {
    if (which(i) >= 0 && which(i) < constraints()) continue;
    throw Error(
        at(operation_, i) + " asks for constraint " + std::to_string(which(i)) + " of " + std::to_string(constraints()),
        ErrorKind::invalid, {i, {}});
  }
}

template <class Real>
void Batch<Real>::check_rules() const {
  for (const Constraint& constraint : constraints_.all()) {
    if (constraint.rules() == 0) continue;
    throw Error(at(operation_) + "the constraint keeps " + std::to_string(constraint.rules()) +
                " rules beside its base, and this operation needs one automaton for all of them. Where the language is "
                "small enough, compile it with rules \"none\" (Rules::none, --rules none)");
  }
}

template <class Real>
void Batch<Real>::check_model() {
  const Labels& labels = constraints_.all()[0].labels();
  const std::size_t K = static_cast<std::size_t>(labels.size());
  for (std::size_t ab = 0; ab < scores_.transitions.size(); ++ab) {
    if (acceptable(scores_.transitions[ab])) continue;
    throw Error(at(operation_) + "transition score from label " + labels.name(static_cast<Label>(ab / K)) + " to " +
                labels.name(static_cast<Label>(ab % K)) + " is " + spell(scores_.transitions[ab]) +
                "; scores must be finite or -inf");
  }
  check_per_label(operation_, "start", scores_.start, labels);
  check_per_label(operation_, "end", scores_.end, labels);
  bound(scores_.transitions, bounded_[0]);
  bound(scores_.start, bounded_[1]);
  bound(scores_.end, bounded_[2]);
}

// A thread must have something to do that is worth waking it for.
template <class Real>
int Batch<Real>::members_worth_waking() const {
  std::int64_t products = 0;
  for (std::int64_t i = 0; i < size_; ++i) products += length(i) * constraint(i).size().products;
  const std::int64_t threads =
      options_.threads > 0 ? options_.threads : std::max(1u, std::thread::hardware_concurrency());
  return static_cast<int>(std::max<std::int64_t>(1, std::min({threads, size_, products / 500'000})));
}

template <class Real>
bool Batch<Real>::keeps_rules() const {
  const auto& all = constraints_.all();
  return std::any_of(all.begin(), all.end(), [](const Constraint& constraint) { return constraint.rules() > 0; });
}

template <class Real>
std::int64_t Batch<Real>::length(std::int64_t i) const {
  return scores_.layout.length(i, rows_);
}

template <class Real>
Sequence<Real> Batch<Real>::sequence(std::int64_t i, Arena& arena) const {
  const Layout& layout = scores_.layout;
  const std::int64_t first = layout.first(i), length = this->length(i);
  Sequence<Real> sequence{i, length, K(), scores_.emissions.data(), first, layout.stride(), nullptr};
  if (layout.mask().empty()) return sequence;
  auto* rows = arena.take<std::int64_t>(static_cast<std::size_t>(length));
  std::int64_t T = 0;
  for (std::int64_t t = 0; t < length; ++t) {
    const std::int64_t row = first + t * layout.stride();
    if (layout.mask()[row]) rows[T++] = row;
  }
  sequence.T = T;
  if (T < length) sequence.rows = rows;
  return sequence;
}

template <class Real>
bool Batch<Real>::check(const Sequence<Real>& sequence) const {
  constexpr Real most = static_cast<Real>(kLargestScore);
  bool large = false;
  for (std::int64_t t = 0; t < sequence.T; ++t) {
    const Real* h = sequence.at(t);
    int unusual = 0;
    for (int a = 0; a < sequence.K; ++a) unusual += !(std::abs(h[a]) <= most);
    if (unusual == 0) continue;
    large = large || std::any_of(h, h + sequence.K, too_large<Real>);
    const int a = static_cast<int>(std::find_if_not(h, h + sequence.K, acceptable<Real>) - h);
    if (a == sequence.K) continue;
    throw Error(at(operation_, sequence.index) + ", position " + std::to_string(t) + ": emission score of label " +
                    constraint(sequence.index).labels().name(a) + " is " + spell(h[a]) +
                    "; scores must be finite or -inf",
                ErrorKind::invalid, {sequence.index, t});
  }
  return !large;
}

template <class Real>
const Real* bounded_rows(const Sequence<Real>& sequence, Arena& arena) {
  const auto K = static_cast<std::size_t>(sequence.K);
  Real* rows = arena.take<Real>(static_cast<std::size_t>(sequence.T) * K);
  for (std::int64_t t = 0; t < sequence.T; ++t)
    std::transform(sequence.at(t), sequence.at(t) + K, rows + t * sequence.K, bounded<Real>);
  return rows;
}

template <class Real>
void Batch<Real>::each(const Job& job) const {
  std::atomic<std::int64_t> next{0};
  std::mutex mutex;
  std::int64_t failed = size_;
  std::exception_ptr error;
  const std::function<void(int)> serve = [&](int member) {
    Arena& arena = *workspace_->arenas[member];
    for (std::int64_t i; (i = next.fetch_add(1)) < size_;) {
      try {
        arena.rewind();
        Sequence<Real> sequence = this->sequence(i, arena);
        if (!check(sequence)) sequence.bounded = bounded_rows(sequence, arena);
        job(sequence, member, arena);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (i < failed) {
          failed = i;
          error = std::current_exception();
        }
      }
    }
  };
  workspace_->pool.run(members_, serve);
  workspace_->sequences += size_;
  if (error) std::rethrow_exception(error);
}

template <class Real>
void Batch<Real>::impossible(const Sequence<Real>& sequence) const {
  if (options_.impossible == Impossible::allow) return;
  throw impossible_error(operation_, sequence.index, sequence.T, constraint(sequence.index));
}

template class Batch<float>;
template class Batch<double>;

}  // namespace regccrf
