#include "router/control/control_words.h"

#include <string>
#include <variant>

#include <gtest/gtest.h>

namespace pdjob::router {
namespace {

using net::OrderKind;
using net::PauseMode;

net::OrderAsked order_of(std::string_view method, std::string_view path, const std::string& body,
                         std::string_view query = "") {
  const auto parsed = parse_control(method, path, query, body);
  EXPECT_TRUE(parsed) << path << ": " << parsed.error().message;
  return parsed ? std::get<ControlCall>(*parsed).order : net::OrderAsked{};
}

std::string refusal_of(std::string_view method, std::string_view path, const std::string& body,
                       std::string_view query = "") {
  const auto parsed = parse_control(method, path, query, body);
  return parsed ? "" : std::to_string(parsed.error().status) + " " + parsed.error().message;
}

TEST(ControlWords, SglangsCallsAreOrders) {
  EXPECT_EQ(order_of("POST", "/pause_generation", "{}").mode, PauseMode::kAbort);
  EXPECT_EQ(order_of("POST", "/pause_generation", R"({"mode":"in_place"})").mode,
            PauseMode::kRetract);
  EXPECT_EQ(order_of("POST", "/continue_generation", R"({"torch_empty_cache":true})").kind,
            OrderKind::kResume);
  const net::OrderAsked update =
      order_of("POST", "/update_weights_from_disk",
               R"({"model_path":"/w/a.gguf","weight_version":"7","load_format":null,)"
               R"("abort_all_requests":true,"keep_pause":true})");
  EXPECT_EQ(update.kind, OrderKind::kUpdate);
  EXPECT_EQ(update.path, "/w/a.gguf");
  EXPECT_EQ(update.version, "7");
  EXPECT_EQ(update.mode, PauseMode::kAbort);
  EXPECT_TRUE(update.keeps_pause);
  EXPECT_EQ(order_of("GET", "/flush_cache", "", "timeout=3").kind, OrderKind::kFlush);
  EXPECT_EQ(order_of("POST", "/update_weight_version", R"({"new_version":"8"})").version, "8");
  EXPECT_EQ(order_of("GET", "/get_weight_version", "").kind, OrderKind::kReport);
}

TEST(ControlWords, VllmsAndPrimeRlsCallsAreOrders) {
  EXPECT_EQ(order_of("POST", "/pause", "", "mode=keep&clear_cache=false").mode,
            PauseMode::kRetract);
  EXPECT_EQ(order_of("POST", "/pause", "").mode, PauseMode::kAbort);
  EXPECT_EQ(order_of("POST", "/resume", "").kind, OrderKind::kResume);
  EXPECT_EQ(order_of("GET", "/get_world_size", "{}").kind, OrderKind::kReport);
  EXPECT_EQ(order_of("POST", "/reset_prefix_cache", R"({"reset_running_requests":false})").kind,
            OrderKind::kFlush);
  EXPECT_EQ(order_of("POST", "/update_weights", R"({"weight_dir":"/w/step_3"})").path, "/w/step_3");
  EXPECT_EQ(order_of("POST", "/collective_rpc",
                     R"({"method":"reload_weights","kwargs":{"weights_path":"/w/b.gguf"}})")
                .path,
            "/w/b.gguf");
}

std::string done_of(std::string_view path) {
  const auto parsed = parse_control("POST", path, "", "{}");
  return parsed ? control_done(std::get<ControlNoOp>(*parsed).message).body : "";
}

TEST(ControlWords, StepsThatOneOrderMakesForItselfAreDone) {
  for (const char* path : {"/begin_weight_update", "/end_weight_update", "/post_process_weights"}) {
    EXPECT_EQ(done_of(path),
              R"({"success":true,"message":"nothing to do: POST /update_weights_from_disk is a )"
              R"(whole update"})");
  }
}

TEST(ControlWords, CallsThatPdjobLacksAreRefusedWithTheReason) {
  for (const char* path :
       {"/destroy_weights_update_group", "/update_weights_from_ipc", "/update_weights_from_tensor",
        "/pull_weights", "/areal_update_weights_xccl", "/areal_set_update_weight_meta",
        "/init_weights_update_group", "/init_weight_transfer_engine", "/finish_weight_update"}) {
    EXPECT_TRUE(is_control_path(path));
    EXPECT_EQ(refusal_of("POST", path, "{}"),
              "400 pdjob takes weights from disk only: POST /update_weights_from_disk");
  }
  EXPECT_EQ(refusal_of("POST", "/init_broadcaster", "{}").substr(0, 4), "404 ")
      << "prime-rl goes on without a broadcaster after a 404 only";
  EXPECT_FALSE(is_control_path("/load_lora_adapter")) << "engines may have it: adapter_orders.h";
  EXPECT_EQ(refusal_of("POST", "/wake_up", "{}"),
            "400 pdjob's workers keep their memory: this call has no meaning here");
  EXPECT_EQ(refusal_of("GET", "/sleep", ""), "405 method not allowed: GET /sleep");
  EXPECT_FALSE(is_control_path("/pull_weights/x"));
}

