// A model as bytes: the safetensors layout, read in place.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/safetensors.h"
#include "regccrf/model.h"
#include "tagger/name_table.h"

namespace regccrf {

// What a model file holds. Arrays lie in the file's bytes, or wherever a model that is to be saved has them.
struct ModelView {
  Labels labels;
  std::string extractor;
  std::string_view names;                    // attributes' names one after another
  std::span<const std::int64_t> name_begin;  // [attributes + 1]
  std::span<const NameSlot> name_table;      // as in Names::Impl
  std::span<const std::int64_t> begin;       // [attributes + 1]
  std::span<const Label> label;              // [features]
  std::span<const double> weight;            // [features]
  std::span<const double> transitions;       // [K, K]
  std::span<const std::int64_t> pair_begin;  // [attributes + 1], or empty: there are no weights for pairs
  std::span<const std::int32_t> pair;        // [pairs]
  std::span<const double> pair_weight;       // [pairs]
  std::optional<Constraint> constraint;
  Constrain constrain = Constrain::none;
  std::string facts;

  std::string_view name(std::int32_t number) const {
    const auto i = static_cast<std::size_t>(number);
    return {names.data() + name_begin[i], static_cast<std::size_t>(name_begin[i + 1] - name_begin[i])};
  }
};

// Error unless shapes agree, numbers are in range, and weights are finite: whatever passes is safe to use.
// `what` begins the message.
void check_model(const ModelView& model, const std::string& what);

// Of everything in a model file but itself.
std::string model_checksum(const SafetensorsView& file);

// Header and tensors; the tensors point into `model` and into `constraint_bytes`.
SafetensorsPieces encode_model(const ModelView& model, std::string& constraint_bytes);
// Points into `bytes`. `path` appears in errors only.
ModelView decode_model(std::string_view bytes, const std::string& path);

}  // namespace regccrf
