pdjob_fuzz(config SOURCES config_fuzz.cc LINKS pdjob_common)
