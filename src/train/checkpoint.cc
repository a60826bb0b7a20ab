// Checkpoints: the state of training as a safetensors file, with a fingerprint of what it belongs to. The file is
// written beside its place and renamed, so that there is always a whole one; a checksum tells one that was damaged
// later. What only decides when to stop (max_iterations, tolerance, epsilon, patience) and the number of threads are
// not part of the fingerprint: work may go on with others.
#include <bit>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/safetensors.h"
#include "regccrf/error.h"
#include "train/monitor.h"

namespace regccrf {

static_assert(std::endian::native == std::endian::little, "tensors are written as they lie in memory");

namespace {

constexpr const char* kFormat = "regccrf checkpoint 4";

// FNV-1a over eight bytes at a time.
class Hash {
 public:
  void add(const void* memory, std::size_t size) {
    const char* bytes = static_cast<const char*>(memory);
    mix(size);
    for (; size >= 8; size -= 8, bytes += 8) {
      std::uint64_t word;
      std::memcpy(&word, bytes, 8);
      mix(word);
    }
    for (; size > 0; --size, ++bytes) mix(static_cast<unsigned char>(*bytes));
  }
  template <class T>
  void add(const std::vector<T>& values) {
    add(values.data(), values.size() * sizeof(T));
  }
  std::string text() const {
    char digits[17];
    std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(state_));
    return digits;
  }

 private:
  void mix(std::uint64_t word) {
    state_ = (state_ ^ word) * 0x100000001b3;
    state_ ^= state_ >> 29;
  }
  std::uint64_t state_ = 0xcbf29ce484222325;
};

void add_data(Hash& hash, const Dataset& data) {
  hash.add(data.position);
  hash.add(data.item);
  hash.add(data.attribute);
  hash.add(data.value);
  hash.add(data.gold);
  hash.add(data.weight);
}

std::string spell(double x) {
  char digits[32];
  std::snprintf(digits, sizeof digits, "%.17g", x);
  return digits;
}

Tensor tensor(const std::vector<double>& values) {
  std::string bytes(values.size() * sizeof(double), '\0');
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return {"F64", {static_cast<std::int64_t>(values.size())}, std::move(bytes)};
}

std::vector<double> values(const Safetensors& file, const std::string& name, const std::string& path) {
  const auto found = file.tensors.find(name);
  if (found == file.tensors.end() || found->second.dtype != "F64") {
    throw Error("[resume] " + path + " is damaged: it has no numbers '" + name + "'");
  }
  std::vector<double> result(found->second.bytes.size() / sizeof(double));
  if (!result.empty()) std::memcpy(result.data(), found->second.bytes.data(), found->second.bytes.size());
  return result;
}

// Of all else, so that a file in which a bit has changed is not taken for what was saved.
std::string checksum(const Safetensors& file) {
  Hash hash;
  for (const auto& [key, text] : file.metadata) {
    if (key != "checksum") hash.add(text.data(), text.size());
  }
  for (const auto& [name, tensor] : file.tensors) {
    hash.add(name.data(), name.size());
    hash.add(tensor.bytes.data(), tensor.bytes.size());
  }
  return hash.text();
}

// Progress as numbers; a missing development score is NaN.
std::vector<double> pack(const Progress& p) {
  return {static_cast<double>(p.iteration),
          p.objective,
          p.gradient_norm,
          p.seconds,
          p.development.value_or(std::numeric_limits<double>::quiet_NaN()),
          static_cast<double>(p.phase),
          p.largest_gap,
          p.slack,
          static_cast<double>(p.uncertified),
          static_cast<double>(p.bounds)};
}

Progress unpack(const std::vector<double>& numbers, const std::string& path) {
  if (numbers.size() != 10) throw Error("[resume] " + path + " is damaged: a progress report has the wrong size");
  Progress p{static_cast<int>(numbers[0]),
             numbers[1],
             numbers[2],
             numbers[3],
             {},
             true,
             static_cast<Phase>(numbers[5]),
             numbers[6],
             numbers[7],
             static_cast<std::int64_t>(numbers[8]),
             static_cast<std::int64_t>(numbers[9])};
  if (numbers[4] == numbers[4]) p.development = numbers[4];
  return p;
}

using Marks = std::map<std::string, std::string>;  // what a checkpoint belongs to, by name

Safetensors decoded(const std::string& bytes, const std::string& path) {
  try {
    return decode_safetensors(bytes, path);
  } catch (const Error&) {
    throw Error("[resume] " + path + " is damaged, or not a checkpoint. Start again without resume");
  }
}

// A file that was saved by this version and not changed since.
Safetensors read_whole(const std::string& path) {
  Safetensors file = decoded(read_file(path), path);
  const auto format = file.metadata.find("format");
  if (format == file.metadata.end() || format->second != kFormat) {
    throw Error("[resume] " + path + " is not a checkpoint of this version (" + kFormat + ")");
  }
  const auto sum = file.metadata.find("checksum");
  if (sum == file.metadata.end() || sum->second != checksum(file)) {
    throw Error("[resume] " + path + " is damaged: its content is not what was saved. Start again without resume");
  }
  return file;
}

Marks fingerprint_of(const Safetensors& file, const std::string& path) {
  try {
    return nlohmann::json::parse(file.metadata.at("fingerprint")).get<Marks>();
  } catch (const std::exception&) {
    throw Error("[resume] " + path + " is damaged: its fingerprint cannot be read");
  }
}

// In words; empty where both are the same.
std::string differences(const Marks& mine, const Marks& theirs) {
  std::string different;
  const auto compare = [&](const std::string& key) {
    const auto here = mine.find(key), there = theirs.find(key);
    const std::string now = here == mine.end() ? "none" : here->second,
                      then = there == theirs.end() ? "none" : there->second;
    if (now == then) return;
    const bool hash = now.size() == 16 && then.size() == 16;
    different += (different.empty() ? "" : "; ") + key + (hash ? " differs" : " was " + then + ", is " + now);
  };
  for (const auto& [key, value] : mine) compare(key);
  for (const auto& [key, value] : theirs) {
    if (!mine.contains(key)) compare(key);
  }
  return different;
}

TrainState state_of(const Safetensors& file, std::size_t features, const std::string& path) {
  TrainState state;
  state.w = values(file, "w", path);
  state.best_w = values(file, "best_w", path);
  state.objectives = values(file, "objectives", path);
  state.squares = values(file, "squares", path);
  state.drift = values(file, "drift", path);
  state.best = unpack(values(file, "best", path), path);
  state.last = unpack(values(file, "last", path), path);
  const std::vector<double> counters = values(file, "counters", path);
  const auto fits_or_empty = [&](const std::vector<double>& v) { return v.empty() || v.size() == features; };
  if (counters.size() != 5 || state.w.size() != features || !fits_or_empty(state.best_w) ||
      !fits_or_empty(state.squares) || !fits_or_empty(state.drift)) {
    throw Error("[resume] " + path + " is damaged: its tensors have the wrong sizes");
  }
  state.iteration = static_cast<int>(counters[0]);
  state.since_rise = static_cast<int>(counters[1]);
  state.steps = counters[2];
  state.phase = static_cast<Phase>(counters[3]);
  state.max_gap = counters[4];
  state.seconds = state.last.seconds;
  return state;
}

}  // namespace

