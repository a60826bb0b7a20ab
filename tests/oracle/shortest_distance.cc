#include "tests/oracle/shortest_distance.h"

#include <fst/shortest-distance.h>
#include <fst/shortest-path.h>
#include <fst/vector-fst.h>

#include <memory>

namespace regccrf::oracle {

double total_weight(const std::string& path) {
  const std::unique_ptr<fst::VectorFst<fst::Log64Arc>> fst(fst::VectorFst<fst::Log64Arc>::Read(path));
  return fst::ShortestDistance(*fst, 1e-15f).Value();
}

std::vector<std::string> shortest_path_outputs(const std::string& path) {
  const std::unique_ptr<fst::StdVectorFst> fst(fst::StdVectorFst::Read(path));
  fst::StdVectorFst best;
  fst::ShortestPath(*fst, &best);
  std::vector<std::string> outputs;
  for (auto q = best.Start(); q != fst::kNoStateId && best.NumArcs(q) > 0;) {
    const fst::StdArc arc = fst::ArcIterator<fst::StdVectorFst>(best, q).Value();
    outputs.push_back(best.OutputSymbols()->Find(arc.olabel));
    q = arc.nextstate;
  }
  return outputs;
}

std::int64_t paths_of_length(const std::string& path, int length) {
  const std::unique_ptr<fst::StdVectorFst> fst(fst::StdVectorFst::Read(path));
  std::vector<std::int64_t> now(fst->NumStates()), next;
  now[fst->Start()] = 1;
  for (int n = 0; n < length; ++n) {
    next.assign(now.size(), 0);
    for (int q = 0; q < fst->NumStates(); ++q) {
      for (fst::ArcIterator<fst::StdVectorFst> arcs(*fst, q); !arcs.Done(); arcs.Next())
        next[arcs.Value().nextstate] += now[q];
    }
    now.swap(next);
  }
  std::int64_t sum = 0;
  for (int q = 0; q < fst->NumStates(); ++q) {
    if (fst->Final(q) != fst::TropicalWeight::Zero()) sum += now[q];
  }
  return sum;
}

}  // namespace regccrf::oracle
