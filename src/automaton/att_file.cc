// AT&T text.
#include "automaton/att_file.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <sstream>
#include <unordered_map>

#include "regccrf/error.h"

namespace regccrf {
namespace {

using Fields = std::vector<std::string>;

// By tabs where the line has one (labels may then contain spaces), by white space otherwise.
Fields split(const std::string& line) {
  Fields fields;
  if (line.find('\t') != std::string::npos) {
    std::istringstream in(line);
    for (std::string field; std::getline(in, field, '\t');) fields.push_back(field);
    while (!fields.empty() && fields.back().empty()) fields.pop_back();
  } else {
    std::istringstream in(line);
    for (std::string field; in >> field;) fields.push_back(field);
  }
  return fields;
}

template <class T>
std::optional<T> number(const std::string& text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

bool is_epsilon(const std::string& word) {
  return word == "<eps>" || word == "@0@" || word == "<epsilon>" || word == "@_EPSILON_SYMBOL_@";
}

class Reader {
 public:
  Reader(const std::map<std::int64_t, std::string>& symbols, const std::string& path) : symbols_(symbols), path_(path) {
    for (const auto& [key, name] : symbols) {
      if (key > 0 && !is_epsilon(name)) id_of(name);
    }
  }

  AttFile read(const std::string& text) {
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) {
      ++line_;
      if (!line.empty() && line.back() == '\r') line.pop_back();
      if (line == "--") refuse("contains several automata; split it");
      const Fields fields = split(line);
      if (fields.empty()) continue;
      fields.size() <= 2 ? final_state(fields) : arc(fields);
    }
    if (!started_) refuse("it has no states");
    return std::move(file_);
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw Error("[load] " + path_ + (line_ ? ":" + std::to_string(line_) : "") + ": " + why);
  }

  // States are numbered anew in the order of appearance, so that sparse numbers cost nothing; the first is the start.
  State state(const std::string& field) {
    const auto given = number<std::int64_t>(field);
    if (!given || *given < 0) refuse("'" + field + "' is not a state number; a line is `from to label` or `state`");
    const auto [it, added] = states_.emplace(*given, file_.automaton.states());
    if (added) file_.automaton.accepting.push_back(0);
    if (!started_) file_.automaton.start = it->second;
    started_ = true;
    return it->second;
  }

  void final_state(const Fields& fields) {
    const State q = state(fields[0]);
    if (fields.size() == 2 && !is_one(fields[1])) return;
    file_.automaton.accepting[q] = 1;
  }

  // Weight One is 0. A final weight of infinity means "not accepting"; any other is an error.
  bool is_one(const std::string& field) {
    if (field == "Infinity" || field == "inf") return false;
    const auto weight = number<double>(field);
    if (!weight) refuse("'" + field + "' is not a weight");
    if (*weight != 0) refuse("the automaton has weights; a constraint is unweighted");
    return true;
  }

  void arc(const Fields& fields) {
    const State from = state(fields[0]), to = state(fields[1]);
    if (fields.size() > 5) refuse("a line has at most 5 fields, and this has " + std::to_string(fields.size()));
    if (fields.size() == 4 && fields[3] != fields[2]) weight_or_output(fields[3]);
    if (fields.size() == 5) {
      if (fields[3] != fields[2]) refuse("a transducer: input " + fields[2] + " and output " + fields[3] + " differ");
      if (!is_one(fields[4])) refuse("the automaton has weights; a constraint is unweighted");
    }
    file_.automaton.arcs.push_back({from, label(fields[2]), to});
  }

  void weight_or_output(const std::string& field) {
    const auto weight = number<double>(field);
    if (!weight) refuse("a transducer: input and output labels differ");
    if (*weight != 0) refuse("the automaton has weights, or is a transducer; a constraint is neither");
  }

  Label label(const std::string& word) {
    if (word.empty()) refuse("a label is empty");
    if (is_epsilon(word)) return -1;
    if (symbols_.empty()) return id_of(word);
    if (const auto it = ids_.find(word); it != ids_.end()) return it->second;
    const auto key = number<std::int64_t>(word);
    if (key == 0) return -1;
    const auto symbol = key ? symbols_.find(*key) : symbols_.end();
    if (symbol == symbols_.end()) refuse("the label '" + word + "' is not in the symbol table");
    return is_epsilon(symbol->second) ? -1 : id_of(symbol->second);
  }

  Label id_of(const std::string& name) {
    const auto [it, added] = ids_.emplace(name, static_cast<Label>(file_.names.size()));
    if (added) file_.names.push_back(name);
    return it->second;
  }

  const std::map<std::int64_t, std::string>& symbols_;
  const std::string& path_;
  std::size_t line_ = 0;
  bool started_ = false;
  std::unordered_map<std::int64_t, State> states_;
  std::unordered_map<std::string, Label> ids_;
  AttFile file_;
};

void check_printable(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (is_epsilon(name))
      throw Error("[write] the label '" + name +
                  "' cannot be written: in AT&T text it means epsilon; rename the label");
    if (name.find_first_of(" \t\r\n") == std::string::npos) continue;
    throw Error("[write] the label '" + name +
                "' contains white space, which AT&T text does not allow; write the binary format");
  }
}

}  // namespace

