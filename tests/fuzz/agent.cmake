# Only what is fuzzed: clang builds it, and not all of the launcher.
set(agents ${CMAKE_SOURCE_DIR}/launcher/agents)
pdjob_fuzz(agent SOURCES agent_fuzz.cc ${agents}/agent_roster.cc ${agents}/agent_session.cc ${agents}/agent_wire.cc
  LINKS pdjob_common pdjob_net)
