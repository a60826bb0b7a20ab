// Tensors: attributes.{text, begin, table} (table: [places, 2], hash and number), features.{begin, label, weight},
// transitions, from version 2 on pairs.{begin, pair, weight}, and the compiled constraint's own file as bytes.
// Metadata: labels, extractor, how the constraint counts, its pattern, facts, and a checksum over all of it. Loading
// builds nothing but checks everything: the checksum (a flipped bit), and that every number is in range (a file that
// somebody made).
#include "tagger/model_file.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/hash.h"
#include "regccrf/error.h"
#include "tagger/crfsuite_text.h"

namespace regccrf {
namespace {

static_assert(sizeof(NameSlot) == 2 * sizeof(std::int32_t));
const char kFormat[] = "regccrf model";
const int kVersion = 2;  // a model without weights for pairs is written as version 1, which older programs read
const std::pair<Constrain, const char*> kConstrain[] = {
    {Constrain::train, "train"}, {Constrain::decode, "decode"}, {Constrain::none, "none"}};

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw Error("[load] " + path + ": " + why);
}

template <class T>
TensorView tensor_of(const char* dtype, std::span<const T> values, std::vector<std::int64_t> shape = {}) {
  if (shape.empty()) shape = {static_cast<std::int64_t>(values.size())};
  return {dtype, std::move(shape), {reinterpret_cast<const char*>(values.data()), values.size_bytes()}};
}

template <class T>
std::span<const T> span_of(const SafetensorsView& file, const std::string& name, const char* dtype,
                           const std::string& path) {
  const auto it = file.tensors.find(name);
  if (it == file.tensors.end() || it->second.dtype != dtype) {
    refuse(path, "damaged: no tensor '" + name + "' of type " + dtype);
  }
  const std::string_view bytes = it->second.bytes;
  if (reinterpret_cast<std::uintptr_t>(bytes.data()) % alignof(T) != 0) {
    refuse(path, "tensor '" + name + "' is not aligned; write the file with the larger elements first");
  }
  return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
}

std::string field(const SafetensorsView& file, const std::string& name, const std::string& path) {
  const auto it = file.metadata.find(name);
  if (it == file.metadata.end()) refuse(path, "damaged: the metadata have no '" + name + "'");
  return it->second;
}

std::string as_json(const std::vector<std::string>& labels) {
  try {
    return nlohmann::json(labels).dump();
  } catch (const nlohmann::json::exception&) {
    throw Error("[save] a label is not valid UTF-8, and labels in a model must be UTF-8; convert the data first");
  }
}

void check_version(const SafetensorsView& file, const std::string& path) {
  const std::string format = file.metadata.contains("format") ? file.metadata.at("format") : "";
  if (format == "regccrf constraint") refuse(path, "a compiled constraint, not a model; `regccrf train` makes models");
  if (format != kFormat) refuse(path, "a safetensors file, but not a regccrf model");
  const std::string text = field(file, "version", path);
  int version = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), version);
  if (error != std::errc() || end != text.data() + text.size() || version < 1) {
    refuse(path, "damaged: '" + text + "' is not a version");
  }
  if (version > kVersion) {
    refuse(path, "has version " + text + " of the model format, and this program reads up to version " +
                     std::to_string(kVersion) + "; a newer regccrf is needed");
  }
}

// begin[0] = 0, never falls, ends at `end`.
bool is_partition(std::span<const std::int64_t> begin, std::size_t end) {
  return !begin.empty() && begin.front() == 0 && begin.back() == static_cast<std::int64_t>(end) &&
         std::is_sorted(begin.begin(), begin.end());
}

