// Sentences become emissions as they come; decoding is one call of inference for all of them, and a second one, without
// the constraint, for those that have no legal sequence where the caller wants that.
#include "regccrf/tagger.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <span>

#include "base/spelling.h"
#include "constraint/pairs.h"
#include "inference/errors.h"
#include "regccrf/error.h"
#include "tagger/crfsuite_text.h"
#include "tagger/marked_scores.h"
#include "tagger/model_file.h"
#include "tagger/name_table.h"

namespace regccrf {
namespace {

constexpr std::string_view kNotForced = "_";
constexpr std::size_t kPending = 256;           // attributes looked up at a time
constexpr std::int64_t kMarkedCells = 1 << 20;  // emissions of marked labels that are decoded at a time

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// Attributes that are not yet in the emissions: they are looked up many at a time, so that memory is waited for once.
struct Pending {
  std::uint32_t hash, length;
  std::size_t begin;  // in pending_text_
  std::size_t row;    // in h_
  double value;
  std::int32_t number;
};

// An attribute that has weights for pairs of labels.
struct PairItem {
  std::int64_t row;
  std::int32_t number;
  double value;
};

// What a batch is decoded under, and the scores that go with it.
struct Question {
  const Constraint& constraint;
  const Constraint& language;  // whose mass is asked for …
  const Constraint& anything;  // … among all sequences
  Scores<double> scores;
};

}  // namespace

struct Tagger::Impl : AttributeSink {
  Impl(Model model, Extractor extractor, const TagOptions& options)
      : model_(std::move(model)),
        extractor_(std::move(extractor)),
        options_(options),
        anything_(Constraint::unconstrained(model_.labels())) {
    if (model_.has_pairs()) {
      marked_ = over_pairs(model_.decoding());
      marked_anything_ = over_pairs(anything_);
    }
    if (options_.k_best < 1)
      throw Error("[tag] k_best is " + std::to_string(options_.k_best) + "; 1 or more is needed");
    forget();
  }

  void add(Sentence& sentence);
  void attribute(std::string_view name, float value) override;
  void force(Label label);
  void next() override;
  void end();
  void forget();
  const std::vector<Tagged>& decode();
  std::string reason(std::int64_t i) const;

  void run(bool constrained, std::span<const std::int64_t> which);
  void run_marked(bool constrained, std::span<const std::int64_t> which);
  void answer(const Question& question, std::span<const std::int64_t> which);
  void find_paths(const Question& question, std::span<const std::int64_t> which);
  void find_marginals(const Question& question, std::span<const std::int64_t> which);
  void mark(std::span<const std::int64_t> which);
  Options inference_options();
  void take_marginals(Tagged& tagged, std::int64_t first, std::int64_t length) const;
  void force_row(std::int64_t row, Label label);
  Label forced_label(const Sentence& sentence, std::int64_t t) const;
  void settle();

  Model model_;
  Extractor extractor_;
  TagOptions options_;
  Workspace workspace_;
  Constraint anything_;  // every sequence of labels
  // The model's constraint and the same over marked labels (src/constraint/pairs.h), where the model weighs pairs.
  std::optional<Constraint> marked_, marked_anything_;

