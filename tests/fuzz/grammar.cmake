pdjob_fuzz(schema SOURCES schema_fuzz.cc LINKS pdjob_grammar)
pdjob_fuzz(grammar SOURCES grammar_fuzz.cc LINKS pdjob_grammar)