void check_names(const ModelView& model, const std::string& what) {
  if (!is_partition(model.name_begin, model.names.size()))
    throw Error(what + "the attributes' names do not fit their places");
  const auto attributes = static_cast<std::int32_t>(model.name_begin.size() - 1);
  const std::size_t size = model.name_table.size();
  if (size == 0 || (size & (size - 1)) != 0) throw Error(what + "the table of attributes has an impossible size");
  bool gap = false;  // without one a search would never end
  for (const NameSlot& slot : model.name_table) {
    if (slot.number < -1 || slot.number >= attributes)
      throw Error(what + "the table of attributes has a number out of range");
    gap |= slot.number < 0;
  }
  if (!gap) throw Error(what + "the table of attributes is full");
}

// Each attribute's run of numbers, which ascend and are below `end`; one weight for each.
void check_runs(std::span<const std::int64_t> begin, std::span<const std::int32_t> number, std::size_t weights,
                std::size_t end, std::size_t places, const std::string& noun, const std::string& what) {
  if (begin.size() != places || !is_partition(begin, weights))
    throw Error(what + "the attributes' weights do not fit their places");
  if (number.size() != weights) {
    throw Error(what + std::to_string(number.size()) + " " + noun + " for " + std::to_string(weights) + " weights");
  }
  for (std::size_t i = 0; i + 1 < begin.size(); ++i) {
    std::int64_t last = -1;
    for (std::int64_t f = begin[i]; f < begin[i + 1]; ++f) {
      const std::int64_t here = number[static_cast<std::size_t>(f)];
      if (here <= last || here >= static_cast<std::int64_t>(end)) {
        throw Error(what + noun + " of attribute " + std::to_string(i) + " are out of range or out of order");
      }
      last = here;
    }
  }
}

}  // namespace

std::string model_checksum(const SafetensorsView& file) {
  std::uint64_t sum = 0;
  const auto add = [&](std::string_view bytes) { sum = (sum ^ checksum_bytes(bytes)) * 0x9e3779b97f4a7c15; };
  for (const auto& [name, value] : file.metadata) {
    if (name == "checksum") continue;
    add(name);
    add(value);
  }
  for (const auto& [name, tensor] : file.tensors) {
    add(name);
    add(tensor.bytes);
  }
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(sum));
  return text;
}

void check_model(const ModelView& model, const std::string& what) {
  check_names(model, what);
  const auto K = static_cast<std::size_t>(model.labels.size());
  if (K == 0) throw Error(what + "there are no labels");
  check_runs(model.begin, model.label, model.weight.size(), K, model.name_begin.size(), "labels", what);
  if (!model.pair_begin.empty() || !model.pair.empty() || !model.pair_weight.empty())
    check_runs(model.pair_begin, model.pair, model.pair_weight.size(), K * K, model.name_begin.size(), "pairs", what);
  if (model.transitions.size() != K * K) {
    throw Error(what + std::to_string(model.transitions.size()) + " transitions for " + std::to_string(K) +
                " labels, which need " + std::to_string(K * K));
  }
  for (std::span<const double> weights : {model.weight, model.transitions, model.pair_weight}) {
    for (double weight : weights) {
      if (!std::isfinite(weight)) throw Error(what + "a weight is not a finite number");
    }
  }
  if (model.constraint && !(model.constraint->labels() == model.labels)) {
    throw Error(what + "the constraint's labels are not the model's; fit_constraint matches them by name");
  }
}

