pdjob_fuzz(kv_words SOURCES kv_words_fuzz.cc LINKS pdjob_router)
pdjob_fuzz(stream_record SOURCES stream_record_fuzz.cc LINKS pdjob_router)
pdjob_fuzz(request_digest SOURCES request_digest_fuzz.cc LINKS pdjob_router)
pdjob_fuzz(recipe SOURCES recipe_fuzz.cc LINKS pdjob_router)
