#include "worker/weight_loader.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <string_view>
#include <utility>

#include "common/limits.h"
#include "common/log.h"
#include "common/os/real_clock.h"
#include "engine/model_facts.h"
#include "worker/foreign/weights_dir.h"

namespace pdjob::worker {
namespace {

namespace fs = std::filesystem;

constexpr size_t kEntriesMax = 4096;  // Of a folder.
constexpr const char* kEnding = ".gguf";

Error refuse(std::string why) { return {ErrorCode::kInvalidArgument, std::move(why)}; }

// libllama opens the other parts by itself, and no digest covers them: "NAME-00001-of-00003.gguf".
bool is_a_part(const fs::path& file) {
  const std::string name = file.stem().string();
  const size_t of = name.rfind("-of-");
  const auto digits = [&](size_t from) {
    return from + 5 <= name.size() &&
           std::ranges::all_of(name.substr(from, 5), [](char c) { return c >= '0' && c <= '9'; });
  };
  return of != std::string::npos && of >= 6 && name[of - 6] == '-' && digits(of - 5) &&
         of + 9 == name.size() && digits(of + 4);
}

Result<fs::path> only_file_in(const fs::path& folder) {
  fs::path found;
  size_t files = 0;
  size_t entries = 0;
  bool safetensors = false;
  std::error_code failed;
  for (fs::directory_iterator entry(folder, failed), end; !failed && entry != end;
       entry.increment(failed)) {
    if (++entries > kEntriesMax) {
      return refuse(folder.string() + " has too many entries: name the file itself");
    }
    safetensors = safetensors || entry->path().extension() == ".safetensors";
    if (entry->path().extension() == kEnding) {
      found = entry->path();
      ++files;
    }
  }
  if (failed) {
    return refuse("cannot read the folder " + folder.string() + ": " + failed.message());
  }
  if (files == 1) {
    return found;
  }
  if (files == 0 && safetensors) {
    return refuse(folder.string() +
                  " holds safetensors, and pdjob reads GGUF only: convert them, for example by "
                  "llama.cpp's convert_hf_to_gguf.py, and name the .gguf file");
  }
  return refuse(folder.string() + " holds " + std::to_string(files) +
                " .gguf files: name the file itself");
}

}  // namespace

Result<std::string> find_weights(const std::string& weights_dir, const std::string& path) {
  std::error_code failed;
  PDJOB_TRY(fs::path found, find_below(weights_dir, path, path));
  if (fs::is_directory(found, failed)) {
    PDJOB_TRY(const fs::path file, only_file_in(found));
    PDJOB_TRY(found, find_below(weights_dir, file, path));
  }
  if (found.extension() != kEnding || !fs::is_regular_file(found, failed)) {
    return refuse(path + " is not a .gguf file");
  }
  if (is_a_part(found)) {
    return refuse(path +
                  " is a part of a model: merge the parts to one file, for example by "
                  "llama.cpp's llama-gguf-split --merge");
  }
  if (found.string().size() > limits::kControlStringBytesMax) {
    return refuse(path + " is too long");
  }
  return found.string();
}

Status same_model(const engine::ModelFacts& now, const engine::ModelFacts& next) {
  const auto number = [](const char* name, uint64_t has, uint64_t must) {
    return has == must ? std::string()
                       : std::string(name) + " is " + std::to_string(has) + ", must be " +
                             std::to_string(must);
  };
  const auto text = [](const char* name, const std::string& has, const std::string& must) {
    return has == must ? std::string() : std::string(name) + " is " + has + ", must be " + must;
  };
  for (const std::string& difference :
       {number("layers", next.layers, now.layers), number("heads", next.heads, now.heads),
        number("kv_heads", next.kv_heads, now.kv_heads),
        number("head_dim", next.head_dim, now.head_dim),
        number("vocabulary", next.vocabulary, now.vocabulary),
        number("context_trained", next.context_trained, now.context_trained),
        number("kv_bytes_per_token", next.kv_bytes_per_token, now.kv_bytes_per_token),
        text("rope", next.rope, now.rope)}) {
    if (!difference.empty()) {
      return refuse("these are weights of another model: " + difference);
    }
  }
  return ok();
}

WeightLoader::WeightLoader(net::Loop& loop, std::string weights_dir,
                           std::function<void(const net::WeightsPrepared&)> answer)
    : loop_(loop),
      weights_dir_(std::move(weights_dir)),
      answer_(std::move(answer)),
      self_(std::make_shared<WeightLoader*>(this)),
      newest_(std::make_shared<std::atomic<uint64_t>>(0)),
      helper_(loop.make_helper("weights")) {}

WeightLoader::~WeightLoader() {
  *self_ = nullptr;
  *newest_ = UINT64_MAX;
}

void WeightLoader::prepare(const net::PrepareWeights& order, const engine::Engine& serving) {
  if (order.order < order_ || (order.order == order_ && !ready_)) {
    return;  // It is stale, or under way.
  }
  if (order.order == order_) {
    answer_(ready_->answer);
    return;
  }
  order_ = order.order;
  *newest_ = order_;
  if (ready_) {  // To free a model takes long.
    helper_->run([old = std::make_shared<Loaded>(*std::exchange(ready_, std::nullopt))] {});
  }
  if (order.path.empty()) {
    return;
  }
  log::info("reading weights " + order.path);
  helper_->run([this, self = self_, newest = newest_, order, config = serving.config(),
                facts = serving.facts()] {
    if (*newest != order.order) {
      return;  // Nobody waits for it any more.
    }
    auto done = std::make_shared<Loaded>(load(weights_dir_, order, config, facts));
    loop_.post([self, done] {
      if (*self != nullptr) {
        (*self)->loaded(std::move(*done));
      }
    });
  });
}

// On the helper's thread.
WeightLoader::Loaded WeightLoader::load(const std::string& weights_dir,
                                        const net::PrepareWeights& order,
                                        engine::EngineConfig config,
                                        const engine::ModelFacts& facts) {
  const Instant begin = real_now();
  Loaded done{.answer = {.order = order.order}, .engine = nullptr};
  const auto fail = [&](const Error& error) {
    done.answer.error = error.message.substr(0, limits::kControlStringBytesMax);
    done.answer.refused = error.code == ErrorCode::kInvalidArgument ||
                          error.code == ErrorCode::kCorrupt ||
                          error.code == ErrorCode::kUnsupported;
    done.engine.reset();
    return std::move(done);
  };
  const auto path = find_weights(weights_dir, order.path);
  if (!path) {
    return fail(path.error());
  }
  config.model_path = *path;
  config.served_name = facts.name;
  const auto before = engine::file_digest(*path);
  if (!before) {
    return fail(before.error());
  }
  auto engine = engine::open_engine(config);
  if (!engine) {
    return fail(engine.error());
  }
  done.engine = *std::move(engine);
  if (const Status same = same_model(facts, done.engine->facts()); !same) {
    return fail(same.error());
  }
  if (config.kind == engine::EngineKind::kLlama && done.engine->facts().digest != *before) {
    return fail({ErrorCode::kCorrupt, *path + " changed while it was read"});
  }
  std::error_code failed;
  done.answer.path = *path;
  done.answer.digest = done.engine->facts().digest;
  done.answer.bytes = fs::file_size(*path, failed);
  done.answer.took_us = static_cast<uint64_t>((real_now() - begin) / std::chrono::microseconds(1));
  return done;
}

void WeightLoader::loaded(Loaded done) {
  if (done.answer.order != order_) {
    return;  // Another order came.
  }
  log::info(done.answer.error.empty()
                ? "weights " + done.answer.path + " are ready, digest " + done.answer.digest
                : "weights are refused: " + done.answer.error);
  ready_ = std::move(done);
  answer_(ready_->answer);
}

std::unique_ptr<engine::Engine> WeightLoader::take(uint64_t order) {
  return order == order_ && ready_ ? std::move(ready_->engine) : nullptr;
}

}  // namespace pdjob::worker
