pdjob_fuzz(openai SOURCES openai_fuzz.cc LINKS pdjob_openai)
