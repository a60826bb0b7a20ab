// Model: a trained tagger. Labels, which attributes have weights for which labels, transitions, and the constraint that
// its output obeys. Immutable, cheap to copy, safe to share between threads; a file is read by memory map.
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

struct ModelView;  // src/tagger/model_file.h

// When the constraint counts: in training and decoding, in decoding alone, or never.
enum class Constrain { train, decode, none };

// What a model is made of, as the trainer or an import hands it over.
struct ModelParts {
  Labels labels;
  std::string extractor;  // how input becomes attributes: see extract.h
  Names attributes;
  std::vector<std::int64_t> begin;  // [attributes + 1] into label and weight; a run's labels ascend
  std::vector<Label> label;         // [features]
  std::vector<double> weight;       // [features]
  std::vector<double> transitions;  // [K, K] from, to
  // Weights of attributes for a label together with the one before it. All three are empty where there are none.
  std::vector<std::int64_t> pair_begin = {};  // [attributes + 1] into pair and pair_weight; a run's pairs ascend
  std::vector<std::int32_t> pair = {};        // [pairs] from · K + to
  std::vector<double> pair_weight = {};       // [pairs]
  std::optional<Constraint> constraint;
  Constrain constrain = Constrain::none;
  std::string facts;  // how it was trained, a JSON object
};

class Model {
 public:
  explicit Model(ModelParts parts);  // Error where shapes disagree or a weight is not finite

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

  // What output obeys: the constraint, or any sequence where there is none or `constrain` is none.
  const Constraint& decoding() const;
  // The same weights under another constraint over the same labels (see fit_constraint), or none.
  Model with_constraint(std::optional<Constraint> constraint, Constrain constrain) const;

  void save(const std::string& path) const;    // whole or not at all
  static Model load(const std::string& path);  // Error for a file that is damaged, not ours or of a newer version
  std::string to_bytes() const;                // what save() writes
  static Model from_bytes(std::string_view bytes);

  const ModelView& view() const;  // for the library's own rooms

 private:
  struct Impl;
  explicit Model(std::shared_ptr<const Impl> impl);
  std::shared_ptr<const Impl> impl_;
};

// The constraint's sequences over another alphabet, matched by name. Those with labels that `labels` lacks are left out
// (their names in `missing`, if given); Error where none is left.
Constraint fit_constraint(const Constraint& constraint, const Labels& labels,
                          std::vector<std::string>* missing = nullptr);

// h[t, a] of the positions `first` … `last` - 1 of `data`, whose attributes are numbered as the model's. Error where
// the model has weights for pairs, whose scores are more than emissions and transitions.
// `out`: [last - first, K]
template <class Real>
void emissions(const Model& model, const Dataset& data, std::int64_t first, std::int64_t last, std::span<Real> out);

}  // namespace regccrf
