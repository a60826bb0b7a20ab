// The commands of the program: each adds itself to the command line and gives what to run. A run's result is the exit
// status.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace regccrf::cli {

using Run = std::function<int()>;

Run add_compile(CLI::App& app);
Run add_accept(CLI::App& app);
Run add_count(CLI::App& app);
Run add_random(CLI::App& app);
Run add_train(CLI::App& app);
Run add_eval(CLI::App& app);
Run add_tag(CLI::App& app);
Run add_inspect(CLI::App& app);
Run add_import(CLI::App& app);
Run add_reproduce(CLI::App& app);

}  // namespace regccrf::cli
