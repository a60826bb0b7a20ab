// regccrf count: how many sequences of a length there are.
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/language_options.h"

namespace regccrf::cli {
namespace {

struct Options {
  LanguageOptions language;
  std::vector<std::int64_t> lengths;
  bool json = false;
};

int count_command(Options& options) {
  const Language language = options.language.language();
  for (std::int64_t length : options.lengths) {
    const std::string count = language.count(static_cast<std::size_t>(length), options.language.limits);
    if (options.json) {
      std::cout << nlohmann::ordered_json({{"length", length}, {"count", count}}).dump() << "\n";
    } else {
      std::cout << (options.lengths.size() > 1 ? std::to_string(length) + "\t" : "") << count << "\n";
    }
  }
  return 0;
}

}  // namespace

Run add_count(CLI::App& app) {
  CLI::App* command = app.add_subcommand("count", "Count the sequences of a language by length, exactly.");
  command->footer(
      "  regccrf count languages/srl.lang --length 30\n"
      "  regccrf count -e '(O | B I*)*' --length 1,2,3,4,5");
  auto options = std::make_shared<Options>();
  options->language.add_to(*command, false);
  command->add_option("-n,--length", options->lengths, "the length, or several with commas between them")
      ->required()
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(std::int64_t{0}, kLongest))
      ->type_name("N,…");
  command->add_flag("--json", options->json,
                    "print one JSON object for each length; the count is a string, because it may be large");
  return [options] { return count_command(*options); };
}

}  // namespace regccrf::cli
