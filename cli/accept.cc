// regccrf accept: which sequences are in the language, and where and why the others are not.
#include <functional>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "automaton/automaton.h"
#include "base/lines.h"
#include "base/spelling.h"
#include "cli/commands.h"
#include "cli/language_options.h"

namespace regccrf::cli {
namespace {

struct Options {
  LanguageOptions language;
  bool json = false;
};

// Labels of a line: separated by tabs where it has one, by white space otherwise.
std::vector<std::string> split(const std::string& line) {
  const char* separators = line.find('\t') == std::string::npos ? " \r" : "\t\r";
  std::vector<std::string> words;
  for (std::size_t begin = line.find_first_not_of(separators); begin != std::string::npos;) {
    const std::size_t end = std::min(line.find_first_of(separators, begin), line.size());
    words.push_back(line.substr(begin, end - begin));
    begin = line.find_first_not_of(separators, end);
  }
  return words;
}

// One line's answer: what a Membership says, or a label that the language does not know.
struct Answer {
  Membership membership;
  std::string unknown;
};

using Test = std::function<Membership(const std::vector<Label>&)>;

Answer answer(const std::vector<std::string>& words, const Labels& labels, const Test& test) {
  std::vector<Label> sequence;
  for (const std::string& word : words) {
    const auto id = labels.find(word);
    if (!id) {
      Answer result{test(sequence), word};
      const bool left_earlier = !result.membership && result.membership.position < sequence.size();
      if (left_earlier) result.unknown.clear();
      result.membership.accepted = false;
      return result;
    }
    sequence.push_back(*id);
  }
  return {test(sequence), ""};
}

std::string list(const std::vector<Label>& possible, const Labels& labels) {
  std::vector<std::string> names;
  for (const Label a : possible) names.push_back(labels.name(a));
  return names.empty() ? "the end of the sequence only" : listed(names);
}

std::string explain(const Answer& answer, const std::vector<std::string>& words, const Labels& labels) {
  const std::size_t at = answer.membership.position;
  if (!answer.unknown.empty()) {
    const auto near = nearest(answer.unknown, labels.names());
    return "no: label " + std::to_string(at + 1) + " (" + answer.unknown + ") is not a label of the language" +
           (near ? ": did you mean " + *near + "?" : "");
  }
  const std::string& rule = answer.membership.rule;
  if (at == words.size())
    return "no: ends too early" + (rule.empty() ? "" : " for " + rule) +
           "; possible next: " + list(answer.membership.possible, labels);
  return "no: label " + std::to_string(at + 1) + " (" + words[at] +
         (rule.empty() ? ") leaves the language" : ") breaks " + rule) +
         "; possible there: " + list(answer.membership.possible, labels);
}

std::string as_json(const Answer& answer, const std::vector<std::string>& words, const Labels& labels) {
  nlohmann::ordered_json out = {{"accepted", answer.membership.accepted}};
  if (!answer.membership) {
    out["position"] = answer.membership.position;
    if (answer.membership.position < words.size()) out["label"] = words[answer.membership.position];
    out["possible"] = labels.names(answer.membership.possible);
    if (!answer.membership.rule.empty()) out["rule"] = answer.membership.rule;
    if (!answer.unknown.empty()) out["unknown"] = true;
  }
  return out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

int accept_command(Options& options) {
  const Constraint constraint = options.language.constraint();
  const std::string path = options.language.input();
  LineReader lines(path);
  const Labels& labels = constraint.labels();
  const Constraint base = constraint.base();
  Tracer tracer(base.automaton());
  const Test test = [&](const std::vector<Label>& sequence) {
    return constraint.rules() > 0 ? constraint.accepts(sequence) : tracer.trace(sequence.data(), sequence.size());
  };
  std::size_t sequences = 0, rejected = 0, blank = 0, strange = 0;
  for (Line line; lines.next_text(line); ++sequences) {
    const std::vector<std::string> words = split(std::string(line.text));
    const Answer result = answer(words, labels, test);
    if (!result.membership) ++rejected;
    if (words.empty()) ++blank;
    if (!result.unknown.empty()) ++strange;
    if (options.json) {
      std::cout << as_json(result, words, labels) << "\n";
    } else {
      std::cout << (result.membership ? "yes" : explain(result, words, labels)) << "\n";
    }
    if (path == "-") std::cout.flush();  // somebody may wait for it
  }
  if (rejected > 0) {
    std::cout.flush();
    std::cerr << "regccrf: " << rejected << " of " << sequences << " sequences are not in the language\n";
    const bool looks_like_columns = blank > 0 && 2 * strange > sequences;
    if (looks_like_columns) {
      std::cerr << "regccrf: note: a line is a sequence here; for columns of words and labels, regccrf eval FILE FILE "
                   "-c LANGUAGE counts violations\n";
    }
  }
  return rejected > 0 ? 1 : 0;
}

}  // namespace

Run add_accept(CLI::App& app) {
  CLI::App* command = app.add_subcommand("accept", "Tell which label sequences are in a language.");
  command->footer(
      "Each line of the input is one sequence, with spaces between labels (or tabs, if labels contain spaces). The "
      "answer is\n"
      "yes, or no with the place where the sequence leaves the language and the labels that were possible there. The "
      "exit\n"
      "status is 1 if any answer is no.\n"
      "\n"
      "  echo 'O B-PER I-LOC' | regccrf accept -e '(O | any t in {PER LOC}: B-{t} I-{t}*)*'");
  auto options = std::make_shared<Options>();
  options->language.add_to(*command, true);
  command->add_flag("--json", options->json,
                    "print one JSON object for each sequence: accepted, position (from 0), label, possible");
  return [options] { return accept_command(*options); };
}

}  // namespace regccrf::cli
