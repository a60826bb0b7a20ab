// A slow matcher for patterns, by the meaning of each operator and without automata.
//
// A Domain is a finite set of words closed under taking pieces: all words up to a length, or the pieces of one word.
// The meaning of a pattern within a domain is the set of its words that match. It follows from the meanings of the
// parts, word by word: `p q` matches a word that splits into a piece of p and a piece of q; `!p` matches what p does
// not; a built-in counts positions. All of this is exact, since whether a word matches depends on its own pieces alone.
//
// The same file makes random patterns and prints them in the library's syntax.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "regccrf/labels.h"
#include "tests/oracle/random.h"

namespace regccrf::oracle {

enum class Op {
  empty,       // ()
  label,       // A: labels[0]
  any,         // .
  one_of,      // [A B]: labels
  none_of,     // [^A B]: labels
  concat,      // parts
  either,      // parts, |
  both,        // parts, &
  complement,  // !parts[0]
  repeat,      // parts[0]{least,most}; most < 0: no bound
  at_most,     // least, labels[0]
  at_least,
  exactly,
  before,  // labels[0], labels[1]
  requires_,
  ordered,  // labels
  once_contiguous,
};

struct Pattern {
  Op op = Op::empty;
  std::vector<Label> labels;
  std::vector<Pattern> parts;
  int least = 0, most = 0;
};

class Domain {
 public:
  using Word = std::vector<Label>;
  using Set = std::vector<bool>;  // which words

  static Domain words_up_to(int length, int labels);
  static Domain pieces_of(const Word& word);  // the word itself comes last

  std::size_t size() const { return words_.size(); }
  const Word& word(std::size_t i) const { return words_[i]; }
  Set matches(const Pattern& pattern) const;

 private:
  void find_splits();
  Set concat(const Set& first, const Set& second) const;
  Set star(const Set& part) const;
  Set repeat(const Set& part, int least, int most) const;
  Set just_empty() const;

  std::vector<Word> words_;                                               // shorter before longer
  std::vector<std::vector<std::pair<std::size_t, std::size_t>>> splits_;  // of each word, by length of the first piece
};

bool matches(const Pattern& pattern, const std::vector<Label>& word);

// Depth is at most `depth`; every operator occurs.
Pattern random_pattern(Random& random, int labels, int depth);

// The pattern's text over the label names, with redundant white space, parentheses, quotes and comments now and then.
std::string print(const Pattern& pattern, const std::vector<std::string>& names, Random& random);

}  // namespace regccrf::oracle
