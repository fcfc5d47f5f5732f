pdjob_fuzz(link SOURCES link_fuzz.cc LINKS pdjob_kvtransfer)
