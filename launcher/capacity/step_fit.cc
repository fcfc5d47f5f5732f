#include "launcher/capacity/step_fit.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <optional>
#include <utility>

#include "common/check.h"

namespace pdjob::launcher {
namespace {

using Row = std::vector<double>;

struct Equations {
  std::vector<Row> rows;       // What each measurement consists of.
  std::vector<double> values;  // What it took.
  size_t columns() const { return rows.front().size(); }
};

// Solves a small symmetric system by elimination with pivots. Nothing: it has no single solution.
std::optional<Row> solve(std::vector<Row> matrix, Row right) {
  constexpr double kPivotMin = 1e-12;
  const size_t size = right.size();
  for (size_t i = 0; i < size; ++i) {
    size_t pivot = i;
    for (size_t r = i + 1; r < size; ++r) {
      pivot = std::abs(matrix[r][i]) > std::abs(matrix[pivot][i]) ? r : pivot;
    }
    if (std::abs(matrix[pivot][i]) < kPivotMin) {
      return std::nullopt;
    }
    std::swap(matrix[i], matrix[pivot]);
    std::swap(right[i], right[pivot]);
    for (size_t r = 0; r < size; ++r) {
      if (r != i) {
        const double factor = matrix[r][i] / matrix[i][i];
        for (size_t c = i; c < size; ++c) {
          matrix[r][c] -= factor * matrix[i][c];
        }
        right[r] -= factor * right[i];
      }
    }
  }
  for (size_t i = 0; i < size; ++i) {
    right[i] /= matrix[i][i];
  }
  return right;
}

// Rows divided by their values, and columns by their lengths: what remains has no units.
struct Scaled {
  std::vector<Row> rows;
  Row lengths;
};
Scaled scaled(const Equations& equations) {
  Scaled made{equations.rows, Row(equations.columns(), 0.0)};
  for (size_t r = 0; r < made.rows.size(); ++r) {
    for (size_t c = 0; c < made.lengths.size(); ++c) {
      made.rows[r][c] /= equations.values[r];
      made.lengths[c] += made.rows[r][c] * made.rows[r][c];
    }
  }
  for (size_t c = 0; c < made.lengths.size(); ++c) {
    made.lengths[c] = std::sqrt(made.lengths[c]);
    for (Row& row : made.rows) {
      row[c] = made.lengths[c] > 0 ? row[c] / made.lengths[c] : 0;
    }
  }
  return made;
}

struct Solution {
  Row factors;  // Of the columns in the set; other columns have zero.
  double squares = 0;
};

// The best factors of the columns in `set`, a bit for each, for rows that should add up to
// `targets`.
std::optional<Solution> solve_set(const std::vector<Row>& rows, const Row& targets, uint32_t set) {
  std::vector<size_t> columns;
  for (size_t c = 0; c < rows.front().size(); ++c) {
    if ((set >> c & 1U) != 0) {
      columns.push_back(c);
    }
  }
  std::vector<Row> matrix(columns.size(), Row(columns.size(), 0.0));
  Row right(columns.size(), 0.0);
  for (size_t r = 0; r < rows.size(); ++r) {
    for (size_t i = 0; i < columns.size(); ++i) {
      right[i] += rows[r][columns[i]] * targets[r];
      for (size_t j = 0; j < columns.size(); ++j) {
        matrix[i][j] += rows[r][columns[i]] * rows[r][columns[j]];
      }
    }
  }
  const auto found = solve(std::move(matrix), std::move(right));
  if (!found) {
    return std::nullopt;
  }
  Solution solution{.factors = Row(rows.front().size(), 0.0)};
  for (size_t i = 0; i < columns.size(); ++i) {
    solution.factors[columns[i]] = (*found)[i];
  }
  for (size_t r = 0; r < rows.size(); ++r) {
    double sum = 0;
    for (size_t c = 0; c < rows[r].size(); ++c) {
      sum += rows[r][c] * solution.factors[c];
    }
    solution.squares += (sum - targets[r]) * (sum - targets[r]);
  }
  return solution;
}

// Least squares of the relative errors with no factor below zero. The optimum is the optimum of
// some set of columns; there are few columns, so each set is tried, small ones first.
Row fit(const Equations& equations) {
  const Scaled made = scaled(equations);
  const Row ones(made.rows.size(), 1.0);
  std::vector<uint32_t> sets;
  for (uint32_t set = 1; set < 1U << equations.columns(); ++set) {
    sets.push_back(set);
  }
  std::ranges::stable_sort(sets, {}, [](uint32_t set) { return std::popcount(set); });
  constexpr double kGainMin = 1e-9;  // Less is rounding, not a better model.
  Solution best{Row(equations.columns(), 0.0), static_cast<double>(ones.size())};
  for (const uint32_t set : sets) {
    auto solution = solve_set(made.rows, ones, set);
    if (solution && std::ranges::all_of(solution->factors, [](double f) { return f >= 0; }) &&
        solution->squares < best.squares - kGainMin) {
      best = *std::move(solution);
    }
  }
  for (size_t c = 0; c < best.factors.size(); ++c) {
    best.factors[c] = made.lengths[c] > 0 ? best.factors[c] / made.lengths[c] : 0;
  }
  return best.factors;
}

// No measurement has the column, or it is a sum of others: such as tokens and rows, if all prompts
// have one length.
bool cannot_be_told(const Equations& equations, size_t column) {
  constexpr double kOwnMin = 1e-6;
  const Scaled made = scaled(equations);
  if (made.lengths[column] == 0) {
    return true;
  }
  Row targets;
  for (const Row& row : made.rows) {
    targets.push_back(row[column]);
  }
  // Others that depend on each other are left out: the system would have no single solution.
  uint32_t others = 0;
  double rest = 1;
  for (size_t c = 0; c < made.lengths.size(); ++c) {
    if (c == column) {
      continue;
    }
    if (const auto solution = solve_set(made.rows, targets, others | 1U << c)) {
      others |= 1U << c;
      rest = solution->squares;
    }
  }
  return rest < kOwnMin;
}

double dot(const Row& row, const Row& factors) {
  double sum = 0;
  for (size_t c = 0; c < row.size(); ++c) {
    sum += row[c] * factors[c];
  }
  return sum;
}

class Errors {
 public:
  void add(double model, double measured) { off_.push_back(std::abs(model / measured - 1)); }
  ModelError error() const {
    return off_.empty() ? ModelError{}
                        : ModelError{.median = median_of(off_),
                                     .largest = std::ranges::max(off_),
                                     .probes = static_cast<uint32_t>(off_.size())};
  }

