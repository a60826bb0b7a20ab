// Tensors `arcs` [A, 3] and `accepting` [Q]; labels, start state, method and pattern text as metadata. Where rules are
// kept, tensors `rule<i>.arcs` and `rule<i>.accepting`, their start states and texts as metadata, and version 2.
#include "constraint/constraint_file.h"

#include <charconv>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/safetensors.h"
#include "regccrf/error.h"

namespace regccrf {
namespace {

const char kFormat[] = "regccrf constraint";
const int kVersion = 1;           // of a constraint that keeps no rules
const int kVersionWithRules = 2;  // the newest

std::string field(const Safetensors& file, const std::string& name, const std::string& path) {
  const auto it = file.metadata.find(name);
  if (it == file.metadata.end()) throw Error("[load] " + path + ": damaged: the metadata have no '" + name + "'");
  return it->second;
}

const Tensor& tensor(const Safetensors& file, const std::string& name, const std::string& dtype, std::size_t axes,
                     const std::string& path) {
  const auto it = file.tensors.find(name);
  if (it == file.tensors.end() || it->second.dtype != dtype || it->second.shape.size() != axes) {
    throw Error("[load] " + path + ": damaged: no tensor '" + name + "' of the expected type");
  }
  return it->second;
}

int number(const std::string& text, const std::string& path) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    throw Error("[load] " + path + ": damaged: '" + text + "' is not a number");
  return value;
}

// JSON, and with it the file, holds UTF-8 only; labels from foreign symbol tables may be anything.
std::string list_of(const std::vector<std::string>& labels) {
  try {
    return nlohmann::json(labels).dump();
  } catch (const nlohmann::json::exception&) {
    throw Error(
        "[save] a label is not valid UTF-8, but a saved constraint needs UTF-8; convert the symbol table first");
  }
}

void add_automaton(const Automaton& automaton, const std::string& prefix, Safetensors& out) {
  static_assert(sizeof(Arc) == 3 * sizeof(std::int32_t));
  Tensor arcs{"I32", {static_cast<std::int64_t>(automaton.arcs.size()), 3}, {}};
  arcs.bytes.assign(reinterpret_cast<const char*>(automaton.arcs.data()), automaton.arcs.size() * sizeof(Arc));
  Tensor accepting{"U8", {automaton.states()}, {}};
  accepting.bytes.assign(automaton.accepting.begin(), automaton.accepting.end());
  out.tensors[prefix + "arcs"] = std::move(arcs);
  out.tensors[prefix + "accepting"] = std::move(accepting);
}

Automaton read_automaton(const Safetensors& in, const std::string& prefix, int start, const std::string& path) {
  Automaton automaton;
  automaton.start = start;
  const Tensor& accepting = tensor(in, prefix + "accepting", "U8", 1, path);
  automaton.accepting.reserve(accepting.bytes.size());
  for (char byte : accepting.bytes) automaton.accepting.push_back(byte != 0);
  const Tensor& arcs = tensor(in, prefix + "arcs", "I32", 2, path);
  if (arcs.shape[1] != 3) throw Error("[load] " + path + ": damaged: the arcs are not triples");
  automaton.arcs.resize(static_cast<std::size_t>(arcs.shape[0]));
  if (!arcs.bytes.empty()) std::memcpy(automaton.arcs.data(), arcs.bytes.data(), arcs.bytes.size());
  return automaton;
}

std::string prefix_of(std::size_t rule) { return "rule" + std::to_string(rule) + "."; }

// JSON: [[start, [text, …]], …]
std::string list_of(const std::vector<Rule>& rules) {
  nlohmann::json list = nlohmann::json::array();
  for (const Rule& rule : rules) list.push_back({rule.automaton.start, rule.texts});
  return list.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::vector<Rule> read_rules(const Safetensors& in, const std::string& path) {
  std::vector<Rule> rules;
  try {
    for (const nlohmann::json& entry : nlohmann::json::parse(field(in, "rules", path))) {
      const int start = entry.at(0).get<int>();
      rules.push_back(
          {read_automaton(in, prefix_of(rules.size()), start, path), entry.at(1).get<std::vector<std::string>>()});
    }
  } catch (const nlohmann::json::exception&) {
    throw Error("[load] " + path + ": damaged: the rules are not a list of start states and texts");
  }
  return rules;
}

}  // namespace

std::string encode_constraint_file(const ConstraintFile& file) {
  Safetensors out;
  const int version = file.rules.empty() ? kVersion : kVersionWithRules;
  out.metadata = {{"format", kFormat},
                  {"version", std::to_string(version)},
                  {"labels", list_of(file.labels.names())},
                  {"start", std::to_string(file.automaton.start)},
                  {"method", file.method},
                  {"text", file.text}};
  add_automaton(file.automaton, "", out);
  if (!file.rules.empty()) out.metadata["rules"] = list_of(file.rules);
  for (std::size_t i = 0; i < file.rules.size(); ++i) add_automaton(file.rules[i].automaton, prefix_of(i), out);
  return encode_safetensors(out);
}

ConstraintFile decode_constraint_file(std::string_view bytes, const std::string& path) {
  const Safetensors in = decode_safetensors(bytes, path);
  const auto format = in.metadata.find("format");
  if (format == in.metadata.end() || format->second != kFormat) {
    throw Error("[load] " + path + ": a safetensors file, but not a regccrf constraint");
  }
  const int version = number(field(in, "version", path), path);
  if (version < kVersion || version > kVersionWithRules) {
    throw Error("[load] " + path + ": has version " + std::to_string(version) +
                " of the constraint format, and this program reads version " + std::to_string(kVersion) + " to " +
                std::to_string(kVersionWithRules) + "; compile it again");
  }
  ConstraintFile file;
  try {
    file.labels = Labels(nlohmann::json::parse(field(in, "labels", path)).get<std::vector<std::string>>());
  } catch (const nlohmann::json::exception&) {
    throw Error("[load] " + path + ": damaged: the labels are not a list of strings");
  }
  file.method = field(in, "method", path);
  file.text = field(in, "text", path);
  file.automaton = read_automaton(in, "", number(field(in, "start", path), path), path);
  if (version == kVersionWithRules) file.rules = read_rules(in, path);
  return file;
}

}  // namespace regccrf