  std::vector<Pending> pending_;
  std::string pending_text_;
  std::vector<double> h_;  // [rows, K], and the present position's row
  std::int64_t rows_ = 0, known_ = 0;
  std::vector<std::int64_t> first_, length_;  // [sentences]
  std::vector<std::int64_t> decoded_length_;  // [sentences] of the last decode()
  std::vector<double> marginals_;             // [rows, K]
  std::vector<PairItem> pair_items_;          // by row
  std::vector<double> marked_h_;              // [rows, K · (K + 1)] of the sentences that are decoded now
  std::vector<std::int64_t> marked_first_, marked_length_;
  std::vector<Tagged> tagged_;
};

Tagger::Tagger(Model model, Extractor extractor, TagOptions options)
    : impl_(std::make_unique<Impl>(std::move(model), std::move(extractor), options)) {}
Tagger::~Tagger() = default;
Tagger::Tagger(Tagger&&) noexcept = default;
Tagger& Tagger::operator=(Tagger&&) noexcept = default;

const Model& Tagger::model() const { return impl_->model_; }
void Tagger::add(Sentence& sentence) { impl_->add(sentence); }
void Tagger::attribute(std::string_view name, float value) { impl_->attribute(name, value); }
void Tagger::force(Label label) { impl_->force(label); }
void Tagger::next() { impl_->next(); }
void Tagger::end() { impl_->end(); }
void Tagger::forget() { impl_->forget(); }
std::int64_t Tagger::positions() const { return impl_->rows_; }
std::int64_t Tagger::known() const { return impl_->known_; }
const std::vector<Tagged>& Tagger::decode() { return impl_->decode(); }
std::string Tagger::reason(std::int64_t i) const { return impl_->reason(i); }

void Tagger::Impl::forget() {
  pending_.clear();
  pending_text_.clear();
  pair_items_.clear();
  h_.assign(at(model_.labels().size()), 0);
  rows_ = 0;
  first_.clear();
  length_.clear();
}

void Tagger::Impl::add(Sentence& sentence) {
  sentence.split();
  extractor_.extract(sentence, *this);
  if (options_.forced_column >= 0) {
    for (std::int64_t t = 0; t < sentence.size(); ++t) {
      const Label label = forced_label(sentence, t);
      if (label != kUnknownLabel) force_row(rows_ - sentence.size() + t, label);
    }
  }
  end();
}

Label Tagger::Impl::forced_label(const Sentence& sentence, std::int64_t t) const {
  if (options_.forced_column >= sentence.fields(t)) {
    throw Error("[tag] " + sentence.where(t) + ": has " + std::to_string(sentence.fields(t)) +
                " columns, and forced labels are expected in column " + std::to_string(options_.forced_column + 1));
  }
  std::string_view name = sentence.field(t, options_.forced_column);
  std::string scratch;
  if (sentence.format == Format::crfsuite) name = unescape(name.substr(0, colon_of(name)), scratch);
  if (name.empty() || name == kNotForced) return kUnknownLabel;
  if (const auto label = model_.labels().find(name)) return *label;
  const auto near = nearest(name, model_.labels().names());
  throw Error("[tag] " + sentence.where(t) + ": the forced label '" + std::string(name) +
              "' is not a label of the model" + (near ? ": did you mean " + *near + "?" : ""));
}

void Tagger::Impl::attribute(std::string_view name, float value) {
  const std::uint32_t hash = hash_name(name);
  const std::span<const NameSlot> table = model_.view().name_table;
  __builtin_prefetch(&table[hash & (table.size() - 1)]);
  pending_.push_back({hash, static_cast<std::uint32_t>(name.size()), pending_text_.size(),
                      h_.size() - at(model_.labels().size()), value, -1});
  pending_text_.append(name);
  if (pending_.size() == kPending) settle();
}

// Every step asks for the memory that the next one needs, for all attributes, before the next one begins.
void Tagger::Impl::settle() {
  const ModelView& model = model_.view();
  const std::size_t mask = model.name_table.size() - 1;
  for (Pending& p : pending_) {
    std::size_t place = p.hash & mask;
    while (model.name_table[place].number >= 0 && model.name_table[place].hash != p.hash) place = (place + 1) & mask;
    p.number = model.name_table[place].number;
    if (p.number < 0) continue;
    __builtin_prefetch(&model.name_begin[at(p.number)]);
    __builtin_prefetch(&model.begin[at(p.number)]);
  }
  for (const Pending& p : pending_) {
    if (p.number < 0) continue;
    __builtin_prefetch(model.names.data() + model.name_begin[at(p.number)]);
    __builtin_prefetch(model.label.data() + model.begin[at(p.number)]);
    __builtin_prefetch(model.weight.data() + model.begin[at(p.number)]);
  }
  for (Pending& p : pending_) {
    if (p.number < 0) continue;
    const std::string_view name(pending_text_.data() + p.begin, p.length);
    if (model.name(p.number) != name) {
      const auto number = model_.find_attribute(name);
      if (!number) continue;
      p.number = *number;
    }
    ++known_;
    if (marked_ && model.pair_begin[at(p.number)] < model.pair_begin[at(p.number) + 1])
      pair_items_.push_back({static_cast<std::int64_t>(p.row) / model.labels.size(), p.number, p.value});
    double* const h = h_.data() + p.row;
    const std::int64_t end = model.begin[at(p.number) + 1];
    for (std::int64_t f = model.begin[at(p.number)]; f < end; ++f)
      h[model.label[at(f)]] += p.value * model.weight[at(f)];
  }
  pending_.clear();
  pending_text_.clear();
}

void Tagger::Impl::force_row(std::int64_t row, Label label) {
  const std::size_t K = at(model_.labels().size());
  for (std::size_t a = 0; a < K; ++a) {
    if (a != at(label)) h_[at(row) * K + a] = -std::numeric_limits<double>::infinity();
  }
}

void Tagger::Impl::force(Label label) {
  if (label < 0 || label >= model_.labels().size())
    throw Error("[tag] there is no label " + std::to_string(label) + " to force");
  force_row(rows_, label);
}

void Tagger::Impl::next() {
  h_.resize(h_.size() + at(model_.labels().size()));
  ++rows_;
}

void Tagger::Impl::end() {
  first_.push_back(length_.empty() ? 0 : first_.back() + length_.back());
  length_.push_back(rows_ - first_.back());
}

const std::vector<Tagged>& Tagger::Impl::decode() {
  settle();
  h_.resize(at(rows_) * at(model_.labels().size()));
  tagged_.resize(first_.size());
  std::vector<std::int64_t> which(first_.size());
  for (std::size_t i = 0; i < which.size(); ++i) which[i] = static_cast<std::int64_t>(i);
  run(true, which);
  std::vector<std::int64_t> none;
  for (std::int64_t i : which) {
    tagged_[at(i)].free = false;
    if (tagged_[at(i)].paths.empty()) none.push_back(i);
  }
  decoded_length_ = length_;
  if (!none.empty() && options_.no_sequence == NoSequence::error) {
    const std::string reason = "[tag] sentence " + std::to_string(none[0]) + " " + this->reason(none[0]);
    forget();
    throw Error(reason);
  }
  if (!none.empty() && options_.no_sequence == NoSequence::free) {
    run(false, none);
    for (std::int64_t i : none) tagged_[at(i)].free = true;
  }
  forget();
  return tagged_;
}

// Fills tagged_[i] for every i of `which`.
void Tagger::Impl::run(bool constrained, std::span<const std::int64_t> which) {
  if (which.empty()) return;
  if (marked_) return run_marked(constrained, which);
  std::vector<std::int64_t> first, length;
  for (std::int64_t i : which) {
    first.push_back(first_[at(i)]);
    length.push_back(length_[at(i)]);
  }
  const Scores<double> scores(h_, model_.transitions(), Layout::ragged(first, length));
  answer({constrained ? model_.decoding() : anything_, model_.decoding(), anything_, scores}, which);
}

// The same over marked labels, some sentences at a time: rows are K + 1 times as long.
void Tagger::Impl::run_marked(bool constrained, std::span<const std::int64_t> which) {
  const MarkedLabels marked{model_.labels().size()};
  for (std::size_t begin = 0, end = 0; begin < which.size(); begin = end) {
    for (std::int64_t rows = 0; end < which.size() && (end == begin || rows * marked.size() < kMarkedCells); ++end)
      rows += length_[at(which[end])];
    const std::span<const std::int64_t> some = which.subspan(begin, end - begin);
    mark(some);
    const Layout layout = Layout::ragged(marked_first_, marked_length_);
    const Scores<double> scores = Scores<double>(marked_h_, {}, layout).with_labels(marked.size());
    answer({constrained ? *marked_ : *marked_anything_, *marked_, *marked_anything_, scores}, some);
  }
}

// Emissions of marked labels, for these sentences one after another.
void Tagger::Impl::mark(std::span<const std::int64_t> which) {
  const MarkedLabels marked{model_.labels().size()};
  const auto before = [](const PairItem& item, std::int64_t row) { return item.row < row; };
  marked_first_.clear();
  marked_length_.clear();
  std::int64_t rows = 0;
  for (std::int64_t i : which) {
    marked_first_.push_back(rows);
    marked_length_.push_back(length_[at(i)]);
    rows += length_[at(i)];
  }
  marked_h_.resize(at(rows) * at(marked.size()));
  for (std::size_t n = 0; n < which.size(); ++n) {
    const std::int64_t first = first_[at(which[n])], length = length_[at(which[n])];
    const auto out = std::span(marked_h_).subspan(at(marked_first_[n] * marked.size()), at(length * marked.size()));
    mark_emissions(marked.K, std::span(h_).subspan(at(first * marked.K), at(length * marked.K)), model_.transitions(),
                   out);
    for (auto item = std::lower_bound(pair_items_.begin(), pair_items_.end(), first, before);
         item != pair_items_.end() && item->row < first + length; ++item) {
      double* const h = out.data() + (item->row - first) * marked.size();
      const auto number = at(item->number);
      for (std::int64_t f = model_.pair_begin()[number]; f < model_.pair_begin()[number + 1]; ++f)
        h[model_.pair()[at(f)]] += item->value * model_.pair_weight()[at(f)];
    }
  }
}

Options Tagger::Impl::inference_options() {
  Options options;
  options.workspace = &workspace_;
  options.threads = options_.threads;
  options.impossible = Impossible::allow;
  return options;
}

void Tagger::Impl::answer(const Question& question, std::span<const std::int64_t> which) {
  find_paths(question, which);
  if (options_.scores) {
    const std::vector<double> all = log_z(question.constraint, question.scores, inference_options());
    for (std::size_t n = 0; n < which.size(); ++n) {
      for (Path& path : tagged_[at(which[n])].paths) path.score = std::min(path.score - all[n], 0.0);
    }
  }
  if (options_.scores || options_.all_marginals) find_marginals(question, which);
  if (options_.language_mass) {
    const std::vector<double> legal = log_z(question.language, question.scores, inference_options()),
                              all = log_z(question.anything, question.scores, inference_options());
    for (std::size_t n = 0; n < which.size(); ++n)
      tagged_[at(which[n])].language_mass = std::min(1.0, std::exp(legal[n] - all[n]));
  }
}

void Tagger::Impl::find_paths(const Question& question, std::span<const std::int64_t> which) {
  if (options_.k_best > 1) {
    std::vector<std::vector<Path>> paths =
        k_best(question.constraint, question.scores, options_.k_best, inference_options());
    for (std::size_t n = 0; n < which.size(); ++n) tagged_[at(which[n])].paths = std::move(paths[n]);
  } else {
    std::vector<Path> paths = viterbi(question.constraint, question.scores, inference_options());
    for (std::size_t n = 0; n < which.size(); ++n) {
      Tagged& tagged = tagged_[at(which[n])];
      tagged.paths.clear();
      if (std::isfinite(paths[n].score)) tagged.paths.push_back(std::move(paths[n]));
    }
  }
  if (!marked_) return;
  const MarkedLabels marked{model_.labels().size()};
  for (const std::int64_t i : which) {
    for (Path& path : tagged_[at(i)].paths) {
      for (Label& label : path.labels) label = marked.label(label);
    }
  }
}

void Tagger::Impl::find_marginals(const Question& question, std::span<const std::int64_t> which) {
  marginals_.resize(question.scores.emissions.size());
  label_marginals<double>(question.constraint, question.scores, marginals_, inference_options());
  if (marked_) {
    const MarkedLabels marked{model_.labels().size()};
    std::vector<double> sums(marginals_.size() / at(marked.size()) * at(marked.K));
    sum_marks(marked.K, marginals_, sums);
    marginals_.swap(sums);
  }
  const Layout& layout = question.scores.layout;
  for (std::size_t n = 0; n < which.size(); ++n) {
    const auto i = static_cast<std::int64_t>(n);
    take_marginals(tagged_[at(which[n])], layout.first(i), layout.length(i, 0));
  }
}

void Tagger::Impl::take_marginals(Tagged& tagged, std::int64_t first, std::int64_t length) const {
  const std::size_t K = at(model_.labels().size());
  const std::span<const double> rows(marginals_.data() + at(first) * K, at(length) * K);
  tagged.marginals.clear();
  for (std::size_t t = 0; !tagged.paths.empty() && t < at(length); ++t) {
    tagged.marginals.push_back(std::min(rows[t * K + at(tagged.paths[0].labels[t])], 1.0));
  }
  if (options_.all_marginals) tagged.all_marginals.assign(rows.begin(), rows.end());
}

std::string Tagger::Impl::reason(std::int64_t i) const {
  return no_sequence_message(decoded_length_[at(i)], model_.decoding(),
                             "no sequence of the language agrees with the forced labels");
}

}  // namespace regccrf