SafetensorsPieces encode_model(const ModelView& model, std::string& constraint_bytes) {
  SafetensorsView file;
  const auto named = [&](Constrain c) {
    return std::find_if(std::begin(kConstrain), std::end(kConstrain), [&](const auto& pair) { return pair.first == c; })
        ->second;
  };
  file.metadata = {{"format", kFormat},
                   {"version", model.pair.empty() ? "1" : std::to_string(kVersion)},
                   {"labels", as_json(model.labels.names())},
                   {"extractor", model.extractor},
                   {"constrain", named(model.constrain)},
                   {"facts", model.facts}};
  const auto K = static_cast<std::int64_t>(model.labels.size());
  file.tensors = {
      {"attributes.text", tensor_of("U8", std::span(model.names))},
      {"attributes.begin", tensor_of("I64", model.name_begin)},
      {"attributes.table", tensor_of("I32", model.name_table, {static_cast<std::int64_t>(model.name_table.size()), 2})},
      {"features.begin", tensor_of("I64", model.begin)},
      {"features.label", tensor_of("I32", model.label)},
      {"features.weight", tensor_of("F64", model.weight)},
      {"transitions", tensor_of("F64", model.transitions, {K, K})}};
  if (!model.pair.empty()) {
    file.tensors["pairs.begin"] = tensor_of("I64", model.pair_begin);
    file.tensors["pairs.pair"] = tensor_of("I32", model.pair);
    file.tensors["pairs.weight"] = tensor_of("F64", model.pair_weight);
  }
  if (model.constraint) {
    constraint_bytes = model.constraint->to_bytes();
    file.metadata["pattern"] = model.constraint->text();
    file.tensors["constraint"] = tensor_of("U8", std::span(std::string_view(constraint_bytes)));
  }
  file.metadata["checksum"] = model_checksum(file);
  try {
    return lay_out_safetensors(file);
  } catch (const nlohmann::json::exception&) {
    throw Error("[save] the extractor or the facts are not valid UTF-8, but a model needs UTF-8");
  }
}

ModelView decode_model(std::string_view bytes, const std::string& path) {
  if (bytes.starts_with(kCrfsuiteModel)) {
    refuse(path, "a model of CRFsuite; import its dump: crfsuite dump " + path + " | regccrf import -m NEW.model");
  }
  const SafetensorsView file = view_safetensors(bytes, path);
  check_version(file, path);
  if (model_checksum(file) != field(file, "checksum", path))
    refuse(path, "damaged: its checksum does not match its content; restore it or train it again");
  ModelView model;
  try {
    model.labels = Labels(nlohmann::json::parse(field(file, "labels", path)).get<std::vector<std::string>>());
  } catch (const nlohmann::json::exception&) {
    refuse(path, "damaged: the labels are not a list of strings");
  }
  model.extractor = field(file, "extractor", path);
  model.facts = field(file, "facts", path);
  const std::string constrain = field(file, "constrain", path);
  const auto known = std::find_if(std::begin(kConstrain), std::end(kConstrain),
                                  [&](const auto& pair) { return constrain == pair.second; });
  if (known == std::end(kConstrain)) refuse(path, "damaged: constrain is '" + constrain + "'");
  model.constrain = known->first;
  const auto text = span_of<char>(file, "attributes.text", "U8", path);
  model.names = {text.data(), text.size()};
  model.name_begin = span_of<std::int64_t>(file, "attributes.begin", "I64", path);
  model.name_table = span_of<NameSlot>(file, "attributes.table", "I32", path);
  model.begin = span_of<std::int64_t>(file, "features.begin", "I64", path);
  model.label = span_of<Label>(file, "features.label", "I32", path);
  model.weight = span_of<double>(file, "features.weight", "F64", path);
  model.transitions = span_of<double>(file, "transitions", "F64", path);
  if (file.tensors.contains("pairs.begin")) {
    model.pair_begin = span_of<std::int64_t>(file, "pairs.begin", "I64", path);
    model.pair = span_of<std::int32_t>(file, "pairs.pair", "I32", path);
    model.pair_weight = span_of<double>(file, "pairs.weight", "F64", path);
  }
  if (file.tensors.contains("constraint")) {
    const auto nested = span_of<char>(file, "constraint", "U8", path);
    try {
      model.constraint = Constraint::from_bytes({nested.data(), nested.size()});
    } catch (const Error& error) {
      refuse(path, std::string("its constraint is damaged: ") + error.what());
    }
  }
  check_model(model, "[load] " + path + ": damaged: ");
  return model;
}

}  // namespace regccrf
