// Tensors `arcs` [A, 3] and `accepting` [Q]; labels, start state, method and pattern text as metadata.
#include "constraint/constraint_file.h"

#include <charconv>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/safetensors.h"
#include "regccrf/error.h"

namespace regccrf {
namespace {

const char kFormat[] = "regccrf constraint";
const int kVersion = 1;

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
        "[save] a label is not valid UTF-8, and a saved constraint holds UTF-8 only; convert the symbol table first");
  }
}

}  // namespace

std::string encode_constraint_file(const ConstraintFile& file) {
  Safetensors out;
  out.metadata = {{"format", kFormat},
                  {"version", std::to_string(kVersion)},
                  {"labels", list_of(file.labels.names())},
                  {"start", std::to_string(file.automaton.start)},
                  {"method", file.method},
                  {"text", file.text}};
  static_assert(sizeof(Arc) == 3 * sizeof(std::int32_t));
  Tensor arcs{"I32", {static_cast<std::int64_t>(file.automaton.arcs.size()), 3}, {}};
  arcs.bytes.assign(reinterpret_cast<const char*>(file.automaton.arcs.data()),
                    file.automaton.arcs.size() * sizeof(Arc));
  Tensor accepting{"U8", {file.automaton.states()}, {}};
  accepting.bytes.assign(file.automaton.accepting.begin(), file.automaton.accepting.end());
  out.tensors = {{"arcs", std::move(arcs)}, {"accepting", std::move(accepting)}};
  return encode_safetensors(out);
}

ConstraintFile decode_constraint_file(std::string_view bytes, const std::string& path) {
  const Safetensors in = decode_safetensors(bytes, path);
  const auto format = in.metadata.find("format");
  if (format == in.metadata.end() || format->second != kFormat) {
    throw Error("[load] " + path + ": a safetensors file, but not a regccrf constraint");
  }
  const int version = number(field(in, "version", path), path);
  if (version != kVersion) {
    throw Error("[load] " + path + ": has version " + std::to_string(version) +
                " of the constraint format, and this program reads version " + std::to_string(kVersion) +
                "; compile it again");
  }
  ConstraintFile file;
  try {
    file.labels = Labels(nlohmann::json::parse(field(in, "labels", path)).get<std::vector<std::string>>());
  } catch (const nlohmann::json::exception&) {
    throw Error("[load] " + path + ": damaged: the labels are not a list of strings");
  }
  file.method = field(in, "method", path);
  file.text = field(in, "text", path);
  file.automaton.start = number(field(in, "start", path), path);
  const Tensor& accepting = tensor(in, "accepting", "U8", 1, path);
  file.automaton.accepting.reserve(accepting.bytes.size());
  for (char byte : accepting.bytes) file.automaton.accepting.push_back(byte != 0);
  const Tensor& arcs = tensor(in, "arcs", "I32", 2, path);
  if (arcs.shape[1] != 3) throw Error("[load] " + path + ": damaged: the arcs are not triples");
  file.automaton.arcs.resize(static_cast<std::size_t>(arcs.shape[0]));
  if (!arcs.bytes.empty()) std::memcpy(file.automaton.arcs.data(), arcs.bytes.data(), arcs.bytes.size());
  return file;
}

}  // namespace regccrf
