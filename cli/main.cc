// regccrf: the program. Commands are in files of their own; this one tells them apart and turns errors into messages.
#include <algorithm>
#include <exception>
#include <iostream>
#include <map>
#include <new>

#include "base/spelling.h"
#include "cli/commands.h"
#include "regccrf/error.h"

namespace {

constexpr int kError = 2;

int fail(const std::string& message) {
  std::cout.flush();
  std::cerr << "regccrf: error: " << message << "\n";
  return kError;
}

// ": did you mean --threads?" for the first long option that the command does not have.
std::string nearest_option(const CLI::App& command, int argc, char** argv) {
  for (int i = 2; i < argc; ++i) {
    const std::string given = argv[i], option = given.substr(0, given.find('='));
    if (!option.starts_with("--") || option == "--" || command.get_option_no_throw(option)) continue;
    std::vector<std::string> names;
    for (const CLI::Option* known : command.get_options()) {
      for (const std::string& name : known->get_lnames()) names.push_back("--" + name);
    }
    const auto near = regccrf::nearest(option, names);
    return near ? ": did you mean " + *near + "?" : "";
  }
  return "";
}

std::string usage_error(const CLI::App& app, int argc, char** argv, const std::string& what) {
  const std::string first = argv[1];
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    names.push_back(command->get_name());
    if (first != names.back()) continue;
    return first + ": " + what + nearest_option(*command, argc, argv) + " (regccrf " + first + " --help lists all)";
  }
  if (first.starts_with("-")) return what + " (regccrf --help)";
  const auto near = regccrf::nearest(first, names);
  return "there is no command '" + first + "'" + (near ? ": did you mean " + *near + "?" : "") +
         " (regccrf --help lists them)";
}

// A limit that is the largest double is no help to anybody.
std::string without_largest(const std::string& what) {
  const std::size_t range = what.find(" not in range ");
  if (range == std::string::npos || what.find(" to 179769313486231570") == std::string::npos) return what;
  const bool zero = what.substr(0, range).ends_with("Value 0");
  return what.substr(0, range) + (zero ? " is not a positive number" : " is negative, or is not a number");
}

int run(int argc, char** argv) {
  using namespace regccrf::cli;
  CLI::App app("regccrf: label sequences that are guaranteed to be legal.");
  app.footer(
      "You say in a readable pattern which label sequences are legal:\n"
      "  regccrf compile -e '(O | B-PER I-PER*)* & at_most(2, B-PER)'\n"
      "  echo 'O B-PER I-PER' | regccrf accept -e '(O | B-PER I-PER*)*'\n\n"
      "and train a tagger whose output obeys it:\n"
      "  regccrf train train.conll -m ner.model -e 'bio({PER LOC ORG})'\n"
      "  regccrf tag -m ner.model text.conll\n\n"
      "The pattern language is described in docs/language.md. Ready languages are in languages/. Start with "
      "docs/tutorial.md.\n"
      "regccrf COMMAND --help says more about a command.");
  app.name("regccrf");
  app.set_version_flag("--version", std::string("regccrf ") + REGCCRF_VERSION);
  app.require_subcommand(1);
  const std::map<std::string, Run> commands = {{"compile", add_compile(app)}, {"accept", add_accept(app)},
                                               {"count", add_count(app)},     {"random", add_random(app)},
                                               {"train", add_train(app)},     {"eval", add_eval(app)},
                                               {"tag", add_tag(app)},         {"inspect", add_inspect(app)},
                                               {"import", add_import(app)},   {"reproduce", add_reproduce(app)}};
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    if (argc == 1) {
      std::cerr << app.help();
      return kError;
    }
    return fail(usage_error(app, argc, argv, without_largest(error.what())));
  }
  const int status = commands.at(app.get_subcommands().front()->get_name())();
  if (!std::cout.flush()) return fail("cannot write to standard output");
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  std::ios::sync_with_stdio(false);
  try {
    return run(argc, argv);
  } catch (const std::bad_alloc&) {
    return fail(
        "out of memory; for training, fewer labels, --min-count and --threads 1 take less, for languages --max-memory "
        "stops a construction in time");
  } catch (const std::exception& error) {
    return fail(error.what());
  }
}
