#include "tests/oracle/matcher.h"

#include <algorithm>
#include <map>
#include <stdexcept>
#include <tuple>

namespace regccrf::oracle {

namespace {

using Word = Domain::Word;

int occurrences(const Word& word, Label label) { return static_cast<int>(std::count(word.begin(), word.end(), label)); }

bool contains(const std::vector<Label>& labels, Label label) {
  return std::find(labels.begin(), labels.end(), label) != labels.end();
}

// Every y has an earlier x.
bool is_before(const Word& word, Label x, Label y) {
  for (std::size_t j = 0; j < word.size(); ++j) {
    if (word[j] == y && std::find(word.begin(), word.begin() + static_cast<std::ptrdiff_t>(j), x) ==
                            word.begin() + static_cast<std::ptrdiff_t>(j)) {
      return false;
    }
  }
  return true;
}

// No label is followed, later on, by one that stands before it in `order`.
bool is_ordered(const Word& word, const std::vector<Label>& order) {
  for (std::size_t i = 0; i < order.size(); ++i) {
    for (std::size_t j = i + 1; j < order.size(); ++j) {
      for (std::size_t t = 0; t < word.size(); ++t) {
        for (std::size_t u = t + 1; u < word.size(); ++u) {
          if (word[t] == order[j] && word[u] == order[i]) return false;
        }
      }
    }
  }
  return true;
}

bool is_once_contiguous(const Word& word, Label label) {
  int runs = 0;
  for (std::size_t t = 0; t < word.size(); ++t) {
    if (word[t] == label && (t == 0 || word[t - 1] != label)) ++runs;
  }
  return runs <= 1;
}

// The patterns without parts.
bool matches_leaf(const Pattern& pattern, const Word& word) {
  const std::vector<Label>& labels = pattern.labels;
  switch (pattern.op) {
    case Op::empty:
      return word.empty();
    case Op::label:
    case Op::one_of:
      return word.size() == 1 && contains(labels, word[0]);
    case Op::any:
      return word.size() == 1;
    case Op::none_of:
      return word.size() == 1 && !contains(labels, word[0]);
    case Op::at_most:
      return occurrences(word, labels[0]) <= pattern.least;
    case Op::at_least:
      return occurrences(word, labels[0]) >= pattern.least;
    case Op::exactly:
      return occurrences(word, labels[0]) == pattern.least;
    case Op::before:
      return is_before(word, labels[0], labels[1]);
    case Op::requires_:
      return occurrences(word, labels[0]) == 0 || occurrences(word, labels[1]) > 0;
    case Op::ordered:
      return is_ordered(word, labels);
    case Op::once_contiguous:
      return is_once_contiguous(word, labels[0]);
    default:
      throw std::logic_error("not a leaf");
  }
}

}  // namespace

Domain Domain::words_up_to(int length, int labels) {
  Domain domain;
  domain.words_ = {{}};
  for (std::size_t i = 0; i < domain.words_.size(); ++i) {
    if (static_cast<int>(domain.words_[i].size()) == length) break;
    for (Label a = 0; a < labels; ++a) {
      Word longer = domain.words_[i];
      longer.push_back(a);
      domain.words_.push_back(std::move(longer));
    }
  }
  domain.find_splits();
  return domain;
}

Domain Domain::pieces_of(const Word& word) {
  Domain domain;
  domain.words_ = {{}};
  for (std::size_t size = 1; size <= word.size(); ++size) {
    for (std::size_t i = 0; i + size <= word.size(); ++i) {
      const auto from = word.begin() + static_cast<std::ptrdiff_t>(i);
      domain.words_.emplace_back(from, from + static_cast<std::ptrdiff_t>(size));
    }
  }
  domain.find_splits();
  return domain;
}

void Domain::find_splits() {
  std::map<Word, std::size_t> place;
  for (std::size_t i = 0; i < words_.size(); ++i) place.emplace(words_[i], i);
  for (const Word& word : words_) {
    splits_.emplace_back();
    for (std::size_t cut = 0; cut <= word.size(); ++cut) {
      const auto middle = word.begin() + static_cast<std::ptrdiff_t>(cut);
      splits_.back().emplace_back(place.at(Word(word.begin(), middle)), place.at(Word(middle, word.end())));
    }
  }
}

Domain::Set Domain::just_empty() const {
  Set set(size(), false);
  set[0] = true;
  return set;
}

Domain::Set Domain::concat(const Set& first, const Set& second) const {
  Set set(size(), false);
  for (std::size_t i = 0; i < size(); ++i) {
    for (const auto& [left, right] : splits_[i]) {
      if (first[left] && second[right]) set[i] = true;
    }
  }
  return set;
}

Domain::Set Domain::star(const Set& part) const {
  Set set = just_empty();
  for (std::size_t i = 1; i < size(); ++i) {
    for (const auto& [left, right] : splits_[i]) {
      const bool shorter = words_[right].size() < words_[i].size();
      if (shorter && part[left] && set[right]) set[i] = true;
    }
  }
  return set;
}

Domain::Set Domain::repeat(const Set& part, int least, int most) const {
  Set power = just_empty();
  for (int n = 0; n < least; ++n) power = concat(power, part);
  if (most < 0) return concat(power, star(part));
  Set set = power;
  for (int n = least; n < most; ++n) {
    power = concat(power, part);
    for (std::size_t i = 0; i < size(); ++i) set[i] = set[i] || power[i];
  }
  return set;
}

Domain::Set Domain::matches(const Pattern& pattern) const {
  if (pattern.parts.empty()) {
    Set set(size());
    for (std::size_t i = 0; i < size(); ++i) set[i] = matches_leaf(pattern, words_[i]);
    return set;
  }
  Set set = matches(pattern.parts[0]);
  if (pattern.op == Op::complement) set.flip();
  if (pattern.op == Op::repeat) set = repeat(set, pattern.least, pattern.most);
  for (std::size_t k = 1; k < pattern.parts.size(); ++k) {
    const Set next = matches(pattern.parts[k]);
    if (pattern.op == Op::concat) set = concat(set, next);
    for (std::size_t i = 0; i < size(); ++i) {
      if (pattern.op == Op::either) set[i] = set[i] || next[i];
      if (pattern.op == Op::both) set[i] = set[i] && next[i];
    }
  }
  return set;
}

bool matches(const Pattern& pattern, const std::vector<Label>& word) {
  const Domain domain = Domain::pieces_of(word);
  std::size_t whole = 0;
  while (domain.word(whole) != word) ++whole;
  return domain.matches(pattern)[whole];
}

// --- random patterns ------------------------------------------------------------------------------------------------

namespace {

std::vector<Label> random_labels(Random& random, int labels, int many) {
  std::vector<Label> chosen;
  for (int i = 0; i < many; ++i) chosen.push_back(random.below(labels));
  return chosen;
}

// Distinct ones, in random order.
std::vector<Label> random_distinct(Random& random, int labels, int many) {
  std::vector<Label> chosen;
  while (static_cast<int>(chosen.size()) < many) {
    const Label label = random.below(labels);
    if (!contains(chosen, label)) chosen.push_back(label);
  }
  return chosen;
}

Pattern random_builtin(Random& random, int labels) {
  const Op ops[] = {Op::at_most,   Op::at_least, Op::exactly,        Op::before,
                    Op::requires_, Op::ordered,  Op::once_contiguous};
  Pattern pattern;
  pattern.op = ops[random.below(7)];
  pattern.least = random.between(0, 3);
  pattern.labels = random_labels(random, labels, 1);
  if (pattern.op == Op::before || pattern.op == Op::requires_) pattern.labels = random_labels(random, labels, 2);
  if (pattern.op == Op::ordered) pattern.labels = random_distinct(random, labels, random.between(2, labels));
  return pattern;
}

Pattern random_leaf(Random& random, int labels) {
  const int kind = random.below(12);
  if (kind >= 10) return random_builtin(random, labels);
  Pattern pattern;
  if (kind == 9) return pattern;
  pattern.op = kind < 5 ? Op::label : kind == 5 ? Op::any : kind == 6 ? Op::none_of : Op::one_of;
  const bool is_set = pattern.op == Op::one_of || pattern.op == Op::none_of;
  if (pattern.op != Op::any) pattern.labels = random_distinct(random, labels, is_set ? random.between(1, labels) : 1);
  return pattern;
}

void choose_repetition(Pattern& pattern, Random& random) {
  const std::pair<int, int> common[] = {{0, -1}, {1, -1}, {0, 1}};
  if (random.chance(0.6)) {
    std::tie(pattern.least, pattern.most) = common[random.below(3)];
    return;
  }
  pattern.least = random.chance(0.1) ? random.between(4, 7) : random.between(0, 3);
  const int kind = random.below(3);
  pattern.most = kind == 0 ? -1 : kind == 1 ? pattern.least : pattern.least + random.between(0, 3);
}

}  // namespace

Pattern random_pattern(Random& random, int labels, int depth) {
  if (depth == 0 || random.chance(0.15)) return random_leaf(random, labels);
  const Op ops[] = {Op::concat, Op::concat,     Op::concat, Op::either, Op::either,
                    Op::both,   Op::complement, Op::repeat, Op::repeat};
  Pattern pattern;
  pattern.op = ops[random.below(9)];
  const bool is_unary = pattern.op == Op::complement || pattern.op == Op::repeat;
  const int parts = is_unary ? 1 : random.between(2, 3);
  for (int i = 0; i < parts; ++i) {
    const bool is_condition = pattern.op == Op::both && random.chance(0.5);  // otherwise most intersections are empty
    pattern.parts.push_back(is_condition ? random_builtin(random, labels) : random_pattern(random, labels, depth - 1));
  }
  if (pattern.op == Op::repeat) choose_repetition(pattern, random);
  return pattern;
}

// --- the printer ----------------------------------------------------------------------------------------------------

namespace {

// How tightly a form binds, loosest first.
enum Level { loosest, intersections, concatenations, complements, repetitions, items };

Level level_of(Op op) {
  switch (op) {
    case Op::either:
      return loosest;
    case Op::both:
      return intersections;
    case Op::concat:
      return concatenations;
    case Op::complement:
      return complements;
    case Op::repeat:
      return repetitions;
    default:
      return items;
  }
}

class Printer {
 public:
  Printer(const std::vector<std::string>& names, Random& random) : names_(names), random_(random) {}

