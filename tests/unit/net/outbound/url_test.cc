#include "net/outbound/url.h"

#include <gtest/gtest.h>

namespace pdjob::net {
namespace {

std::string read(const char* text) {
  const auto url = parse_url(text);
  return url ? url->to_string() : "none";
}

TEST(Url, NamesItsPortAndWritesItsHostInLowerCase) {
  EXPECT_EQ(read("http://A.example"), "http://a.example:80");
  EXPECT_EQ(read("https://A.example/x?Y=Z"), "https://a.example:443/x?Y=Z");
  EXPECT_EQ(read("https://a:9"), "https://a:9");
  EXPECT_EQ(read("https://[::1]/x"), "https://[::1]:443/x");
  EXPECT_EQ(read("http://a?x"), "http://a:80/?x");
}

TEST(Url, WhatTwoParsersMayReadDifferentlyIsNone) {
  for (const char* text : {"", "a", "ftp://a", "HTTP://a", "http://", "http:///x", "http://u@a",
                           "http://u:p@a", "http://a#b", "http://a/#b", "http://a\\b", "http://a:0",
                           "http://a:65536", "http://a:", "http://a/ x", "http://a/\r\nX: y",
                           "http://%61/", "http://a/\xc3\xa4", "https://https://a"}) {
    EXPECT_EQ(read(text), "none") << text;
  }
}

TEST(Url, AServiceHasNoPathAndMayHaveNoScheme) {
  EXPECT_EQ(parse_service_url("h:80")->to_string(), "http://h:80");
  EXPECT_EQ(parse_service_url("https://h")->to_string(), "https://h:443");
  for (const char* text : {"https://h/v1", "http://h/", "", "h/x"}) {
    EXPECT_FALSE(parse_service_url(text)) << text;
  }
}

}  // namespace
}  // namespace pdjob::net
