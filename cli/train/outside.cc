#include "cli/train/outside.h"

#include <algorithm>
#include <iostream>
#include <set>

#include "base/spelling.h"
#include "cli/train/text.h"
#include "constraint/labels_in_use.h"
#include "regccrf/error.h"

namespace regccrf::cli {
namespace {

// Labels of the other scheme for spans are no slips.
std::string scheme_of(const std::string& strange, const std::vector<std::string>& known) {
  const auto has = [&](const std::string& name) { return std::find(known.begin(), known.end(), name) != known.end(); };
  if (strange.size() < 3 || strange[1] != '-') return "";
  const std::string type = strange.substr(2);
  if ((strange[0] == 'E' || strange[0] == 'S') && has("B-" + type) && has("I-" + type))
    return ". The data looks like BIOES, whose language is bioes({" + type + " …}).";
  return "";
}

std::string describe(const OutsideSequence& outside, const Dataset& data, const Labels& labels) {
  const std::int64_t begin = data.position[outside.sequence], length = data.length(outside.sequence);
  std::vector<std::string> possible;
  for (const Label a : outside.possible) possible.push_back(labels.name(a));
  const std::string there = possible.empty() ? "nothing but the end" : join(possible);
  std::string text = "  " + data.origin(outside.sequence) + ": ";
  if (outside.position >= length)
    return text + "ends too early, after " + plural(length, "label") + "; possible there: " + there;
  if (!data.line.empty()) {
    text = "  " + data.files[data.file[outside.sequence]] + ", line " +
           std::to_string(data.line[outside.sequence] + outside.position) + ": ";
  }
  const Label gold = data.gold[begin + outside.position];
  const std::string before = outside.position == 0 ? "at the start"
                             : data.gold[begin + outside.position - 1] == kUnknownLabel
                                 ? "after an unknown label"
                                 : "after " + labels.name(data.gold[begin + outside.position - 1]);
  return text + (gold == kUnknownLabel ? "no label" : labels.name(gold)) + " " + before +
         (gold == kUnknownLabel ? " leads to the end" : " leaves the language") + "; possible there: " + there;
}

// A slip in the pattern shows as a label of the language that the data lacks and that looks like one of the data's.
// Where the data lacks many, the language is more general than the data.
std::string slip_in_language(const Labels& labels, const Dataset& data) {
  constexpr std::size_t most = 3;
  const std::set<Label> seen(data.gold.begin(), data.gold.end());
  std::vector<std::string> in_data, lacking;
  for (Label a = 0; a < labels.size(); ++a) (seen.contains(a) ? in_data : lacking).push_back(labels.name(a));
  if (lacking.size() > most) return "";
  for (const std::string& name : lacking) {
    if (const auto near = nearest(name, in_data))
      return "the language has the label " + name + ", which the data does not have: did you mean " + *near + "?\n";
  }
  return "";
}

}  // namespace

void check_labels(const Constraint& constraint, const std::vector<std::string>& of_data) {
  const std::vector<bool> used = labels_in_use(constraint);
  std::vector<std::string> known, strange;
  for (Label a = 0; a < constraint.labels().size(); ++a) {
    if (used[a]) known.push_back(constraint.labels().name(a));
  }
  for (const std::string& name : of_data) {
    if (!used[constraint.labels().id(name)]) strange.push_back(name);
  }
  if (strange.empty()) return;
  // Name one that looks like a slip first.
  const auto slip = std::find_if(strange.begin(), strange.end(),
                                 [&](const std::string& name) { return nearest(name, known).has_value(); });
  if (slip != strange.end()) std::iter_swap(strange.begin(), slip);
  const auto near = nearest(strange[0], known);
  const std::string scheme = scheme_of(strange[0], known);
  const std::string none = of_data.size() > 1 && strange.size() == of_data.size() && !near && scheme.empty()
                               ? " No label of the data is one of these: is --label-column right?"
                               : "";
  const std::string others =
      strange.size() > 1 ? " (likewise " + join({strange.begin() + 1, strange.end()}, 5) + ")" : "";
  throw Error("the data has the label " + strange[0] + others + ", which no sequence of the language has" +
              (!scheme.empty() ? scheme
               : near          ? ": did you mean " + *near + "?"
                               : ".") +
              " The language has " + join(known) + "." + none +
              " --outside skip leaves out the sequences with other labels, --outside repair replaces these");
}

void say_unused_labels(const Constraint& constraint, const std::vector<std::string>& of_data) {
  const std::vector<bool> used = labels_in_use(constraint);
  std::vector<std::string> known, unused;
  for (Label a = 0; a < constraint.labels().size(); ++a) {
    const std::string& name = constraint.labels().name(a);
    if (used[a])
      known.push_back(name);
    else if (std::find(of_data.begin(), of_data.end(), name) == of_data.end())
      unused.push_back(name);
  }
  for (const std::string& name : unused) {
    const auto near = nearest(name, known);
    std::cerr << "regccrf: no sequence of the language has the label " << name
              << (near ? ": did you mean " + *near + "?" : "") << "\n";
  }
}

void settle_outside(const TrainArguments& arguments, const Constraint& constraint, bool speak, Dataset& data,
                    nlohmann::ordered_json& facts) {
  const std::vector<OutsideSequence> outside = find_outside(constraint, data);
  facts["outside"] = outside.size();
  if (outside.empty()) return;
  constexpr std::size_t examples = 3;
  std::string report = std::to_string(outside.size()) + " of " + plural(data.sequences(), "training sequence") +
                       (outside.size() == 1 ? " is" : " are") + " outside the language:\n";
  for (std::size_t i = 0; i < std::min(examples, outside.size()); ++i)
    report += describe(outside[i], data, constraint.labels()) + "\n";
  if (outside.size() > examples) report += "  … and " + std::to_string(outside.size() - examples) + " more\n";
  if (arguments.outside == "error") {
    throw Error(report + slip_in_language(constraint.labels(), data) +
                "--outside skip trains without them, --outside repair takes the nearest legal labels instead, and "
                "--constrain decode\ntrains without the constraint and obeys it in tagging");
  }
  std::vector<std::int64_t> which;
  for (const OutsideSequence& o : outside) which.push_back(o.sequence);
  if (arguments.outside == "skip") {
    data = without(data, which);
    if (data.sequences() == 0) throw Error(report + "no training sequence is left");
    report += "they are left out\n";
    facts["skipped"] = outside.size();
  } else {
    const std::int64_t changed = repair(constraint, data, which);
    report += "they are repaired: " + plural(changed, "label") + " changed\n";
    facts["repaired_labels"] = changed;
  }
  if (speak) std::cerr << report;
}

}  // namespace regccrf::cli