  // The text, in parentheses where it binds more loosely than `least`.
  std::string print(const Pattern& pattern, Level least) {
    const bool wrap = level_of(pattern.op) < least || random_.chance(0.03);
    const std::string text = plain(pattern);
    return wrap ? "(" + optional_space() + text + optional_space() + ")" : text;
  }

 private:
  std::string plain(const Pattern& pattern) {
    switch (pattern.op) {
      case Op::either:
        return join(pattern, intersections, "|");
      case Op::both:
        return join(pattern, concatenations, "&");
      case Op::concat:
        return join(pattern, complements, "");
      case Op::complement:
        return "!" + optional_space() + print(pattern.parts[0], complements);
      case Op::repeat:
        return print(pattern.parts[0], random_.chance(0.2) ? repetitions : items) + repetition(pattern);
      case Op::empty:
        return "()";
      case Op::label:
        return name(pattern.labels[0]);
      case Op::any:
        return ".";
      case Op::one_of:
        return "[" + list(pattern.labels, space()) + "]";
      case Op::none_of:
        return "[^" + list(pattern.labels, space()) + "]";
      case Op::at_most:
        return "at_most(" + counted(pattern);
      case Op::at_least:
        return "at_least(" + counted(pattern);
      case Op::exactly:
        return "exactly(" + counted(pattern);
      case Op::before:
        return "before(" + list(pattern.labels, comma()) + ")";
      case Op::requires_:
        return "requires(" + list(pattern.labels, comma()) + ")";
      case Op::ordered:
        return "ordered(" + list(pattern.labels, comma()) + ")";
      case Op::once_contiguous:
        return "once_contiguous(" + name(pattern.labels[0]) + ")";
    }
    throw std::logic_error("no such operator");
  }

