pdjob_fuzz(multipart SOURCES multipart_fuzz.cc LINKS pdjob_batch_api)
