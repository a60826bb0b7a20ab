// Models as values: their parts may be vectors that a trainer made or a file that is mapped into memory.
#include "regccrf/model.h"

#include <algorithm>
#include <cstring>

#include "automaton/automaton.h"
#include "base/file.h"
#include "regccrf/error.h"
#include "tagger/model_file.h"
#include "tagger/name_table.h"

namespace regccrf {

struct Model::Impl {
  std::shared_ptr<const void> memory;  // what `view` points into
  ModelView view;
  Constraint unconstrained;

  Impl(std::shared_ptr<const void> m, ModelView v)
      : memory(std::move(m)), view(std::move(v)), unconstrained(Constraint::unconstrained(view.labels)) {}
};

Model::Model(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

Model::Model(ModelParts given) {
  auto parts = std::make_shared<ModelParts>(std::move(given));
  const Names::Impl& names = parts->attributes.impl();
  ModelView view{.labels = parts->labels,
                 .extractor = parts->extractor,
                 .names = names.text,
                 .name_begin = names.begin,
                 .name_table = names.table,
                 .begin = parts->begin,
                 .label = parts->label,
                 .weight = parts->weight,
                 .transitions = parts->transitions,
                 .pair_begin = parts->pair_begin,
                 .pair = parts->pair,
                 .pair_weight = parts->pair_weight,
                 .constraint = parts->constraint,
                 .constrain = parts->constrain,
                 .facts = parts->facts};
  check_model(view, "[model] ");
  impl_ = std::make_shared<const Impl>(std::move(parts), std::move(view));
}

const Labels& Model::labels() const { return impl_->view.labels; }
const std::string& Model::extractor() const { return impl_->view.extractor; }
std::int32_t Model::attributes() const { return static_cast<std::int32_t>(impl_->view.name_begin.size()) - 1; }
std::string_view Model::attribute(std::int32_t number) const { return impl_->view.name(number); }
std::optional<std::int32_t> Model::find_attribute(std::string_view name) const {
  const ModelView& view = impl_->view;
  return find_name(name, hash_name(name), view.name_table, [&](std::int32_t number) { return view.name(number); });
}
const ModelView& Model::view() const { return impl_->view; }
std::span<const std::int64_t> Model::begin() const { return impl_->view.begin; }
std::span<const Label> Model::label() const { return impl_->view.label; }
std::span<const double> Model::weight() const { return impl_->view.weight; }
std::span<const double> Model::transitions() const { return impl_->view.transitions; }
bool Model::has_pairs() const { return !impl_->view.pair.empty(); }
std::span<const std::int64_t> Model::pair_begin() const { return impl_->view.pair_begin; }
std::span<const std::int32_t> Model::pair() const { return impl_->view.pair; }
std::span<const double> Model::pair_weight() const { return impl_->view.pair_weight; }
const std::optional<Constraint>& Model::constraint() const { return impl_->view.constraint; }
Constrain Model::constrain() const { return impl_->view.constrain; }
const std::string& Model::facts() const { return impl_->view.facts; }

const Constraint& Model::decoding() const {
  const bool constrained = constraint() && constrain() != Constrain::none;
  return constrained ? *constraint() : impl_->unconstrained;
}

Model Model::with_constraint(std::optional<Constraint> constraint, Constrain constrain) const {
  ModelView view = impl_->view;
  view.constraint = std::move(constraint);
  view.constrain = constrain;
  check_model(view, "[model] ");
  return Model(std::make_shared<const Impl>(impl_->memory, std::move(view)));
}

void Model::save(const std::string& path) const {
  std::string constraint_bytes;
  const SafetensorsPieces pieces = encode_model(impl_->view, constraint_bytes);
  std::vector<std::string_view> all{pieces.header};
  all.insert(all.end(), pieces.tensors.begin(), pieces.tensors.end());
  write_file(path, all);
}

Model Model::load(const std::string& path) {
  auto file = std::make_shared<const MappedFile>(path);
  ModelView view = decode_model(file->bytes(), path);
  return Model(std::make_shared<const Impl>(std::move(file), std::move(view)));
}

std::string Model::to_bytes() const {
  std::string constraint_bytes;
  SafetensorsPieces pieces = encode_model(impl_->view, constraint_bytes);
  for (std::string_view tensor : pieces.tensors) pieces.header += tensor;
  return std::move(pieces.header);
}

Model Model::from_bytes(std::string_view bytes) {
  // Doubles, because tensors are read where they lie.
  auto memory = std::make_shared<std::vector<double>>((bytes.size() + sizeof(double) - 1) / sizeof(double));
  if (!bytes.empty()) std::memcpy(memory->data(), bytes.data(), bytes.size());
  ModelView view = decode_model({reinterpret_cast<const char*>(memory->data()), bytes.size()}, "model bytes");
  return Model(std::make_shared<const Impl>(std::move(memory), std::move(view)));
}

namespace {

// The automaton's sequences of labels that have a number, under that number.
Automaton renumbered(const Automaton& automaton, const std::vector<Label>& number) {
  Automaton result{automaton.start, automaton.accepting, {}};
  for (const Arc& arc : automaton.arcs) {
    const Label label = number[static_cast<std::size_t>(arc.label)];
    if (label >= 0) result.arcs.push_back({arc.from, label, arc.to});
  }
  std::sort(result.arcs.begin(), result.arcs.end());
  return without_useless_states(result);
}

void refuse_empty(const Automaton& automaton) {
  if (!automaton.arcs.empty() || automaton.accepting[static_cast<std::size_t>(automaton.start)]) return;
  throw Error(
      "[constraint] every sequence of the language has a label that the model does not have; check how the labels are "
      "spelled");
}

}  // namespace

Constraint fit_constraint(const Constraint& constraint, const Labels& labels, std::vector<std::string>* missing) {
  if (constraint.labels() == labels) return constraint;
  std::vector<Label> number;  // [the constraint's K], -1 where `labels` has no such name
  for (const std::string& name : constraint.labels().names()) number.push_back(labels.find(name).value_or(-1));
  const Constraint base = constraint.base();
  std::vector<std::uint8_t> lacks(number.size());
  for (const Arc& arc : base.automaton().arcs)
    lacks[static_cast<std::size_t>(arc.label)] = number[static_cast<std::size_t>(arc.label)] < 0;
  for (std::size_t a = 0; missing != nullptr && a < lacks.size(); ++a) {
    if (lacks[a]) missing->push_back(constraint.labels().name(static_cast<Label>(a)));
  }
  Automaton automaton = renumbered(base.automaton(), number);
  refuse_empty(automaton);
  std::vector<Rule> rules;
  for (const Rule& rule : constraint.memory_list()) {
    rules.push_back({renumbered(rule.automaton, number), rule.texts});
    refuse_empty(rules.back().automaton);
  }
  return Constraint::with_rules(
      Constraint::from_automaton(std::move(automaton), labels, constraint.method(), constraint.text()),
      std::move(rules));
}

template <class Real>
void emissions(const Model& model, const Dataset& data, std::int64_t first, std::int64_t last, std::span<Real> out) {
  const auto K = static_cast<std::size_t>(model.labels().size());
  const std::size_t rows = static_cast<std::size_t>(last - first);
  if (first < 0 || last < first || last > data.positions() || out.size() != rows * K) {
    throw Error("[emissions] positions " + std::to_string(first) + " to " + std::to_string(last) + " of " +
                std::to_string(data.positions()) + " into an array of " + std::to_string(out.size()) +
                " numbers; [last - first, K] is needed");
  }
  if (model.has_pairs())
    throw Error(
        "[emissions] the model has weights for pairs of labels, so its scores are not emissions and "
        "transitions alone; Tagger knows them");
  const std::int64_t* const begin = model.begin().data();
  const Label* const label = model.label().data();
  const double* const weight = model.weight().data();
  std::vector<double> row(K);
  for (std::size_t t = 0; t < rows; ++t) {
    std::fill(row.begin(), row.end(), 0.0);
    const auto position = static_cast<std::size_t>(first) + t;
    for (std::int64_t i = data.item[position]; i < data.item[position + 1]; ++i) {
      const auto attribute = static_cast<std::size_t>(data.attribute[static_cast<std::size_t>(i)]);
      const double value = data.value.empty() ? 1.0 : data.value[static_cast<std::size_t>(i)];
      for (std::int64_t f = begin[attribute]; f < begin[attribute + 1]; ++f)
        row[static_cast<std::size_t>(label[f])] += value * weight[f];
    }
    for (std::size_t a = 0; a < K; ++a) out[t * K + a] = static_cast<Real>(row[a]);
  }
}

template void emissions(const Model&, const Dataset&, std::int64_t, std::int64_t, std::span<float>);
template void emissions(const Model&, const Dataset&, std::int64_t, std::int64_t, std::span<double>);

}  // namespace regccrf
