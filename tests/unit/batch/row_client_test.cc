#include "batch/row_client.h"

#include <gtest/gtest.h>

namespace pdjob::batch {
namespace {

TEST(RowServer, TakesTheAddressesThatPeopleWrite) {
  EXPECT_EQ(parse_row_server("127.0.0.1:8000").value().url.address.port, 8000);
  EXPECT_EQ(parse_row_server("http://h:1/v1").value().url.path, "/v1");
  const RowServer secure = parse_row_server("https://h/v1").value();
  EXPECT_TRUE(secure.url.https);
  EXPECT_EQ(secure.url.address.port, 443);
  EXPECT_FALSE(parse_row_server("ftp://h"));
}

}  // namespace
}  // namespace pdjob::batch