TEST(ControlWords, ArealsCallsAreOrders) {
  EXPECT_EQ(order_of("POST", "/areal_pause_generation", "{}").mode, PauseMode::kAbort);
  EXPECT_EQ(order_of("POST", "/areal_continue_generation", "{}").kind, OrderKind::kResume);
  EXPECT_EQ(order_of("POST", "/areal_update_weights", R"({"model_path":"/w/a.gguf"})").path,
            "/w/a.gguf");
}

TEST(ControlWords, AnOrderCanBeCancelled) {
  EXPECT_EQ(order_of("POST", "/v1/rl/cancel", "").kind, OrderKind::kCancel);
}

TEST(ControlWords, AVersionMayBeANumber) {
  EXPECT_EQ(order_of("POST", "/v1/rl/update", R"({"path":"a.gguf","version":12})").version, "12");
  EXPECT_EQ(order_of("POST", "/v1/rl/update", R"({"path":"a.gguf","version":null})").version, "");
}

TEST(ControlWords, WrongCallsAreRefusedWithTheReason) {
  EXPECT_EQ(refusal_of("GET", "/pause_generation", ""),
            "405 method not allowed: GET /pause_generation");
  EXPECT_EQ(refusal_of("POST", "/pause_generation", R"({"mode":"maybe"})"),
            "400 mode must be abort, wait, retract, keep or in_place, got maybe");
  EXPECT_EQ(refusal_of("POST", "/update_weights_from_disk", "{}"),
            "400 model_path must name a .gguf file or a folder below rollout.weights_dir");
  EXPECT_EQ(refusal_of("POST", "/update_weights", R"({"update_info":{"names":[]}})"),
            "400 pdjob takes weights from disk only: name a file as weight_dir");
  EXPECT_EQ(refusal_of("POST", "/start_weight_update", "{}").substr(0, 4), "400 ");
  EXPECT_EQ(refusal_of("POST", "/v1/rl/update", "[1]").substr(0, 4), "400 ");
  EXPECT_EQ(refusal_of("POST", "/collective_rpc", R"({"method":"save"})"),
            "400 collective_rpc knows the method reload_weights only");
  EXPECT_NE(refusal_of("POST", "/v1/rl/update",
                       R"({"path":"a","version":")" + std::string(300, 'v') + R"("})"),
            "");
  EXPECT_EQ(refusal_of("POST", "/v1/rl/update", R"({"path":"a","version":{"step":1}})"),
            "400 version must be a string or a number");
  EXPECT_EQ(refusal_of("POST", "/v1/rl/update", R"({"path":"a","version":"\u001b[2J"})"),
            "400 version has control characters");
  EXPECT_EQ(refusal_of("POST", "/v1/rl/update", R"({"path":"a\nb","version":"1"})"),
            "400 path has control characters");
}

TEST(ControlWords, AnswersHaveTheFormOfTheirServer) {
  const net::OrderAnswered done{.status = 200,
                                .message = "done",
                                .weights = {"/w/a.gguf", "7", "d1"},
                                .workers = 2,
                                .serving = 2};
  const ControlFacts facts{.model = "m",
                           .workers = {{"prefill-0", "prefill", "serving", "7", "d1"},
                                       {"decode-0", "decode", "serving", "7", "d1"}}};
  EXPECT_EQ(control_reply(ControlForm::kMessage, done, facts).body,
            R"({"message":"done","status":"ok"})");
  EXPECT_EQ(control_reply(ControlForm::kVersion, done, facts).body, R"({"weight_version":"7"})");
  EXPECT_EQ(control_reply(ControlForm::kIsPaused, done, facts).body, R"({"is_paused":false})");
  EXPECT_NE(control_reply(ControlForm::kChecksum, done, facts).body.find(R"("success":true)"),
            std::string::npos);
  net::OrderAnswered refused = done;
  refused.status = 400;
  refused.message = "another model";
  const ControlReply failed = control_reply(ControlForm::kSuccess, refused, facts);
  EXPECT_EQ(failed.status, 400);
  EXPECT_NE(failed.body.find(R"("success":false,"message":"another model")"), std::string::npos);
  EXPECT_EQ(control_reply(ControlForm::kFlushed, refused, facts).body, R"({"success":false})");
  EXPECT_EQ(control_reply(ControlForm::kPausedStatus, refused, facts).status, 400);
}

TEST(ControlWords, AFleetWithoutOneOfItsWorkersIsAnsweredWith207) {
  const net::OrderAnswered done{.status = 200, .troubles = {{"decode-1", "backoff"}}};
  const ControlReply reply = control_reply(ControlForm::kFleet, done, {});
  EXPECT_EQ(reply.status, 207);
  EXPECT_NE(reply.body.find(R"("cordoned":[{"worker":"decode-1","why":"backoff"}])"),
            std::string::npos);
  EXPECT_EQ(control_reply(ControlForm::kSuccess, done, {}).status, 200);
}

TEST(ControlWords, WorkersWithDifferentDigestsFailTheCheck) {
  const ControlFacts facts{.model = "m",
                           .workers = {{"prefill-0", "prefill", "serving", "7", "d1"},
                                       {"decode-0", "decode", "serving", "7", "d2"}}};
  EXPECT_NE(control_reply(ControlForm::kChecksum, {}, facts).body.find(R"("success":false)"),
            std::string::npos);
}

}  // namespace
}  // namespace pdjob::router
