#include "worker/foreign/weight_changer.h"

#include <filesystem>
#include <utility>

#include "common/limits.h"
#include "common/log.h"

namespace pdjob::worker {
namespace {

constexpr Duration kFlushInterval = std::chrono::milliseconds(200);

}  // namespace

WeightChanger::WeightChanger(net::Loop& loop, Parts parts)
    : loop_(loop),
      parts_(std::move(parts)),
      self_(std::make_shared<WeightChanger*>(this)),
      helper_(loop.make_helper("weights")) {}

WeightChanger::~WeightChanger() {
  loop_.cancel(again_);
  *self_ = nullptr;
}

void WeightChanger::read_then(std::function<Result<Checkpoint>()> read,
                              std::function<void(Result<Checkpoint>)> take) {
  helper_->run([this, self = self_, read = std::move(read), take = std::move(take)] {
    auto got = std::make_shared<Result<Checkpoint>>(read());
    loop_.post([self, take, got] {
      if (*self != nullptr) {
        take(std::move(*got));
      }
    });
  });
}

// A name that only the engine can resolve has no digest here.
void WeightChanger::begin(const net::WeightSource& weights, Done done) {
  std::error_code failed;
  const bool is_first = weights.path.empty();
  if (is_first && !std::filesystem::is_directory(parts_.model, failed)) {
    done(ok());
    return;
  }
  read_then(
      [model = parts_.model, path = weights.path]() -> Result<Checkpoint> {
        if (!path.empty()) {
          return read_checkpoint(path);
        }
        auto first = read_checkpoint(model);
        return first ? *std::move(first) : Checkpoint{};  // Its weights may have another format.
      },
      [this, weights, is_first, done = std::move(done)](Result<Checkpoint> got) {
        if (!got) {
          return done(got.error());
        }
        if (!weights.digest.empty() && got->digest != weights.digest) {
          return done(Error{ErrorCode::kCorrupt, "the weights of version " + weights.version +
                                                     " have digest " + weights.digest + ", and " +
                                                     weights.path + " has " + got->digest});
        }
        if (is_first) {
          now_ = *std::move(got);
          return done(ok());
        }
        give(*got, weights.version, done);
      });
}

Result<Checkpoint> WeightChanger::read_for_order(const std::string& weights_dir,
                                                 const std::string& path,
                                                 const std::string& config) {
  PDJOB_TRY(const std::string folder, find_checkpoint(weights_dir, path));
  PDJOB_TRY(Checkpoint checkpoint, read_checkpoint(folder));
  PDJOB_TRY_STATUS(same_shape(config, checkpoint.config));
  return checkpoint;
}

void WeightChanger::prepare(const net::PrepareWeights& order) {
  if (order.order < order_ || (order.order == order_ && !ready_)) {
    return;  // It is stale, or under way.
  }
  if (order.order == order_) {
    parts_.answer(ready_->answer);
    return;
  }
  order_ = order.order;
  ready_.reset();
  if (order.path.empty()) {
    return;
  }
  log::info("reading weights " + order.path);
  const Instant began = loop_.now();
  read_then([dir = parts_.weights_dir, path = order.path,
             config = now_.config] { return read_for_order(dir, path, config); },
            [this, number = order.order, began](Result<Checkpoint> got) {
              if (number != order_) {
                return;  // Another order came.
              }
              was_read(number, std::move(got));
              ready_->answer.took_us =
                  static_cast<uint64_t>((loop_.now() - began) / std::chrono::microseconds(1));
              parts_.answer(ready_->answer);
            });
}

void WeightChanger::was_read(uint64_t order, Result<Checkpoint> checkpoint) {
  ready_.emplace(Prepared{.answer = {.order = order}, .checkpoint = {}});
  net::WeightsPrepared& answer = ready_->answer;
  if (!checkpoint) {
    const Error& error = checkpoint.error();
    answer.error = error.message.substr(0, limits::kControlStringBytesMax);
    answer.refused = error.code == ErrorCode::kInvalidArgument || error.code == ErrorCode::kCorrupt;
    log::info("weights are refused: " + answer.error);
    return;
  }
  answer.path = checkpoint->folder;
  answer.digest = checkpoint->digest;
  answer.bytes = checkpoint->bytes;
  ready_->checkpoint = *std::move(checkpoint);
  log::info("weights " + answer.path + " can be loaded, digest " + answer.digest);
}

void WeightChanger::change(uint64_t order, const std::string& version, Done done) {
  if (order == 0) {
    give({}, version, std::move(done));
  } else if (order != order_ || !ready_ || !ready_->answer.error.empty()) {
    done(Error{ErrorCode::kUnavailable, "its new weights are not ready"});
  } else {
    give(ready_->checkpoint, version, std::move(done));
  }
}

void WeightChanger::give(const Checkpoint& checkpoint, const std::string& version, Done done) {
  next_ = checkpoint;
  calls_.emplace(parts_.recipe, next_.folder, version);
  done_ = std::move(done);
  post_next();
}

void WeightChanger::post_next() {
  const WeightCall* const call = calls_->due();
  if (call == nullptr) {
    return end_change(
        calls_->error().empty() ? ok() : Status(Error{ErrorCode::kUnavailable, calls_->error()}));
  }
  parts_.post(*call, [this, self = self_, call = *call](const Result<net::HttpReply>& reply) {
    if (*self == nullptr) {
      return;
    }
    calls_->answered(reply ? reply->status : 0, reply ? reply->body : "");
    const WeightCall* const due = calls_->due();
    if (due != nullptr && *due == call) {
      again_ = loop_.call_at(loop_.now() + kFlushInterval, [this] { post_next(); });
    } else {
      post_next();
    }
  });
}

// The engine has read the files by itself: they must be those whose digest is known.
void WeightChanger::end_change(const Status& status) {
  calls_.reset();
  Status end = status;
  if (end && !next_.folder.empty()) {
    const auto stamp = stamp_of_checkpoint(next_.folder);
    if (!stamp || *stamp != next_.stamp) {
      end = Error{ErrorCode::kCorrupt, next_.folder + " changed while the engine loaded it"};
    } else {
      next_.config = now_.config.empty() ? next_.config : now_.config;
      now_ = std::move(next_);
    }
  }
  next_ = {};
  std::exchange(done_, nullptr)(end);
}

}  // namespace pdjob::worker