  std::string join(const Pattern& pattern, Level least, const std::string& sign) {
    std::string text = print(pattern.parts[0], least);
    for (std::size_t k = 1; k < pattern.parts.size(); ++k) {
      text += sign.empty() ? space() : optional_space() + sign + optional_space();
      text += print(pattern.parts[k], least);
    }
    return text;
  }

  std::string repetition(const Pattern& pattern) {
    const std::string least = std::to_string(pattern.least), most = std::to_string(pattern.most);
    const bool in_signs = random_.chance(0.9);
    if (in_signs && pattern.least == 0 && pattern.most < 0) return "*";
    if (in_signs && pattern.least == 1 && pattern.most < 0) return "+";
    if (in_signs && pattern.least == 0 && pattern.most == 1) return "?";
    if (pattern.most < 0) return "{" + least + ",}";
    if (pattern.most == pattern.least && in_signs) return "{" + least + "}";
    return "{" + least + "," + most + "}";
  }

  std::string name(Label label) { return random_.chance(0.05) ? "\"" + names_[label] + "\"" : names_[label]; }
  std::string list(const std::vector<Label>& labels, const std::string& separator) {
    std::string text = name(labels[0]);
    for (std::size_t i = 1; i < labels.size(); ++i) text += separator + name(labels[i]);
    return text;
  }
  std::string counted(const Pattern& pattern) {
    return std::to_string(pattern.least) + comma() + name(pattern.labels[0]) + ")";
  }
  std::string comma() { return random_.chance(0.8) ? ", " : ","; }
  std::string space() {
    const int kind = random_.below(60);
    return kind == 0 ? " # why (A | B)\n  " : kind == 1 ? "\n  " : kind == 2 ? "\t" : " ";
  }
  std::string optional_space() { return random_.chance(0.7) ? "" : space(); }

  const std::vector<std::string>& names_;
  Random& random_;
};

}  // namespace

std::string print(const Pattern& pattern, const std::vector<std::string>& names, Random& random) {
  return Printer(names, random).print(pattern, loosest);
}

}  // namespace regccrf::oracle
