#include "launcher/look/links.h"

#include <gtest/gtest.h>

namespace pdjob::launcher {
namespace {

const std::string kStatus =
    R"({"job":"demo","processes":[)"
    R"({"name":"router-0","role":"router","state":"ready","engine_id":"router-0.n.1","url":"http://h:1","load":{}},)"
    R"({"name":"prefill-0","role":"prefill","state":"ready","engine_id":"prefill-0.n.2","url":"http://h:2","load":{"a":1}},)"
    R"({"name":"decode-0","role":"decode","state":"backoff","engine_id":"decode-0.n.3","url":"-"}]})";

std::string answer(const char* peer, const char* direction, const char* more = "") {
  return std::string(R"({"name":"x","links":[{"peer":")") + peer + R"(","transport":"shm",)" +
         R"("direction":")" + direction +
         R"(","state":"open","epoch":2,"links_opened":2,"transfers":12,"bytes":34500000,)" +
         R"("seconds":0.5,"gb_per_second":0.069,"transfers_alive":1,"leases":3)" + more + "}]}";
}

TEST(Links, AreAskedOfWorkersThatServe) {
  const auto workers = linked_workers(kStatus);
  ASSERT_TRUE(workers) << workers.error().message;
  ASSERT_EQ(workers->size(), 2U);
  EXPECT_EQ((*workers)[0].name, "prefill-0");
  EXPECT_EQ((*workers)[0].url, "http://h:2");
  EXPECT_TRUE((*workers)[0].serving);
  EXPECT_FALSE((*workers)[1].serving);
  EXPECT_FALSE(linked_workers("not a status"));
}

TEST(Links, TextHasALineForEachEnd) {
  const LinkedWorker prefill{"prefill-0", "prefill-0.n.2", "", true};
  const LinkedWorker decode{"decode-0", "decode-0.n.3", "", true};
  const std::string text = links_text(
      {{prefill, answer("decode-0.n.3", "sends", R"(,"failures":{"link":0},"stalls":{"push":1})")},
       {decode,
        answer("prefill-0.n.2", "receives",
               R"(,"suspect":true,"failures":{"link":1,"digest":2},"stalls":{"push":0})")}});
  EXPECT_EQ(
      text,
      "PAIR                  SEEN BY    VIA  STATE          EPOCH  RETRIES  TRANSFERS  BYTES  "
      "  GB/S   ALIVE  LEASES  FAILED                STALLS\n"
      "prefill-0 > decode-0  decode-0   shm  open, suspect  2      1        12         34.5 "
      "MB  0.069  1      3       3 (1 link, 2 digest)  0\n"
      "prefill-0 > decode-0  prefill-0  shm  open           2      1        12         34.5 "
      "MB  0.069  1      3       0                     1 (1 push)\n");
}

TEST(Links, BriefTextHasALineForEachPairUpToABound) {
  const LinkedWorker prefill{"prefill-0", "prefill-0.n.2", "", true};
  const LinkedWorker decode{"decode-0", "decode-0.n.3", "", true};
  const std::vector<LinksAnswer> answers = {
      {prefill, answer("decode-0.n.3", "sends")},
      {decode, answer("prefill-0.n.2", "receives", R"(,"failures":{"link":1},"stalls":{})")},
      {{"decode-1", "decode-1.n.4", "", true}, answer("prefill-0.n.2", "receives")}};
  EXPECT_EQ(links_brief(answers, 1),
            "KV LINK               VIA  STATE  BYTES    GB/S   ALIVE  FAILED      STALLS\n"
            "prefill-0 > decode-0  shm  open   34.5 MB  0.069  1      1 (1 link)  0\n"
            "and 1 more: pdjob links shows them\n");
  EXPECT_NE(links_brief(answers, 2).find("prefill-0 > decode-1"), std::string::npos);
  EXPECT_EQ(links_brief({}, 2).substr(0, 12), "no KV links:");
}

TEST(Links, TextSaysWhereEachEndIsAndWhatIsEncrypted) {
  const LinkedWorker prefill{"prefill-0", "prefill-0.n.2", "", true, "lab/a"};
  const LinkedWorker decode{"decode-0", "decode-0.n.3", "", true, "lab/b"};
  const std::string text =
      links_text({{prefill, answer("decode-0.n.3", "sends", R"(,"encrypted":true)")},
                  {decode, answer("prefill-0.n.2", "receives", R"(,"encrypted":true)")}});
  EXPECT_NE(text.find("prefill-0 > decode-0  lab/a > lab/b  decode-0   shm, tls"),
            std::string::npos)
      << text;
}

TEST(Links, TextNamesWhoDoesNotAnswerAndPeersThatHaveGone) {
  const LinkedWorker prefill{"prefill-0", "prefill-0.n.2", "", true};
  const LinkedWorker decode{"decode-0", "decode-0.n.3", "", false};
  const std::string text =
      links_text({{prefill, answer("decode-0.n.1", "sends")},
                  {decode, Error{ErrorCode::kUnavailable, "it does not serve"}}});
  EXPECT_NE(text.find("\nprefill-0 > decode-0.n.1  prefill-0"), std::string::npos) << text;
  EXPECT_NE(text.find("\ndecode-0: it does not serve\n"), std::string::npos) << text;
}

TEST(Links, TextTeachesWhereThereAreNone) {
  EXPECT_EQ(
      links_text({}),
      "no KV links: they are made when a decode worker first fetches from a prefill worker\n");
}

TEST(Links, JsonIsOneLineWithTheAnswersAsTheyAre) {
  const LinkedWorker prefill{"p", "p.n.2", "", true}, decode{"d", "d.n.3", "", true};
  EXPECT_EQ(links_json("demo", {{prefill, std::string(R"({"name":"p","links":[]})")},
                                {decode, Error{ErrorCode::kTimeout, "no answer"}}}),
            R"({"job":"demo","workers":[{"name":"p","links":[]},)"
            R"({"name":"d","engine_id":"d.n.3","error":"no answer"}]})"
            "\n");
}

}  // namespace
}  // namespace pdjob::launcher