 private:
  std::vector<double> off_;
};

constexpr std::array kTimes{
    "step.fixed_us",           "step.per_prompt_token_us", "step.per_sequence_us",
    "step.per_prompt_read_us", "step.per_context_read_us", "per_request_us"};

Row row_of(const StepWork& work) {
  return {work.steps,        work.prompt_tokens, work.sequences,
          work.prompt_reads, work.context_reads, work.requests};
}

EngineModel::Time time_of(double seconds) { return EngineModel::Time(seconds * 1e9); }

Error no_time(const std::string& name) {
  return {ErrorCode::kInvalidArgument, name + ": its time is not above zero"};
}

bool are_times(const std::vector<double>& seconds) {
  return !seconds.empty() &&
         std::ranges::all_of(seconds, [](double s) { return std::isfinite(s) && s > 0; });
}

}  // namespace

void StepWork::add(uint32_t rows, uint32_t tokens) {
  PDJOB_CHECK(tokens > 0);
  const double reads = 1.0 * rows * tokens + 0.5 * tokens * (tokens + 1.0);
  if (tokens == 1) {
    sequences += 1;
    context_reads += reads;
  } else {
    prompt_tokens += tokens;
    prompt_reads += reads;
  }
}

void StepWork::approach(const StepWork& other, double weight) {
  for (double StepWork::* const part :
       {&StepWork::steps, &StepWork::prompt_tokens, &StepWork::sequences, &StepWork::prompt_reads,
        &StepWork::context_reads, &StepWork::requests}) {
    this->*part += weight * (other.*part - this->*part);
  }
}

double median_of(std::vector<double> values) {
  PDJOB_CHECK(!values.empty());
  std::ranges::sort(values);
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

Result<StepFit> fit_steps(const std::vector<StepProbe>& probes) {
  Equations equations;
  std::array<bool, 3> there{};
  for (const StepProbe& probe : probes) {
    if (!are_times(probe.seconds)) {
      return no_time(probe.name);
    }
    there[static_cast<size_t>(probe.kind)] = true;
    if (probe.kind != ProbeKind::kMixed) {
      equations.rows.push_back(row_of(probe.work));
      equations.values.push_back(median_of(probe.seconds));
    }
  }
  if (!there[static_cast<size_t>(ProbeKind::kPrefill)] ||
      !there[static_cast<size_t>(ProbeKind::kDecode)]) {
    return Error{ErrorCode::kInvalidArgument,
                 "a model needs measurements of prompts and of decoding sequences"};
  }
  const Row found = fit(equations);
  StepFit made{.step = {.fixed = time_of(found[0]),
                        .per_prompt_token = time_of(found[1]),
                        .per_sequence = time_of(found[2]),
                        .per_prompt_read = time_of(found[3]),
                        .per_context_read = time_of(found[4])},
               .per_request = time_of(found[5])};
  for (size_t c = 0; c < kTimes.size(); ++c) {
    if (found[c] == 0 && cannot_be_told(equations, c)) {
      made.unmeasured.emplace_back(kTimes[c]);
    }
  }
  std::array<Errors, 3> errors;
  for (const StepProbe& probe : probes) {
    const double measured = median_of(probe.seconds);
    const double model = dot(row_of(probe.work), found);
    errors[static_cast<size_t>(probe.kind)].add(model, measured);
    made.probes.push_back({.name = probe.name, .seconds = measured, .model_seconds = model});
  }
  made.prefill = errors[static_cast<size_t>(ProbeKind::kPrefill)].error();
  made.decode = errors[static_cast<size_t>(ProbeKind::kDecode)].error();
  made.mixed = errors[static_cast<size_t>(ProbeKind::kMixed)].error();
  return made;
}

Result<TransferFit> fit_transfers(const std::vector<TransferProbe>& probes) {
  Equations equations;
  for (const TransferProbe& probe : probes) {
    if (!are_times(probe.seconds)) {
      return no_time("kv " + std::to_string(probe.tokens));
    }
    equations.rows.push_back({1.0, static_cast<double>(probe.tokens)});
    equations.values.push_back(median_of(probe.seconds));
  }
  if (probes.empty()) {
    return Error{ErrorCode::kInvalidArgument, "there are no measurements of KV transfers"};
  }
  const Row found = fit(equations);
  TransferFit made{.per_transfer = time_of(found[0]), .per_token = time_of(found[1])};
  Errors errors;
  for (size_t r = 0; r < probes.size(); ++r) {
    const double model = dot(equations.rows[r], found);
    errors.add(model, equations.values[r]);
    made.probes.push_back({.name = "kv " + std::to_string(probes[r].tokens),
                           .seconds = equations.values[r],
                           .model_seconds = model});
  }
  made.error = errors.error();
  return made;
}

EngineModel model_of(const StepFit& fit) {
  EngineModel model;
  model.step = fit.step;
  model.per_request = fit.per_request;
  model.unmeasured = fit.unmeasured;
  model.prefill = fit.prefill;
  model.decode = fit.decode;
  model.mixed = fit.mixed;
  model.probes = fit.probes;
  return model;
}

}  // namespace pdjob::launcher
