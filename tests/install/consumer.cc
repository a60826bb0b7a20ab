// Uses an installed regccrf as any program would: pattern in, compiled constraint out.
#include <regccrf/regccrf.h>

#include <cstdio>

int main(int, char** argv) {
  const auto language = regccrf::Language::parse("(O | B-PER I-PER*)* & at_most(1, B-PER)");
  const regccrf::Constraint constraint = regccrf::compile(language);
  constraint.save(argv[1]);
  const bool legal =
      constraint.accepts(language.labels().ids(std::vector<std::string>{"O", "B-PER", "I-PER"})).accepted;
  std::printf("%d states, %s\n", static_cast<int>(constraint.size().states), legal ? "legal" : "not legal");
  return legal ? 0 : 1;
}
