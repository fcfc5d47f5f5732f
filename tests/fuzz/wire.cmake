pdjob_fuzz(wire SOURCES wire_fuzz.cc LINKS pdjob_net)
