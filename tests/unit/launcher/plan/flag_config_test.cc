#include "launcher/plan/flag_config.h"

#include <gtest/gtest.h>

namespace pdjob::launcher {
namespace {

TEST(FlagConfig, SettingsBecomeNestedYaml) {
  EXPECT_EQ(*yaml_of_settings({"decode.engine.threads=2", "name=x", "decode.workers=3",
                               "router.listen=127.0.0.1:8000"}),
            "decode:\n  engine:\n    threads: 2\n  workers: 3\nname: x\nrouter:\n  listen: "
            "127.0.0.1:8000\n");
}

TEST(FlagConfig, LaterSettingsWin) {
  EXPECT_EQ(*yaml_of_settings({"engine.threads=2", "engine.threads=4"}), "engine:\n  threads: 4\n");
}

TEST(FlagConfig, ValuesCannotBreakOutOfTheirKey) {
  EXPECT_EQ(*yaml_of_settings({"model=it's: {a, b}\nname: y"}),
            "model: \"it's: {a, b}\\x0aname: y\"\n");
}

TEST(FlagConfig, WhatIsNoSettingIsRefused) {
  for (const char* setting : {"", "=", "threads", "engine..threads=1", ".threads=1", "engine.=1",
                              "Engine.threads=1", "a b=1"}) {
    EXPECT_FALSE(yaml_of_settings({setting})) << setting;
  }
}

}  // namespace
}  // namespace pdjob::launcher
