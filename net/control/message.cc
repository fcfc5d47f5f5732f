#include "net/control/message.h"

#include "common/check.h"

namespace pdjob::net {

const char* to_string(Role role) {
  switch (role) {
    case Role::kPrefill:
      return "prefill";
    case Role::kDecode:
      return "decode";
    case Role::kBoth:
      return "both";
    case Role::kBatch:
      return "batch";
    case Role::kStore:
      return "store";
    case Role::kRouter:
      return "router";
  }
  PDJOB_CHECK(false, static_cast<int>(role));
}

const char* to_string(Standing standing) {
  switch (standing) {
    case Standing::kProving:
      return "proving";
    case Standing::kServing:
      return "serving";
    case Standing::kLeaving:
      return "leaving";
  }
  return "unknown";
}

const char* to_string(PauseMode mode) {
  switch (mode) {
    case PauseMode::kWait:
      return "wait";
    case PauseMode::kAbort:
      return "abort";
    case PauseMode::kRetract:
      return "retract";
  }
  return "unknown";
}

const char* to_string(OrderKind kind) {
  switch (kind) {
    case OrderKind::kReport:
      return "report";
    case OrderKind::kPause:
      return "pause";
    case OrderKind::kResume:
      return "resume";
    case OrderKind::kUpdate:
      return "update";
    case OrderKind::kRename:
      return "rename";
    case OrderKind::kFlush:
      return "flush";
    case OrderKind::kCancel:
      return "cancel";
  }
  return "unknown";
}

const char* to_string(LossCause cause) {
  switch (cause) {
    case LossCause::kUnknown:
      return "unknown";
    case LossCause::kOutside:
      return "outside";
    case LossCause::kCrash:
      return "crash";
    case LossCause::kHang:
      return "hang";
  }
  PDJOB_CHECK(false, static_cast<int>(cause));
}

}  // namespace pdjob::net
