pdjob_fuzz(schema SOURCES schema_fuzz.cc LINKS pdjob_grammar)
pdjob_fuzz(grammar SOURCES grammar_fuzz.cc LINKS pdjob_grammar)
pdjob_fuzz(tool_calls SOURCES tool_calls_fuzz.cc ${CMAKE_SOURCE_DIR}/engine/tool_call_reader.cc LINKS pdjob_grammar)
