// Pattern in, best legal sequence and its probability out.
#include <regccrf/regccrf.h>

#include <cmath>
#include <cstdio>

int main() {
  using namespace regccrf;
  const Language language = Language::parse("(O | B-PER I-PER*)* & at_most(1, B-PER)");
  const Constraint constraint = compile(language);  // labels in the order of the text: O, B-PER, I-PER

  const std::vector<float> emissions = {
      0.1f, 2.0f, 0.0f,  // "Ada" looks like a beginning,
      0.2f, 1.0f, 0.9f,  // "Lovelace" rather like a second one,
      1.5f, 0.0f, 0.3f,  // "met" like nothing,
      0.3f, 1.6f, 0.2f,  // and "Babbage" like a beginning again.
  };
  const std::vector<float> transitions(9, 0.0f);  // [from, to]
  const Scores scores(emissions, transitions);

  const Path best = viterbi(constraint, scores)[0];
  const double probability = std::exp(best.score - log_z(constraint, scores)[0]);
  for (Label label : best.labels) std::printf("%s ", constraint.labels().name(label).c_str());
  std::printf("with probability %.3f\n", probability);
}
