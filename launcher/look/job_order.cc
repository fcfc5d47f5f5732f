#include "launcher/look/job_order.h"

#include "common/exit_code.h"
#include "launcher/job_folder.h"

namespace pdjob::launcher {

Result<AskedProcess> admin_of(const std::string& state_dir, const std::string& job) {
  PDJOB_TRY(const LauncherAddress launcher, JobFolder::find(state_dir, job));
  PDJOB_TRY(const net::HttpAddress address, net::parse_http_address(launcher.admin));
  return AskedProcess{address, launcher.key};
}

Result<std::string> order_job(const AskedProcess& admin, const Order& order) {
  PDJOB_TRY(net::HttpReply reply, send_order(admin, order));
  if (reply.status == 200) {
    return std::move(reply.body);
  }
  const std::string text = reply.body.substr(0, reply.body.find_last_not_of('\n') + 1);
  const ErrorCode code = reply.status == 400   ? ErrorCode::kInvalidArgument
                         : reply.status == 409 ? ErrorCode::kOverloaded
                                               : ErrorCode::kUnavailable;
  return Error{code, text};
}

int exit_code_of_order(const Error& error) {
  switch (error.code) {
    case ErrorCode::kInvalidArgument:
      return kExitUsage;
    case ErrorCode::kOverloaded:
      return kExitNotPlaced;
    default:
      return kExitFailed;
  }
}

}  // namespace pdjob::launcher
