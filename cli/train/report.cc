#include "cli/train/report.h"

#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/train/text.h"

namespace regccrf::cli {
namespace {

using Json = nlohmann::ordered_json;

// The labels themselves, where they are few: a slip in the data shows.
std::string few(const Labels& labels) {
  constexpr std::int32_t most = 12;
  std::string text;
  for (Label a = 0; a < labels.size() && a < most; ++a) text += (a > 0 ? " " : "") + labels.name(a);
  return labels.size() > most ? "" : " (" + text + ")";
}

// How much of training began where the given model ended.
std::string taken_over(std::int64_t taken, std::int64_t all, const std::string& model) {
  const std::string others =
      taken == all ? "" : "; it has none for the other " + std::to_string(all - taken) + ", which start at 0";
  return std::to_string(taken) + " of " + plural(all, "weight") + " began with those of " + model + others;
}

// Under rules that are kept beside a base: how certain the objective is.
void say_certainty(const Trained& trained) {
  const Progress& best = trained.best;
  if (best.phase == Phase::base)
    std::cerr << "the model was trained under the base alone: "
              << (trained.last.phase == Phase::base ? "training ended before the rules had a part in it\n"
                                                    : "later iterations did no better on the development set\n");
  if (best.phase != Phase::rules) return;
  char text[160];
  std::snprintf(text, sizeof text, "gaps make the objective off by at most %.3g; largest gap of a sequence %.2g\n",
                best.slack, best.largest_gap);
  std::cerr << text;
  if (best.uncertified > best.bounds)
    std::cerr << plural(best.uncertified - best.bounds, "sequence") << " needed a gap above --max-gap\n";
  if (best.bounds > 0)
    std::cerr << plural(best.bounds, "sequence")
              << " counted with the loss of the base, an upper bound: under the rules too much work\n";
}

void say_result(const TrainArguments& arguments, const Trained& trained, const Json& facts) {
  char text[160];
  std::snprintf(text, sizeof text, "%s: objective %.6f after %d iterations (%s), %.1f s", arguments.model.c_str(),
                trained.best.objective, trained.last.iteration,
                trained.stopped == "asked to" ? "interrupted" : trained.stopped.c_str(), trained.last.seconds);
  std::cerr << text;
  if (trained.best.development) {
    std::snprintf(text, sizeof text, "; development %s %.2f at iteration %d",
                  facts.value("development_score", "score").c_str(), *trained.best.development, trained.best.iteration);
    std::cerr << text;
  }
  std::cerr << "\n";
  say_certainty(trained);
  if (!arguments.continue_from.empty())
    std::cerr << taken_over(trained.taken_over, facts["weights"], arguments.continue_from) << "\n";
}

void print_result(const TrainArguments& arguments, const Trained& trained, const std::vector<Trial>& trials,
                  const Json& facts) {
  Json all = {{"model", arguments.model}};
  if (!trials.empty()) all["trials"] = as_json(trials);
  all.update(facts);
  all["seconds"] = trained.last.seconds;
  all["labels"] = trained.model.labels().size();
  all["attributes"] = trained.model.attributes();
  std::cout << all.dump() << "\n";
}

}  // namespace

void say_task(const Input& input, const Training& training) {
  std::cerr << plural(input.data.sequences(), "sequence") << ", " << plural(input.data.positions(), "position") << ", "
            << plural(training.labels.size(), "label") << few(training.labels) << ", "
            << plural(input.attributes.size(), "attribute") << "; " << input.extractor->summary() << "\n";
  std::vector<std::uint8_t> seen(static_cast<std::size_t>(training.labels.size()), 0);
  for (const Label a : input.data.gold) {
    if (a != kUnknownLabel) seen[a] = 1;
  }
  std::vector<std::string> unseen;
  for (Label a = 0; a < training.labels.size(); ++a) {
    if (!seen[a]) unseen.push_back(training.labels.name(a));
  }
  if (!unseen.empty()) std::cerr << "never seen in training, so without weights of their own: " << join(unseen) << "\n";
}

void say_where_it_goes_on(const TrainOptions& options, bool interrupted) {
  std::error_code code;
  const bool there = std::filesystem::exists(options.checkpoint, code);
  const int every = options.every > 0 ? options.every : options.optimizer == Optimizer::lbfgs ? 50 : 1;
  if (!interrupted) {
    std::cerr << (there ? "continues from " + options.checkpoint
                        : "there is no " + options.checkpoint + " yet: training begins at the start")
              << "\n";
    return;
  }
  std::cerr << (there ? options.checkpoint + " has the last multiple of " + plural(every, "iteration") +
                            ": --resume continues from there"
                      : "no checkpoint was written, as the first one comes after " + plural(every, "iteration") +
                            ": --every N for others")
            << "\n";
}

void say_trials(const TrainArguments& arguments, const std::vector<Trial>& trials) {
  if (trials.empty()) {
    if (!arguments.quiet) std::cerr << "no trial was complete\n";
  } else if (!arguments.json) {
    print_table(trials);
  } else if (arguments.model.empty()) {
    std::cout << Json{{"trials", as_json(trials)}}.dump() << "\n";
  }
}

void report(const TrainArguments& arguments, const Trained& trained, const std::vector<Trial>& trials) {
  const Json facts = Json::parse(trained.model.facts());
  if (arguments.json) {
    print_result(arguments, trained, trials, facts);
  } else if (!arguments.quiet) {
    say_result(arguments, trained, facts);
  }
}

}  // namespace regccrf::cli