std::map<std::int64_t, std::string> decode_symbols(const std::string& text, const std::string& path) {
  std::map<std::int64_t, std::string> symbols;
  std::istringstream in(text);
  std::size_t line_number = 0;
  for (std::string line; std::getline(in, line);) {
    ++line_number;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    const Fields fields = split(line);
    if (fields.empty()) continue;
    const auto key = fields.size() == 2 ? number<std::int64_t>(fields[1]) : std::nullopt;
    if (!key || fields[0].empty())
      throw Error("[load] " + path + ":" + std::to_string(line_number) +
                  ": not a symbol table: a line is `label number`");
    if (!symbols.emplace(*key, fields[0]).second)
      throw Error("[load] " + path + ":" + std::to_string(line_number) + ": the number " + fields[1] +
                  " is given twice");
  }
  if (symbols.empty()) throw Error("[load] " + path + ": an empty symbol table");
  return symbols;
}

std::string encode_symbols(const std::vector<std::string>& names) {
  check_printable(names);
  std::string text = "<eps>\t0\n";
  for (std::size_t a = 0; a < names.size(); ++a) text += names[a] + "\t" + std::to_string(a + 1) + "\n";
  return text;
}

AttFile decode_att(const std::string& text, const std::map<std::int64_t, std::string>& symbols,
                   const std::string& path) {
  return Reader(symbols, path).read(text);
}

std::string encode_att(const Automaton& automaton, const std::vector<std::string>& names) {
  check_printable(names);
  std::string text;
  const auto line = [&](const Arc& arc) {
    text += std::to_string(arc.from) + "\t" + std::to_string(arc.to) + "\t" + names[arc.label] + "\n";
  };
  const auto leaves_start = [&](const Arc& arc) { return arc.from == automaton.start; };
  const bool start_has_arcs = std::any_of(automaton.arcs.begin(), automaton.arcs.end(), leaves_start);
  if (!start_has_arcs)
    text += std::to_string(automaton.start) + (automaton.accepting[automaton.start] ? "\n" : "\tInfinity\n");
  for (const Arc& arc : automaton.arcs) {  // the first line's state is the start
    if (leaves_start(arc)) line(arc);
  }
  for (const Arc& arc : automaton.arcs) {
    if (!leaves_start(arc)) line(arc);
  }
  for (State q = 0; q < automaton.states(); ++q) {
    const bool written = q == automaton.start && !start_has_arcs;
    if (automaton.accepting[q] && !written) text += std::to_string(q) + "\n";
  }
  return text;
}

}  // namespace regccrf
