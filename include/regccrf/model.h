// Model: a trained tagger. It has labels, the weights of attributes and of transitions, and the constraint that its
// output obeys. Immutable, cheap to copy, safe to share between threads. Loading a file maps it into memory.
//
//   score(y) = Σ_t Σ_{attributes i at t} value_i · weight[i, y_t] + Σ_t transitions[y_t, y_{t+1}]
//            + Σ_{t > 0} Σ_{attributes i at t} value_i · pair_weight[i, y_{t-1}, y_t]
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "regccrf/constraint.h"
#include "regccrf/dataset.h"
#include "regccrf/labels.h"
#include "regccrf/names.h"

namespace regccrf {

struct ModelView;  // internal: src/tagger/model_file.h

// When the constraint is used: in training and decoding, only in decoding, or never.
enum class Constrain { train, decode, none };

// The parts of a model, as the trainer or an import makes them.
struct ModelParts {
  Labels labels;
  std::string extractor;  // how input becomes attributes: see extract.h
  Names attributes;
  std::vector<std::int64_t> begin;  // [attributes + 1] into label and weight; a run's labels ascend
  std::vector<Label> label;         // [features]
  std::vector<double> weight;       // [features]
  std::vector<double> transitions;  // [K, K] from, to
  // Weights of attributes for a label together with the one before it. All three may be empty.
  std::vector<std::int64_t> pair_begin = {};  // [attributes + 1] into pair and pair_weight; a run's pairs ascend
  std::vector<std::int32_t> pair = {};        // [pairs] from · K + to
  std::vector<double> pair_weight = {};       // [pairs]
  std::optional<Constraint> constraint;
  Constrain constrain = Constrain::none;
  std::string facts;  // how it was trained, a JSON object
};

class Model {
 public:
  explicit Model(ModelParts parts);  // Error if shapes disagree or a weight is not finite

  const Labels& labels() const;
  const std::string& extractor() const;
  std::int32_t attributes() const;
  std::string_view attribute(std::int32_t number) const;
  std::optional<std::int32_t> find_attribute(std::string_view name) const;
  std::span<const std::int64_t> begin() const;
  std::span<const Label> label() const;
  std::span<const double> weight() const;
  std::span<const double> transitions() const;
  bool has_pairs() const;
  std::span<const std::int64_t> pair_begin() const;
  std::span<const std::int32_t> pair() const;
  std::span<const double> pair_weight() const;
  const std::optional<Constraint>& constraint() const;
  Constrain constrain() const;
  const std::string& facts() const;

  // The constraint of the output. It allows every sequence if there is none, or if `constrain` is none.
  const Constraint& decoding() const;
  // The same weights under another constraint over the same labels (see fit_constraint), or none.
  Model with_constraint(std::optional<Constraint> constraint, Constrain constrain) const;

  void save(const std::string& path) const;    // an incomplete file is never left
  static Model load(const std::string& path);  // Error if the file is damaged, is not a model, or is of a newer version
  std::string to_bytes() const;                // what save() writes
  static Model from_bytes(std::string_view bytes);

  const ModelView& view() const;  // internal

 private:
  struct Impl;
  explicit Model(std::shared_ptr<const Impl> impl);
  std::shared_ptr<const Impl> impl_;
};

// The constraint's sequences over another alphabet, matched by name. Sequences with labels that are not in `labels` are
// left out (`missing` receives the names of these labels). Error if no sequence is left.
Constraint fit_constraint(const Constraint& constraint, const Labels& labels,
                          std::vector<std::string>* missing = nullptr);

// h[t, a] of the positions `first` … `last` - 1 of `data`, whose attributes are numbered as the model's. Error if
// the model has weights for pairs of labels: their scores are not emissions. `out`: [last - first, K]
template <class Real>
void emissions(const Model& model, const Dataset& data, std::int64_t first, std::int64_t last, std::span<Real> out);

}  // namespace regccrf
