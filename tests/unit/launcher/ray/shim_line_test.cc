#include "launcher/ray/shim_line.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace pdjob::launcher {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Names = std::vector<std::string>;

template <class Line>
Line decoded(const std::string& text) {
  const Result<ShimLine> line = decode_shim_line(text);
  EXPECT_TRUE(line) << (line ? "" : line.error().message);
  return line && std::holds_alternative<Line>(*line) ? std::get<Line>(*line) : Line{};
}

TEST(ShimLine, RequestsAreOneLineEach) {
  EXPECT_EQ(encode_request(1, OpenHome{.name = "a",
                                       .address = "10.0.0.1:6379",
                                       .job = "j",
                                       .lease = milliseconds(2500),
                                       .reconnect = seconds(600)}),
            R"({"id":1,"op":"open","name":"a","address":"10.0.0.1:6379","job":"j","lease_s":2.5,)"
            R"("reconnect_s":600})");
  EXPECT_EQ(encode_request(2, JoinHome{.slot = "b.0",
                                       .submission = "s",
                                       .cluster = "b",
                                       .dashboard = "http://b:8265",
                                       .python = "py\nthon",
                                       .share = {.cpus = 2, .gpus = 1, .memory_bytes = 7}}),
            R"({"id":2,"op":"join","slot":"b.0","submission":"s","cluster":"b",)"
            R"("dashboard":"http://b:8265","python":"py\nthon","token_file":"",)"
            R"("home_token_file":"","cpus":2,"gpus":1,"memory":7})");
  EXPECT_EQ(encode_request(3, LeaveHome{.submission = "s", .dashboard = "d", .token_file = "t"}),
            R"({"id":3,"op":"leave","submission":"s","dashboard":"d","token_file":"t"})");
  EXPECT_EQ(encode_request(4, Reserve{.name = "r",
                                      .bundles = {{.slot = "a.0"}, {.slot = "b.0", .guest = true}},
                                      .timeout = seconds(20)}),
            R"({"id":4,"op":"reserve","name":"r","timeout_s":20,"bundles":[)"
            R"({"slot":"a.0","guest":false,"cpus":1,"gpus":0,"memory":0},)"
            R"({"slot":"b.0","guest":true,"cpus":1,"gpus":0,"memory":0}]})");
  EXPECT_EQ(encode_request(5, Release{"r"}), R"({"id":5,"op":"release","name":"r"})");
  EXPECT_EQ(encode_request(6, StartAgent{.slot = "a.0",
                                         .reservation = "r",
                                         .bundle = 1,
                                         .program = "p",
                                         .ship = true,
                                         .arguments = {"x", "y"},
                                         .secret = "hush",
                                         .log = "l"}),
            R"({"id":6,"op":"start_agent","slot":"a.0","reservation":"r","bundle":1,"program":"p",)"
            R"("secret":"hush","log":"l","ship":true,"arguments":["x","y"]})");
  EXPECT_EQ(encode_request(7, CloseHome{}), R"({"id":7,"op":"close"})");
}

TEST(ShimLine, ReadsEachLine) {
  const auto hello =
      decoded<ShimHello>(R"({"type":"hello","protocol":1,"ray":"2.60.0","python":"3.11.7"})");
  EXPECT_EQ(hello.protocol, 1);
  EXPECT_EQ(hello.ray + hello.python, "2.60.03.11.7");
  EXPECT_EQ(decoded<ShimHasNoRay>(R"({"type":"no_ray","text":"none"})").text, "none");
  EXPECT_EQ(decoded<ShimDone>(R"({"type":"done","id":7,"text":"a,b"})").id, 7U);
  const auto refused =
      decoded<ShimRefused>(R"({"type":"refused","id":8,"kind":"no_room","text":"full"})");
  EXPECT_EQ(refused.kind + refused.text, "no_roomfull");
  const auto node = decoded<RayNodeSeen>(
      R"({"type":"node","node":"n","alive":1,"address":"10.0.0.2","cluster":"b","slot":"b.0","reason":""})");
  EXPECT_TRUE(node.alive);
  EXPECT_EQ(node.node + node.address + node.cluster + node.slot, "n10.0.0.2bb.0");
  const auto ended = decoded<GuestEnded>(
      R"({"type":"guest_ended","slot":"b.0","submission":"s","refused":1,"reason":"Python 3.9"})");
  EXPECT_TRUE(ended.refused);
  const auto group = decoded<ReservationSeen>(
      R"({"type":"reservation","name":"r","state":"rescheduling","nodes":"n,,m"})");
  EXPECT_FALSE(group.removed);
  EXPECT_EQ(group.nodes, (Names{"n", "", "m"}));
  EXPECT_TRUE(
      decoded<ReservationSeen>(R"({"type":"reservation","name":"r","state":"removed","nodes":""})")
          .removed);
  EXPECT_TRUE(decoded<HomeSeen>(R"({"type":"home","reachable":1})").reachable);
}

TEST(ShimLine, RefusesWhatIsNoLine) {
  for (const char* text :
       {"", "{", "[]", "null", "{}", R"({"type":"unknown"})", R"({"type":7})", R"({"type":"done"})",
        R"({"type":"done","id":0,"text":""})", R"({"type":"done","id":-1,"text":""})",
        R"({"type":"done","id":"1","text":""})", R"({"type":"done","id":1,"text":[]})",
        R"({"type":"home","reachable":2})", R"({"type":"home","reachable":true})",
        R"({"type":"hello","protocol":1,"ray":"2.60.0"})",
        R"({"type":"hello","protocol":99999999999,"ray":"","python":""})",
        R"({"type":"home","reachable":1} x)"}) {
    const Result<ShimLine> line = decode_shim_line(text);
    ASSERT_FALSE(line) << text;
    EXPECT_EQ(line.error().code, ErrorCode::kCorrupt);
  }
}

TEST(ShimLine, RefusesLinesAndListsWithoutEnd) {
  const std::string long_text(kShimLineBytesMax, 'x');
  EXPECT_FALSE(decode_shim_line(R"({"type":"no_ray","text":")" + long_text + "\"}"));
  const std::string many(kShimNodesMax, ',');
  EXPECT_FALSE(decode_shim_line(R"({"type":"reservation","name":"r","state":"created","nodes":")" +
                                many + "\"}"));
}

TEST(ShimLine, SplitsNames) {
  EXPECT_EQ(split_names(""), Names{});
  EXPECT_EQ(split_names("a"), Names{"a"});
  EXPECT_EQ(split_names("a,,b"), (Names{"a", "", "b"}));
  EXPECT_EQ(split_names(",a,"), (Names{"", "a", ""}));
}

}  // namespace
}  // namespace pdjob::launcher
