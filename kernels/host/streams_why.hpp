// Explanations of a wrong result.  Inputs are missing or added twice, or the result is old, or of another place.
// Part of streams.cpp.  A hypothesis counts if it explains every wrong element of an array.

struct Wrong {
  unsigned rank = 0, call = 0, count = 0, index = 0, wrong = 0, length = 0;
  bool in_place = false;
  double got = 0, wanted = 0;
  std::string why = "other", where = "some";
  std::vector<unsigned> ranks;  // that the hypothesis speaks of
  std::vector<unsigned> extra;  // that are in it once too often, where others are missing

  static std::string list(const std::vector<unsigned>& of) {
    std::string text;
    for (unsigned each : of) text += (text.empty() ? "" : ", ") + std::to_string(each);
    return "[" + text + "]";
  }
  std::string json() const {
    char numbers[300];
    std::snprintf(numbers, sizeof numbers,
                  "{\"rank\": %u, \"call\": %u, \"count\": %u, \"index\": %u, \"wrong\": %u, \"length\": %u, "
                  "\"in_place\": %s, \"got\": %g, \"wanted\": %g, ",
                  rank, call, count, index, wrong, length, in_place ? "true" : "false", got, wanted);
    return numbers + ("\"why\": \"" + why + "\", \"where\": \"" + where + "\", \"ranks\": " + list(ranks) +
                      ", \"extra\": " + list(extra) + "}");
  }
};

struct Hypotheses {
  const Job& job;
  const Results& results;
  const std::vector<T>& seen;
  std::vector<unsigned> wrong;  // elements

  Hypotheses(const Job& job, const Results& results, const std::vector<T>& seen)
      : job(job), results(results), seen(seen) {
    for (unsigned i = 0; i < seen.size(); i++)
      if (seen[i] != results.wanted(job, i)) wrong.push_back(i);
  }

  // Whose input an element should hold, and which element of it.
  bool takes(unsigned rank, unsigned i) const {
    if (results.gathers) return rank == i / job.count;
    return &results != &RESULTS.at(BROADCAST) || rank == job.root;
  }
  unsigned source(unsigned i) const {
    return results.gathers ? i % job.count : results.scatters ? job.rank * job.count + i : i;
  }
  T input(unsigned call, unsigned rank, unsigned i) const { return value(call, rank, source(i)); }

  template <class Expected> bool all(Expected expected) const {
    for (unsigned i : wrong)
      if (seen[i] != expected(i)) return false;
    return true;
  }

  // Each rank's input 0, 1 or 2 times: `times` has two bits for each.  Those with few differences are tried first.
  bool counted(Wrong& found) const {
    const unsigned ranks = job.plan.ranks;
    for (unsigned differences = 1; differences <= ranks; differences++)
      for (unsigned times = 0; times < 1u << 2 * ranks; times++) {
        std::vector<unsigned> missing, twice;
        bool possible = true;
        for (unsigned rank = 0; rank < ranks; rank++) {
          const unsigned n = times >> 2 * rank & 3, due = takes(rank, wrong[0]);
          possible = possible && n < 3;
          if (n < due) missing.push_back(rank);
          if (n > due) twice.push_back(rank);
        }
        if (!possible || missing.size() + twice.size() != differences) continue;
        if (!all([&](unsigned i) {
              T total = 0;
              for (unsigned rank = 0; rank < ranks; rank++) total += T(times >> 2 * rank & 3) * input(job.call, rank, i);
              return total;
            }))
          continue;
        found.why = missing.empty() ? "twice" : "missing";
        found.ranks = missing.empty() ? twice : missing;
        if (missing.size()) found.extra = twice;
        return true;
      }
    return false;
  }

  // Inputs of some ranks are of another call.
  bool of_call(int call, const char* why, Wrong& found) const {
    if (call < 0) return false;
    const unsigned ranks = job.plan.ranks;
    for (unsigned old = 1; old < 1u << ranks; old++) {
      if (!all([&](unsigned i) {
            T total = 0;
            for (unsigned rank = 0; rank < ranks; rank++)
              if (takes(rank, i)) total += input(old >> rank & 1 ? call : job.call, rank, i);
            return total;
          }))
        continue;
      found.why = why;
      for (unsigned rank = 0; rank < ranks; rank++)
        if (old >> rank & 1) found.ranks.push_back(rank);
      return true;
    }
    return false;
  }

  bool stale(int call, Wrong& found) const {
    for (int back = 1; back <= 4; back++)
      if (of_call(call - back, "stale", found)) return true;
    return false;
  }

  // Each run of wrong elements is a run of right ones from elsewhere.
  bool moved() const {
    for (std::size_t first = 0, end; first < wrong.size(); first = end) {
      for (end = first + 1; end < wrong.size() && wrong[end] == wrong[end - 1] + 1;) end++;
      bool found = false;
      for (unsigned from = 0; from + (end - first) <= seen.size() && !found; from++) {
        found = true;
        for (std::size_t k = first; k < end && found; k++)
          found = seen[wrong[k]] == results.wanted(job, from + unsigned(k - first));
      }
      if (!found) return false;
    }
    return true;
  }

  // All elements, those at the end, whole runs, or others; a wrong element may look right by chance.
  const char* where() const {
    const unsigned near = 3;
    if (wrong.size() * 100 >= seen.size() * 85) return "all";
    unsigned runs = 1;
    for (std::size_t k = 1; k < wrong.size(); k++) runs += wrong[k] - wrong[k - 1] > near;
    if (runs == 1 && wrong.back() + near >= seen.size() && wrong.size() * 2 < seen.size()) return "tail";
    return runs <= job.plan.ranks ? "shard" : "some";
  }
};

inline Wrong explained(const Job& job, const Results& results, const std::vector<T>& seen) {
  const Hypotheses of(job, results, seen);
  Wrong found;
  if (of.wrong.empty()) return found;
  found.rank = job.rank, found.call = job.call, found.count = job.count, found.index = of.wrong[0];
  found.wrong = unsigned(of.wrong.size()), found.length = unsigned(seen.size()), found.in_place = job.in_place;
  found.got = seen[found.index], found.wanted = results.wanted(job, found.index), found.where = of.where();
  const int call = int(job.call);
  if (of.all([&](unsigned i) { return job.in_place ? of.input(job.call, job.rank, i) : T(-1); })) found.why = "untouched";
  else if (of.counted(found)) {}
  else if (of.stale(call, found)) {}
  else if (of.of_call(call + 1, "ahead", found)) {}
  else if (of.moved()) found.why = "elsewhere";
  return found;
}

// Something wrote behind the end of a result.
inline Wrong beyond(const Job& job, const Results& results, unsigned index, T seen) {
  Wrong found;
  found.rank = job.rank, found.call = job.call, found.count = job.count, found.index = index, found.wrong = 1;
  found.length = results.length(job), found.in_place = job.in_place, found.got = seen, found.wanted = UNTOUCHED;
  found.why = "beyond", found.where = "tail";
  return found;
}