std::map<std::string, std::string> Monitor::fingerprint() const {
  const auto hashed = [](auto&& add) {
    Hash hash;
    add(hash);
    return hash.text();
  };
  Marks marks;
  marks["training data"] = hashed([&](Hash& hash) {
    add_data(hash, *training_.data);
    for (std::int32_t i = 0; i < training_.attributes->size(); ++i) {
      const std::string_view name = training_.attributes->name(i);
      hash.add(name.data(), name.size());
    }
    if (features_.has_pairs()) hash.add(training_.weighs);
  });
  marks["labels"] = hashed([&](Hash& hash) {
    for (const std::string& name : training_.labels.names()) hash.add(name.data(), name.size());
  });
  if (training_.development) {
    marks["development data"] = hashed([&](Hash& hash) { add_data(hash, *training_.development); });
  }
  if (training_.constraint) {
    const std::string bytes = training_.constraint->to_bytes();
    marks["constraint"] = hashed([&](Hash& hash) { hash.add(bytes.data(), bytes.size()); });
  }
  if (training_.initial) {
    const std::string bytes = training_.initial->to_bytes();
    marks["initial model"] = hashed([&](Hash& hash) { hash.add(bytes.data(), bytes.size()); });
  }
  const char* const times[] = {"train", "decode", "none"};
  marks["constrain"] = times[static_cast<int>(training_.constrain)];
  marks["l1"] = spell(options_.l1);
  marks["l2"] = spell(options_.l2);
  if (training_.constraint && training_.constraint->rules() > 0) marks["max_gap"] = spell(options_.max_gap);
  marks["min_count"] = std::to_string(options_.min_count);
  marks["min_frequency"] = spell(options_.min_frequency);
  marks["all_features"] = options_.all_features ? "yes" : "no";
  marks["all_transitions"] = options_.all_transitions ? "yes" : "no";
  marks["transitions"] = options_.transitions ? "yes" : "no";
  marks["processes"] = std::to_string(processes_.count);
  if (options_.optimizer == Optimizer::lbfgs) {
    marks["optimizer"] = "lbfgs";
    marks["memories"] = std::to_string(options_.memories);
    marks["line_search"] = std::to_string(static_cast<int>(options_.line_search));
    marks["line_search_trials"] = std::to_string(options_.line_search_trials);
    marks["every"] = std::to_string(options_.every);
    return marks;
  }
  marks["optimizer"] = "adagrad";
  marks["rate"] = spell(options_.rate);
  marks["batch"] = std::to_string(options_.batch);
  marks["average"] = options_.average ? "yes" : "no";
  marks["seed"] = std::to_string(options_.seed);
  return marks;
}

void Monitor::save() const {
  if (processes_.rank != 0) return;
  Safetensors file;
  file.metadata = {{"format", kFormat}, {"fingerprint", nlohmann::json(fingerprint()).dump()}};
  file.tensors["w"] = tensor(state.w);
  file.tensors["best_w"] = tensor(state.best_w);
  file.tensors["objectives"] = tensor(state.objectives);
  file.tensors["squares"] = tensor(state.squares);
  file.tensors["drift"] = tensor(state.drift);
  file.tensors["best"] = tensor(pack(state.best));
  file.tensors["last"] = tensor(pack(state.last));
  file.tensors["counters"] = tensor({static_cast<double>(state.iteration), static_cast<double>(state.since_rise),
                                     state.steps, static_cast<double>(state.phase), state.max_gap});
  file.metadata["checksum"] = checksum(file);
  write_file(options_.checkpoint, encode_safetensors(file));
}

bool Monitor::load() {
  const std::string& path = options_.checkpoint;
  std::error_code code;
  if (!std::filesystem::exists(path, code)) return false;
  const Safetensors file = read_whole(path);
  const std::string different = differences(fingerprint(), fingerprint_of(file, path));
  if (!different.empty()) {
    throw Error("[resume] " + path + " belongs to other work: " + different +
                ". Train as before, or start again without resume");
  }
  state = state_of(file, static_cast<std::size_t>(features_.size()), path);
  return true;
}

}  // namespace regccrf
