#include "engine/recipes/parallel.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "common/parse_number.h"
#include "engine/recipes/options.h"

namespace pdjob::engine {
namespace {

using Texts = std::vector<std::string>;

// One size: its key, how the make spells it, and where it is kept.
struct Size {
  const char* key;
  Texts ParallelOptions::* spellings;
  uint32_t Parallel::* said;
  uint32_t EngineShape::* value;
};
constexpr auto kSizes = std::to_array<Size>({
    {"tensor", &ParallelOptions::tensor, &Parallel::tensor, &EngineShape::tensor},
    {"pipeline", &ParallelOptions::pipeline, &Parallel::pipeline, &EngineShape::pipeline},
    {"data", &ParallelOptions::data, &Parallel::data, &EngineShape::data},
    {"context", &ParallelOptions::context, &Parallel::context, &EngineShape::context},
});

struct Written {
  std::string option;  // As the user spells it.
  std::string value;
};

// Engines take an unambiguous beginning for an option; an ambiguous one they refuse.
bool means(const std::string& name, const std::string& spelling) {
  constexpr size_t kAbbreviationMin = 6;
  const std::string option = option_name(spelling);
  return name == option ||
         (name.size() >= kAbbreviationMin && name.starts_with("--") && option.starts_with(name));
}

// The last one counts, as for the engines.
std::optional<Written> written(const Texts& args, const Texts& spellings) {
  std::optional<Written> found;
  for (size_t i = 0; i < args.size(); ++i) {
    const std::string name = is_option(args[i]) ? option_name(args[i]) : "";
    const auto own = [&](const std::string& spelling) { return means(name, spelling); };
    if (std::ranges::any_of(spellings, own)) {
      found = Written{name, option_value(args, i)};
    }
  }
  return found;
}

std::optional<uint32_t> size_of(const std::optional<Written>& option) {
  const auto size = option ? parse_number<uint32_t>(option->value) : std::nullopt;
  return size && *size >= 1 && *size <= kParallelMax ? size : std::nullopt;
}

// The product, or so many that no node has them.
uint32_t times(uint32_t one, uint32_t other) {
  return static_cast<uint32_t>(
      std::min<uint64_t>(uint64_t{one} * other, uint64_t{kEngineGpusMax} + 1));
}

std::string must_be_size(const Written& option) {
  return option.option + " must be 1.." + std::to_string(kParallelMax) + ", got " +
         (option.value.empty() ? "nothing" : option.value);
}

std::string said(const Written& option) { return option.option + " " + option.value; }

using Problems = std::vector<ShapeProblem>;

void check_sizes(const ShapeWish& wish, Problems& problems) {
  for (const Size& size : kSizes) {
    const std::string key = std::string("parallel.") + size.key;
    const uint32_t key_size = wish.keys.*size.said;
    const Texts& spellings = wish.options.*size.spellings;
    const auto option = written(wish.args, spellings);
    const auto option_size = size_of(option);
    if (option && !option_size) {
      problems.push_back({"args", must_be_size(*option)});
    } else if (key_size > 1 && spellings.empty()) {
      problems.push_back({key, "is not known to the recipe: name the option in its `parallel`"});
    } else if (key_size > 0 && option_size && *option_size != key_size) {
      problems.push_back(
          {key, "is " + std::to_string(key_size) + ", and engine.args says " + said(*option)});
    }
  }
  if (wish.keys.expert && wish.options.expert.empty()) {
    problems.push_back(
        {"parallel.expert", "is not known to the recipe: name the option in its `parallel`"});
  }
}

void check_options(const ShapeWish& wish, Problems& problems) {
  for (const std::string& argument : wish.args) {
    const std::string name = is_option(argument) ? option_name(argument) : "";
    const auto exactly = [&](const std::string& reserved) { return name == reserved; };
    if (std::ranges::any_of(wish.options.reserved, exactly)) {
      problems.push_back(
          {"args", name + " is said by pdjob, to each node of an engine: set engine.nodes and "
                          "engine.parallel"});
    }
  }
  if (const auto factor = written(wish.args, wish.options.factor); factor && !size_of(factor)) {
    problems.push_back({"args", must_be_size(*factor)});
  }
}

void check_counts(const ShapeWish& wish, const EngineShape& shape, Problems& problems) {
  const std::string sizes = sizes_text(shape);
  const std::string taken = "its parallel sizes take " + std::to_string(shape.ranks) +
                            (sizes.empty() ? "" : " (" + sizes + ")");
  const bool knows_sizes = !wish.options.tensor.empty();
  if (shape.ranks > kEngineGpusMax) {
    problems.push_back({"parallel", "takes more than " + std::to_string(kEngineGpusMax) +
                                        " GPUs (" + sizes + ")"});
  } else if (wish.gpus > 0 && wish.gpus != shape.ranks && knows_sizes) {
    problems.push_back(
        {"gpus", "is " + std::to_string(wish.gpus) + ", and " + taken +
                     (sizes.empty() ? ": say how it uses them, such as engine.parallel: {tensor: " +
                                          std::to_string(wish.gpus) + "}"
                                    : "")});
  }
  if (shape.nodes == 1) {
    return;
  }
  const uint32_t here = shape.ranks_per_node();
  const uint32_t replica = shape.ranks_of_replica();
  if (shape.ranks % shape.nodes != 0) {
    problems.push_back({"nodes", "is " + std::to_string(shape.nodes) + ", by which " +
                                     std::to_string(shape.ranks) + " GPUs cannot be divided"});
  } else if (here % replica != 0 && replica % here != 0) {
    problems.push_back(
        {"nodes", "is " + std::to_string(shape.nodes) + ": a node of " + std::to_string(here) +
                      " GPUs holds no whole data-parallel ranks of " + std::to_string(replica) +
                      ", nor do such ranks fill whole nodes"});
  }
  if (wish.options.reserved.empty()) {
    problems.push_back({"nodes", "must be 1: the recipe does not say how an engine spans nodes"});
  }
}

}  // namespace

std::string sizes_text(const EngineShape& shape) {
  std::string text;
  for (const Size& size : kSizes) {
    if (shape.*size.value > 1) {
      text += (text.empty() ? "" : ", ") + std::string(size.key) + " " +
              std::to_string(shape.*size.value);
    }
  }
  return text;
}

void read(ConfigReader& in, Parallel& parallel) {
  const FieldRange<uint32_t> range{0, kParallelMax};
  in.field("tensor", parallel.tensor,
           {"Tensor-parallel size. 0, as for the other sizes: as `args` says, else 1."}, range);
  in.field("pipeline", parallel.pipeline, {"Pipeline-parallel size."}, range);
  in.field("data", parallel.data,
           {"Data-parallel size: so many ranks in one engine, behind one port."}, range);
  in.field("context", parallel.context,
           {"Context-parallel size of decode: so many tensor-parallel ranks share the KV."}, range);
  in.field("expert", parallel.expert, {"Spread experts over all ranks."});
}

void read(ConfigReader& in, ParallelOptions& options) {
  in.field("tensor", options.tensor, {"The spellings of this option; the first one is written."});
  in.field("pipeline", options.pipeline, {"The same."});
  in.field("data", options.data, {"The same."});
  in.field("context", options.context, {"The same."});
  in.field("expert", options.expert, {"The same, of a switch."});
  in.field("factor", options.factor, {"One more option whose value multiplies the GPUs."});
  in.field("data_within", options.data_within,
           {"Switches with which data-parallel ranks take no GPUs of their own."});
  in.field("reserved", options.reserved,
           {"Options that pdjob gives to an engine over several nodes, in all spellings. Users "
            "cannot set them."});
  in.field("files", options.files, {"Options that name a file with more options."});
}

EngineShape shape_of(const ShapeWish& wish) {
  EngineShape shape{.nodes = wish.nodes};
  for (const Size& size : kSizes) {
    const uint32_t key_size = wish.keys.*size.said;
    const auto option_size = size_of(written(wish.args, wish.options.*size.spellings));
    shape.*size.value = key_size > 0 ? key_size : option_size.value_or(1);
  }
  shape.expert = wish.keys.expert || written(wish.args, wish.options.expert).has_value();
  shape.ranks = times(shape.tensor, shape.pipeline);
  if (!written(wish.args, wish.options.data_within)) {
    shape.ranks = times(shape.ranks, shape.data);
  }
  shape.ranks = times(shape.ranks, size_of(written(wish.args, wish.options.factor)).value_or(1));
  if (wish.computes_on_gpu) {
    shape.gpus = wish.gpus > 0 ? wish.gpus : shape.ranks;
  }
  return shape;
}

std::vector<ShapeProblem> check_shape(const ShapeWish& wish) {
  Problems problems;
  check_sizes(wish, problems);
  check_options(wish, problems);
  check_counts(wish, shape_of(wish), problems);
  return problems;
}

std::vector<std::string> parallel_args(const ShapeWish& wish) {
  Texts args;
  for (const Size& size : kSizes) {
    const Texts& spellings = wish.options.*size.spellings;
    const uint32_t key_size = wish.keys.*size.said;
    if (key_size > 1 && !spellings.empty() && !written(wish.args, spellings)) {
      args.push_back(spellings.front());
      args.push_back(std::to_string(key_size));
    }
  }
  if (wish.keys.expert && !wish.options.expert.empty() &&
      !written(wish.args, wish.options.expert)) {
    args.push_back(wish.options.expert.front());
  }
  return args;
}

}  // namespace pdjob::engine
