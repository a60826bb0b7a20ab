// regccrf random: sequences of a language, each equally likely.
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/language_options.h"

namespace regccrf::cli {
namespace {

struct Options {
  LanguageOptions language;
  std::int64_t length = 0;
  std::int64_t many = 1;
  std::uint64_t seed = 1;
  bool json = false;
};

int random_command(Options& options) {
  const Language language = options.language.language();
  const Labels& labels = language.labels();
  for (const auto& sequence :
       language.random(static_cast<std::size_t>(options.length), static_cast<std::size_t>(options.many), options.seed,
                       options.language.limits)) {
    const std::vector<std::string> names = labels.names(sequence);
    if (options.json) {
      std::cout << nlohmann::json(names).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
      continue;
    }
    const bool spaces =
        std::any_of(names.begin(), names.end(), [](const std::string& n) { return n.find(' ') != std::string::npos; });
    for (std::size_t i = 0; i < names.size(); ++i) std::cout << (i == 0 ? "" : spaces ? "\t" : " ") << names[i];
    std::cout << "\n";
  }
  return 0;
}

}  // namespace

Run add_random(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "random",
      "Draw sequences of a length from a language, each equally likely. The same seed gives the same sequences.");
  command->footer("  regccrf random languages/citation-frequent.lang --length 12 --count 3 --seed 7");
  auto options = std::make_shared<Options>();
  options->language.add_to(*command, false);
  command->add_option("-n,--length", options->length, "the length")
      ->required()
      ->check(CLI::Range(std::int64_t{0}, kLongest))
      ->type_name("N");
  command->add_option("-k,--count", options->many, "how many")
      ->check(CLI::Range(std::int64_t{0}, kLongest))
      ->capture_default_str()
      ->type_name("K");
  command->add_option("--seed", options->seed, "seed of the random numbers")->capture_default_str()->type_name("S");
  command->add_flag("--json", options->json, "print one JSON array for each sequence");
  return [options] { return random_command(*options); };
}

}  // namespace regccrf::cli
