// Uses the inference part alone, with a constraint that another program has saved.
#include <regccrf/constraint.h>

int main(int, char** argv) {
  const regccrf::Constraint constraint = regccrf::Constraint::load(argv[1]);
  const std::vector<std::string> twice = {"B-PER", "B-PER"};
  return constraint.accepts(constraint.labels().ids(twice)).accepted ? 1 : 0;
}
